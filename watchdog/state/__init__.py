"""What survives a restart: incidents and announcements in SQLite."""
