"""`python -m tests.bench.notify`: what one step of one target costs the notifiers while many targets fire."""

import time

from tests.pagers import WALL, incident
from watchdog.notify.notifiers import Notifiers
from watchdog.settings.model import load

COUNTS = (1, 100, 1000)
STEPS = 200
ROUNDS = 3
NOWHERE = "http://127.0.0.1:1"
SETTINGS = {"alertmanager.urls": [NOWHERE], "webhooks": [{"url": f"{NOWHERE}/hook", "name": "hook"}]}


def step_seconds(firing: int) -> float:
    """Mean CPU of a step in which one of so many firing targets is seen again; the best of several rounds."""
    notifiers = Notifiers(load(None, SETTINGS, {}))
    incidents = [incident(target=f"gpu-{number}") for number in range(firing)]
    for each in incidents:
        notifiers.observe([each], 0.0, WALL, {each.key})
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for step in range(STEPS):
            each = incidents[step % firing]
            notifiers.observe([each], 5.0, WALL + 5, {each.key})
        best = min(best, (time.process_time() - began) / STEPS)
    return best


def main() -> None:
    """Print the cost of a step for few and for many firing targets."""
    print("a step of one target through the notifiers, one Alertmanager and one webhook")
    for count in COUNTS:
        print(f"  {count:4} firing targets  {step_seconds(count) * 1e6:6.0f} us")


if __name__ == "__main__":
    main()
