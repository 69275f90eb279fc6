"""The demonstration's story: a week of a small company, in which all programs on the log take part."""
