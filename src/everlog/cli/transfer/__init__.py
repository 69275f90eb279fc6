"""Commands that move events between logs, files and git."""
