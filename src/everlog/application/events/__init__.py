"""Events as people write them, name them, list them, and follow them back in time."""
