"""Move a log: copy it from any store to any other, export it as text, import text of many shapes."""
