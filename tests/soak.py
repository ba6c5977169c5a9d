"""`python -m tests.soak`: a day and more of cycles on a fake clock, with targets and series that come and go.

Prints memory, open files and threads over time, and ends with 1 where any of them grows.
"""

import gc
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

from tests.pagers import Pager
from tests.places import RECORDINGS
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.http.endpoint import Endpoint
from watchdog.model import Incident, Scrape, Snapshot, Target
from watchdog.notify.notifiers import Notifiers
from watchdog.replay.demo_server import ReplayServer
from watchdog.report.bodies import diagnosis_body
from watchdog.report.metrics import Figures, Metrics
from watchdog.report.text import diagnosis_text
from watchdog.rule.in_force import load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import load
from watchdog.state.store import Store

# Between them incidents come and go, scrapes fail, and a server restarts.
NAMES = ("kv-pool-exhausted", "restart", "dp-imbalance", "h200-prefill-interference")
CYCLES = 10_000
INTERVAL_SECONDS = 5.0
TARGETS = 4
TARGET_LIVES_CYCLES = 150
MODEL_LIVES_CYCLES = 40
LOOKED_AT_EVERY_CYCLES = 20
FETCHED_EVERY_CYCLES = 10
SAMPLED_EVERY_CYCLES = 250
# Caches fill and the allocator finds its shape before anything is held against it.
WARM_SHARE = 0.4
MOST_BYTES_A_CYCLE = 500.0
BEGIN_WALL = 1_790_000_000.0


@dataclass(frozen=True)
class Sample:
    """What the process held after so many cycles."""

    cycle: int
    resident_bytes: int
    objects: int
    files: int
    threads: int


class House:
    """A service without its clock: diagnoses, store, notifiers, metrics and texts, driven by numbers."""

    def __init__(self, folder: Path, pager: Pager, server: ReplayServer, stack: ExitStack) -> None:
        settings = load(None, {"alertmanager.urls": [pager.url]}, os.environ)
        self.rules: RuleSet = load_rules(settings.rules)
        self._store = stack.enter_context(closing(Store(folder / "incidents.sqlite", max_incidents=500)))
        self._store.open(BEGIN_WALL)
        self._notifiers = Notifiers(settings, self._store.ledger)
        self._notifiers.run()
        stack.callback(self._notifiers.stop, 1.0)
        self._fetcher = stack.enter_context(closing(Fetcher(Endpoint(server.url), FetchLimits())))
        self._diagnoses: dict[str, TargetDiagnosis] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._registry = Metrics(self)

    def targets(self) -> list[Target]:
        """The targets of now."""
        return [diagnosis.target for diagnosis in self._diagnoses.values()]

    def snapshots(self) -> dict[str, Snapshot]:
        """Their last snapshots."""
        return self._snapshots

    def fleet_incidents(self) -> tuple[Incident, ...]:
        """None: one target knows nothing of another here."""
        return ()

    def figures(self) -> Figures:
        """What it counts of itself."""
        return Figures(notifications=self._notifiers.statistics())

    def step(self, name: str, scrape: Scrape) -> None:
        """One cycle of one target, as the service does it."""
        diagnosis = self._diagnoses.get(name)
        if diagnosis is None:
            diagnosis = self._diagnoses[name] = TargetDiagnosis(
                Target(name, f"http://{name}/metrics"), self.rules
            )
        snapshot = self._snapshots[name] = diagnosis.observe(scrape)
        self._store.record(snapshot.transitions)
        self._store.checkpoint(snapshot.incidents, snapshot.wall, snapshot.at, [name])
        standing = snapshot.standing
        self._notifiers.observe(standing.with_ended, snapshot.at, snapshot.wall, standing.pageable)

    def forget(self, name: str) -> None:
        """A target is watched no more."""
        self._diagnoses.pop(name, None)
        self._snapshots.pop(name, None)

    def look(self, wall: float) -> None:
        """What Prometheus and people ask for."""
        self._registry.text()
        body = diagnosis_body(self.targets(), self._snapshots, (), wall)
        body.model_dump_json()
        diagnosis_text(body)

    def fetch(self, at: float, wall: float) -> None:
        """A request over a real connection."""
        self._fetcher.fetch(at, wall)
        self._fetcher.server_info()


