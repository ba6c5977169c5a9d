"""`python -m watchdog`."""

from watchdog.cli.main import run

run()
