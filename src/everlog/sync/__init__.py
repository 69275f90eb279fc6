"""Bringing logs together that were written apart."""
