"""What to change: whether a remedy fits the server, its computed value, and the order of several."""
