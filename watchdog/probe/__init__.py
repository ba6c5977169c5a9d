"""What asks a server something on purpose."""
