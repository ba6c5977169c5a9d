"""`python -m tests.bench.step`: CPU from a scraped page to the verdict, without the HTTP request."""

import time
from collections.abc import Sequence

from tests.places import RECORDINGS
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Scrape, Target
from watchdog.rule.in_force import load_rules
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import RuleSettings

NAMES = ("h200-healthy", "h200-prefill-interference", "kv-pool-exhausted", "dp-imbalance")
INTERVAL_SECONDS = 5.0
ROUNDS = 5
# Past the first scrapes, which meet every series for the first time and have no history to read.
WARM_AFTER = 8


def pages(name: str) -> list[Scrape]:
    """A recording as it would be scraped."""
    _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    return list(thin(scrapes, INTERVAL_SECONDS))


def step_seconds(scrapes: Sequence[Scrape]) -> float:
    """Mean CPU of one warm step; the best of several rounds."""
    rules = load_rules(RuleSettings())
    best = float("inf")
    for _ in range(ROUNDS):
        diagnosis = TargetDiagnosis(Target("bench", "http://bench/metrics"), rules)
        for scrape in scrapes[:WARM_AFTER]:
            diagnosis.observe(scrape)
        began = time.process_time()
        for scrape in scrapes[WARM_AFTER:]:
            diagnosis.observe(scrape)
        best = min(best, (time.process_time() - began) / (len(scrapes) - WARM_AFTER))
    return best


def main() -> None:
    """Print the cost of a step on several kinds of page."""
    print("from a page to the verdict, CPU of one step")
    for name in NAMES:
        scrapes = pages(name)
        print(f"  {name:28} {step_seconds(scrapes) * 1e3:6.2f} ms ({len(scrapes[-1].body) / 1000:.0f} kB)")


if __name__ == "__main__":
    main()
