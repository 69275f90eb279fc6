"""The command line of the programs: built from the fields of their commands and questions."""
