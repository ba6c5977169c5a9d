"""Which servers there are to watch where they come and go: found, and kept while a list cannot be read."""
