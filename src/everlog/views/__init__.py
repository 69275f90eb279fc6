"""Views: state that is derived from events by a pure fold, kept up to date, rebuilt and proved."""
