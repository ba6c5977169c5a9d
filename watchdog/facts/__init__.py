"""What is known of a server beside its counters: each fact is declared beside the code that yields it."""
