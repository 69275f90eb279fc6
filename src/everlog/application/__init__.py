"""What people do with a log, independent of any surface: no module here knows a command line or a server."""
