"""Sync as people use it: peers, one sync with any kind of place, watching, listening, and joining."""
