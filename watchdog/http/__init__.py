"""One HTTP client under a deadline, for scrapes, probes and notifications alike."""
