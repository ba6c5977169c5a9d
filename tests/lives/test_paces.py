"""The shipped rules on pages as seldom as others scrape them: what is named, how soon, and that calm stays quiet."""

import re
from functools import cache
from statistics import median

import pytest

from tests.places import DOCS, RECORDINGS
from tests.watching import shipped_rules
from watchdog.model import Target
from watchdog.replay.replay import replay
from watchdog.replay.score import Limits, Outcome, PhaseScore, score
from watchdog.scrape.recording import read, thin

PACES_SECONDS = (15, 30, 60)
ROW = re.compile(r"^\| (\d+) s \| (\d+) of (\d+) \| (\d+) s \| (\d+) s \| (\d+) of (\d+) \|$", re.MULTILINE)


@cache
def judged(pace_seconds: int) -> tuple[PhaseScore, ...]:
    """Every phase of every recording; a cause may take four scrapes, and an alarm three to go."""
    limits = Limits(
        name_within_seconds=max(45, 4 * pace_seconds), forgive_after_seconds=max(30, 3 * pace_seconds)
    )
    known = [rule.id for rule in shipped_rules().rules]
    found: list[PhaseScore] = []
    for path in sorted(RECORDINGS.glob("*.jsonl.xz")):
        recording, scrapes = read(path)
        told = replay(Target(recording.name, ""), thin(scrapes, pace_seconds), shipped_rules())
        found += score(recording.name, recording.phases, told.timeline, known, limits)
    return tuple(found)


@pytest.mark.parametrize("pace_seconds", PACES_SECONDS)
def test_no_quiet_phase_alarms_at_any_pace(pace_seconds: int) -> None:
    assert [each for each in judged(pace_seconds) if each.outcome is Outcome.FALSE_ALARM] == []


@pytest.mark.parametrize("pace_seconds", PACES_SECONDS)
def test_a_pace_costs_no_more_than_the_documents_tell(pace_seconds: int) -> None:
    rows = ROW.findall((DOCS / "from-a-prometheus.md").read_text())
    [told] = [tuple(map(int, row[1:])) for row in rows if int(row[0]) == pace_seconds]
    named, causes, middle, longest, *calm = figures(pace_seconds)
    assert (causes, *calm) == (told[1], *told[4:])
    assert named >= told[0]
    assert middle <= told[2]
    assert longest <= told[3]


def figures(pace_seconds: int) -> tuple[int, ...]:
    """Causes named, causes, the median and the longest time to name one, quiet phases that were quiet, quiet phases."""
    phases = judged(pace_seconds)
    causes = [each for each in phases if each.outcome in {Outcome.NAMED, Outcome.MISSED}]
    after = [each.named_after_seconds for each in causes if each.outcome is Outcome.NAMED]
    seconds = [each for each in after if each is not None]
    calm = [each for each in phases if each.outcome in {Outcome.QUIET, Outcome.FALSE_ALARM}]
    quiet = sum(each.outcome is Outcome.QUIET for each in calm)
    return len(after), len(causes), round(median(seconds)), round(max(seconds)), quiet, len(calm)
