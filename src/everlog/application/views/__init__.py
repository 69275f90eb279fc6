"""Views of a log and their snapshots, for people who look after them."""
