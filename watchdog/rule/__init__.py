"""Rules: one cause a file, read, checked, tested and documented."""
