"""Watched from the middle of an incident on, or of a calm time: no calm stretch was ever seen.

Causes are told from what is known without a past, or from the averages that the server's counters hold since its start.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lives.simulated_life import Life
from tests.lives.weeks import alarms
from tests.places import RECORDINGS
from tests.watching import diagnosis, shipped_rules, watch
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Incident, Scrape, Target
from watchdog.replay.replay import replay
from watchdog.replay.score import Limits, Outcome, PhaseScore, score
from watchdog.scrape.recording import Phase, read, thin

FILES = sorted(RECORDINGS.glob("*.jsonl.xz"))
MISSED_SECONDS = 20.0
"""How much of each phase was over when the watch began."""
UNTOLD = {
    "long-prompts": "25 requests since the start say little of what is usual",
    "prefix-cache-evicted": "a third of the prompt tokens were ever found: no cache that was worth much broke",
}


def middles(path: Path, interval_seconds: float) -> Iterator[tuple[Phase, list[Scrape]]]:
    """What is left of each phase that goes on for long enough to be judged, and its scrapes."""
    recording, scrapes = read(path)
    pages = list(scrapes)
    for phase in recording.phases:
        left = replace(phase, start=phase.start + MISSED_SECONDS)
        if left.end - left.start >= Limits().name_within_seconds:
            inside = (one for one in pages if left.start <= one.wall < left.end)
            yield left, list(thin(inside, interval_seconds))


def judged(path: Path, interval_seconds: float = 5.0) -> list[PhaseScore]:
    known = [rule.id for rule in shipped_rules().rules]
    scores: list[PhaseScore] = []
    for phase, scrapes in middles(path, interval_seconds):
        told = replay(Target(path.name, ""), iter(scrapes), shipped_rules())
        scores += score(path.name.removesuffix(".jsonl.xz"), [phase], told.timeline, known)
    return scores


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_what_was_under_way_before_the_watch_is_named_and_calm_is_quiet(path: Path) -> None:
    bad = {Outcome.MISSED, Outcome.FALSE_ALARM}
    untold = {one.recording for one in judged(path) if one.outcome in bad}
    assert untold == UNTOLD.keys() & {path.name.removesuffix(".jsonl.xz")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_calm_that_was_never_seen_before_is_quiet_at_a_slow_pace(path: Path) -> None:
    assert [one for one in judged(path, 15.0) if one.outcome is Outcome.FALSE_ALARM] == []


def test_a_watch_that_begins_at_any_time_of_a_simulated_day_raises_no_false_alarm() -> None:
    life = Life(3, hours=2.0, faults=False)
    watches, begun, alarmed = list[tuple[float, TargetDiagnosis]](), 0, list[str]()
    for moment in life.moments(10.0, 0.0):
        at = moment.scrape.at
        if at % 150 < 10 and at > 900:
            watches.append((at, diagnosis()))
            begun += 1
        watches = [one for one in watches if at - one[0] <= 120]
        seen = [one.observe(moment.scrape) for _, one in watches]
        if not moment.felt:
            alarmed += [incident.key.rule for one in seen for incident in alarms(one)]
    assert begun > 35
    assert alarmed == []


def cause(recording: str, rule: str) -> Incident:
    """What is first said of a cause that leads from the middle of a recording's incident on."""
    *_, (_, scrapes) = middles(RECORDINGS / f"{recording}.jsonl.xz", 5.0)
    snapshots = watch(scrapes)
    return next(
        one for seen in snapshots for one in seen.firing if one.key.rule == rule and one.key == seen.lead
    )


def test_an_average_since_the_start_is_called_one() -> None:
    told = cause("h200-prefix-cache-ineffective", "prefix-cache-ineffective").cause
    assert "only 0% of the" in told
    assert "(before: 63%)" in told
    assert told.endswith("The comparison is with the average of the 497 requests since the server started.")


def test_what_needs_no_past_does_not_speak_of_one() -> None:
    assert "since the server started" not in cause("h200-kv-pool-exhausted", "kv-pool-exhausted").cause
