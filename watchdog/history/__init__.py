"""What was seen: pages under one name each, kept for eleven minutes, and the stretches of time that are looked at."""
