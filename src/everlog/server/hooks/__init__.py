"""Webhooks: events are sent to addresses."""
