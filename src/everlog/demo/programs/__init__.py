"""What each program does during the week, and customers with their own event types."""
