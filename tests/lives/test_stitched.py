"""Lives stitched from recordings of real servers in random orders: the past of a server must not mislead."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest

from tests.lives.stitched import stitched
from tests.places import RECORDINGS
from tests.watching import shipped_rules
from watchdog.model import Target
from watchdog.replay.replay import replay
from watchdog.replay.score import Outcome, PhaseScore, score
from watchdog.scrape.recording import read, thin

SEEDS = (1, 2)
PARTS = 5


@cache
def groups() -> tuple[tuple[Path, ...], ...]:
    """Recordings of servers with the same version and flags."""
    alike: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(RECORDINGS.glob("*.jsonl.xz")):
        meta = read(path)[0].meta
        alike[f"{meta.get('vllm_version')} {meta.get('flags')}"].append(path)
    return tuple(tuple(paths) for paths in alike.values() if len(paths) > 1)


def orders(seed: int) -> list[tuple[Path, ...]]:
    """One life of each group, in an order that the seed picks."""
    random = Random(seed)
    return [tuple(random.sample(paths, min(PARTS, len(paths)))) for paths in groups()]


def judged(paths: Sequence[Path], interval_seconds: float) -> tuple[PhaseScore, ...]:
    phases, scrapes = stitched(paths)
    told = replay(Target("life", ""), thin(scrapes, interval_seconds), shipped_rules())
    return score("life", phases, told.timeline, [rule.id for rule in shipped_rules().rules])


@pytest.mark.parametrize("seed", SEEDS)
def test_causes_are_named_and_calm_is_quiet_whatever_came_before(seed: int) -> None:
    scores = [one for paths in orders(seed) for one in judged(paths, 5)]
    assert [one for one in scores if one.outcome in {Outcome.MISSED, Outcome.FALSE_ALARM}] == []
    causes = [one for one in scores if one.outcome is Outcome.NAMED]
    assert sum(bool(one.misled_by) for one in causes) <= 0.1 * len(causes) + 1


def test_calm_is_quiet_at_a_slow_pace_too() -> None:
    scores = [one for paths in orders(SEEDS[0]) for one in judged(paths, 15)]
    assert [one for one in scores if one.outcome is Outcome.FALSE_ALARM] == []
