"""The clock that arithmetic with times is done on."""

import time


def steady_seconds() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps: a laptop's night counts, an alert ages."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
