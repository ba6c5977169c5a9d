"""The HTTP API and the page: they read the last snapshots, and never wait for the next."""
