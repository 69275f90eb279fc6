"""Commands for views and their snapshots."""
