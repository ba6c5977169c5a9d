"""What leaves the watchdog: alerts to those who page, metrics, and the memory that survives a restart."""
