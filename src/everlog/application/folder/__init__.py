"""The `.everlog` folder: create it, open its log, change its settings, declare its event types."""
