"""Commands that write and read events."""