def pages() -> list[list[Scrape]]:
    """The recordings as they would be scraped."""
    stories = []
    for name in NAMES:
        _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
        stories.append(list(thin(scrapes, INTERVAL_SECONDS)))
    return stories


def renamed(scrape: Scrape, life: int, at: float, wall: float) -> Scrape:
    """The page of another model: every series is one that was never seen before."""
    body = re.sub(rb'model_name="[^"]*"', f'model_name="model-{life}"'.encode(), scrape.body)
    return Scrape(at, wall, scrape.took_seconds, scrape.status, body, scrape.failure, scrape.server_info)


def sample(cycle: int) -> Sample:
    """What this process holds now."""
    gc.collect()
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    files = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return Sample(cycle, int(found[1]) * 1024, len(gc.get_objects()), files, threading.active_count())


def live(cycles: int, sample_every: int = SAMPLED_EVERY_CYCLES) -> Iterator[Sample]:
    """Runs so many cycles, and tells now and then what is held."""
    stories = pages()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pager = stack.enter_context(Pager())
        server = stack.enter_context(ReplayServer(stories[0], speed=100))
        house = House(folder, pager, server, stack)
        for cycle in range(cycles):
            at = cycle * INTERVAL_SECONDS
            wall = BEGIN_WALL + at
            slot = cycle % TARGETS
            _cycle(house, stories[slot], cycle, at, wall)
            if cycle % LOOKED_AT_EVERY_CYCLES == 0:
                house.look(wall)
            if cycle % FETCHED_EVERY_CYCLES == 0:
                house.fetch(at, wall)
            if cycle % sample_every == 0:
                # The pager's own memory is none of ours.
                pager.posts.clear()
                pager.alerts.clear()
                pager.page_log.clear()
                yield sample(cycle)


def _cycle(house: House, story: list[Scrape], cycle: int, at: float, wall: float) -> None:
    slot, turn = cycle % TARGETS, cycle // TARGETS
    life = (cycle + slot * TARGET_LIVES_CYCLES // TARGETS) // TARGET_LIVES_CYCLES
    house.forget(f"gpu-{slot}-{life - 1}")
    scrape = story[turn % len(story)]
    house.step(f"gpu-{slot}-{life}", renamed(scrape, cycle // MODEL_LIVES_CYCLES, at, wall))


def growth(samples: list[Sample], held: Callable[[Sample], float]) -> float:
    """How much more is held a cycle, once warm."""
    warm = [each for each in samples if each.cycle >= samples[-1].cycle * WARM_SHARE]
    slope, _ = linear_regression([each.cycle for each in warm], [held(each) for each in warm])
    return slope


def main() -> int:
    """Prints the samples and what grows."""
    samples = []
    print("  cycle   resident    objects  files  threads")
    for each in live(CYCLES):
        samples.append(each)
        print(
            f"{each.cycle:7} {each.resident_bytes / 1e6:7.1f} MB {each.objects:10} {each.files:6} {each.threads:8}",
            flush=True,
        )
    a_cycle = growth(samples, lambda each: each.resident_bytes)
    print(f"resident memory grows by {a_cycle:.0f} bytes a cycle (at most {MOST_BYTES_A_CYCLE:.0f})")
    last, warm = samples[-1], samples[len(samples) // 2]
    steady = last.files <= warm.files + 2 and last.threads <= warm.threads
    print("open files and threads are steady" if steady else "open files or threads grow")
    return 0 if a_cycle <= MOST_BYTES_A_CYCLE and steady else 1


if __name__ == "__main__":
    sys.exit(main())
