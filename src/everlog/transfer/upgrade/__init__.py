"""Bring a log of an older format to the present one."""
