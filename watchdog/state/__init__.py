"""What survives a restart: incidents, announcements and what was learnt of servers, in SQLite."""
