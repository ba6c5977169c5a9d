"""The shipped rules, held to recordings of real servers: every labelled cause leads, every quiet phase is quiet."""

from pathlib import Path

import pytest

from tests.places import RECORDINGS
from tests.watching import shipped_rules
from watchdog.model import Target
from watchdog.replay.replay import replay
from watchdog.replay.score import Outcome, PhaseScore, score
from watchdog.scrape.recording import read, thin

FILES = sorted(RECORDINGS.glob("*.jsonl.xz"))


def judged(path: Path, interval_seconds: float) -> tuple[PhaseScore, ...]:
    recording, scrapes = read(path)
    told = replay(Target(recording.name, ""), thin(scrapes, interval_seconds), shipped_rules())
    known = [rule.id for rule in shipped_rules().rules]
    return score(recording.name, recording.phases, told.timeline, known)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_each_phase_is_named_or_quiet_at_the_usual_interval(path: Path) -> None:
    bad = {Outcome.MISSED, Outcome.FALSE_ALARM, Outcome.NO_SUCH_RULE}
    assert [one for one in judged(path, 5) if one.outcome in bad] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_no_quiet_phase_alarms_at_finer_and_coarser_intervals(path: Path) -> None:
    for interval_seconds in (2, 15):
        assert [one for one in judged(path, interval_seconds) if one.outcome is Outcome.FALSE_ALARM] == []


def test_two_replays_say_the_same() -> None:
    path = next(path for path in FILES if path.name.startswith("h200-kv-pool-exhausted"))
    target = Target("same", "")
    first, second = (replay(target, thin(read(path)[1], 5), shipped_rules()) for _ in range(2))
    assert first.timeline == second.timeline
    assert repr(first.episodes) == repr(second.episodes)
