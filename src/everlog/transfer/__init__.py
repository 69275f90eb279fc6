"""Moving a log: copied from any store to any, exported as text, imported from text of many shapes."""
