"""How tests wait for what other threads and processes bring about."""

import time
from collections.abc import Callable
from typing import Any

# Far more than anything takes: it only ends a test that would hang, also where others use the machine's cores.
WAIT_SECONDS = 30.0


def until(holds: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """What `holds` returns once it is true; fails where that does not come."""
    give_up_at = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < give_up_at, "it did not come about"
        time.sleep(0.01)
    return value
