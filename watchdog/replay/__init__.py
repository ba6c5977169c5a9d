"""Recordings through the pure step: replay, its score, and recordings served again as if they were live."""
