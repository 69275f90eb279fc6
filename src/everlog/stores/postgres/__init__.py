"""A log in PostgreSQL: many processes and machines write one log, and roles limit what each user may do."""
