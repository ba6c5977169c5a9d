"""`python -m tests.bench.targets`: what a round over 1, 10 and 100 targets costs, the request to each included."""

import time
from contextlib import ExitStack

from tests.bench.step import pages
from watchdog.replay.demo_server import ReplayServer
from watchdog.rule.in_force import load_rules
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.service.watch import Watch
from watchdog.settings.model import Settings, load

COUNTS = (1, 10, 100)
ROUNDS = 6
WARM_ROUNDS = 3


def round_seconds(settings: Settings) -> float:
    """CPU of this process for one cycle of every target, once warm; both ends of each request are in it."""
    rules = load_rules(settings.rules)
    with ExitStack() as stack:
        watches = []
        for target, endpoint in settings.target_list():
            watch = Watch(target, Fetcher(endpoint, FetchLimits()), rules, lambda _: None)
            stack.callback(watch.close)
            watches.append(watch)
        spent = []
        for _ in range(WARM_ROUNDS + ROUNDS):
            began = time.process_time()
            for watch in watches:
                watch.cycle()
            spent.append(time.process_time() - began)
    return sum(spent[WARM_ROUNDS:]) / ROUNDS


def main() -> None:
    """Print the cost a round and a target."""
    print("a cycle of every target, CPU with both ends of the request")
    with ReplayServer(pages("h200-healthy"), speed=1000) as server:
        for count in COUNTS:
            urls = [{"name": f"gpu-{number}", "url": f"{server.url}?{number}"} for number in range(count)]
            seconds = round_seconds(load(None, {"targets": urls}, {}))
            print(
                f"  {count:4} targets  {seconds * 1e3:8.1f} ms a round, {seconds * 1e3 / count:.2f} ms each"
            )


if __name__ == "__main__":
    main()
