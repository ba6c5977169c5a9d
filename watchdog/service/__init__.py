"""The running service: its object graph, its watches, its schedule and its process."""
