"""The clock that arithmetic with times is done on."""

import time
from pathlib import Path
from typing import NamedTuple


def steady_seconds() -> float:
    """A clock that nobody sets and that goes on while the machine sleeps: a laptop's night counts, an alert ages."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Uptime(NamedTuple):
    """For how long the machine runs: seconds since a boot, and which boot that was. No setting of a clock moves it."""

    boot: int
    seconds: float


def uptime() -> Uptime | None:
    """The machine's uptime, suspended time included; None where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        seconds = Path("/proc/uptime").read_text(encoding="ascii").split()[0]
        # As much of the identity as a float holds.
        return Uptime(int(boot.replace("-", "")[:12], 16), float(seconds))
    except (OSError, ValueError, IndexError):
        return None
