"""Numbers from history and facts, by name."""
