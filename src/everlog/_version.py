"""The version, alone, so that packaging and the launcher read it without importing the program."""

__version__ = "0.1.0"
