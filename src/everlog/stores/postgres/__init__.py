"""A log in PostgreSQL: many processes and machines write one log, and roles decide who may do what."""
