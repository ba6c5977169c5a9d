"""`python -m tests.bench.storm`: what an interval costs each target while all of them fire: state on disk, alerts."""

import tempfile
import time
from contextlib import closing
from pathlib import Path

from tests.bench.notify import SETTINGS
from tests.pagers import WALL, incident, resolved
from watchdog.model import Incident, State, Transition
from watchdog.notify.notifiers import Notifiers
from watchdog.settings.model import load
from watchdog.state.store import FILE_NAME, Store

COUNTS = (10, 100, 1000)
INTERVAL_SECONDS = 5.0
INTERVALS = 6


def target_seconds(targets: int, directory: Path) -> dict[str, float]:
    """CPU a target of an interval in which all begin to fire, of one in which they go on, and of one that ends all."""
    notifiers = Notifiers(load(None, SETTINGS, {}))
    firing = [incident(target=f"gpu-{number}") for number in range(targets)]
    over = [resolved(WALL + 100, target=f"gpu-{number}") for number in range(targets)]
    with closing(Store(directory / FILE_NAME, interval_seconds=INTERVAL_SECONDS)) as store:
        store.open(WALL)

        def interval(number: int, incidents: list[Incident], before: State | None) -> float:
            at, wall = number * INTERVAL_SECONDS, WALL + number * INTERVAL_SECONDS
            began = time.process_time()
            for each in incidents:
                if before is not each.state:
                    store.record([Transition(each, before, wall)])
                store.checkpoint([each], wall, at, [each.key.target])
                notifiers.observe([each], at, wall, {each.key} if each.state is State.FIRING else ())
            return (time.process_time() - began) / targets

        begin = interval(0, firing, State.PENDING)
        goes_on = min(interval(number, firing, State.FIRING) for number in range(1, INTERVALS))
        return {"begins": begin, "goes on": goes_on, "ends": interval(INTERVALS, over, State.FIRING)}


def main() -> None:
    """Print the cost a target for few and for many targets: they are alike where a storm stays linear."""
    print("an interval in which every target fires, CPU a target: state on disk, an Alertmanager, a webhook")
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as name:
            parts = target_seconds(count, Path(name)).items()
            told = "  ".join(f"{what} {seconds * 1e6:5.0f} us" for what, seconds in parts)
            print(f"  {count:4} targets  {told}")


if __name__ == "__main__":
    main()
