"""Which servers there are to watch where they come and go: read, kept while nobody can say, told where it fails."""
