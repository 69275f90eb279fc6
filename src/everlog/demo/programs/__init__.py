"""What each program does during the week, and customers with event types of their own."""
