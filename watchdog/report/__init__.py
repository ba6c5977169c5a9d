"""A snapshot as JSON, text and metrics; web and cli both read it."""
