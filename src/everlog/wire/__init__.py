"""What crosses HTTP as bytes: events, pages and problems. The server writes it and the client reads it."""
