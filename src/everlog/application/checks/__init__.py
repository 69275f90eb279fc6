"""Checks of a log and its surroundings, and how their results are described."""
