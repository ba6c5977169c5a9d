"""Signals of the past minutes, looked up when somebody asks, agree with what was said at the time."""

import pytest

from tests.places import RECORDINGS
from tests.watching import diagnosis
from watchdog.diagnosis.hindsight import MOST_MOMENTS, hindsight
from watchdog.model import Subject
from watchdog.scrape.recording import read, thin

STALLS = "itl_stall_ratio"


def test_looking_back_finds_what_the_evidence_said_then() -> None:
    one = diagnosis("rag")
    said: dict[float, float] = {}
    for scrape in thin(read(RECORDINGS / "prefill-interference.jsonl.xz")[1], 5):
        for incident in one.observe(scrape).incidents:
            for row in incident.evidence:
                # Of a condition that has cleared it is what held last.
                if STALLS in row.values and not incident.is_cleared and incident.resolved_at is None:
                    said[scrape.at] = row.values[STALLS] or 0.0
    [engine] = one.remembered().subjects()
    found = hindsight(one.remembered(), Subject("rag", *engine), [STALLS, "no_such_signal", "batch_jobs"])
    assert set(found) == {STALLS}
    moments = dict(found[STALLS])
    both = said.keys() & moments.keys()
    assert len(both) > 5
    assert {at: moments[at] for at in both} == pytest.approx({at: said[at] for at in both})
    # Before the onset there was nothing of the kind.
    assert min(value for value in moments.values() if value is not None) == 0.0


def test_it_costs_as_many_looks_as_a_picture_has_room_for() -> None:
    one = diagnosis()
    for scrape in thin(read(RECORDINGS / "healthy.jsonl.xz")[1], 1):
        last = one.observe(scrape)
    [engine] = one.remembered().subjects()
    moments = hindsight(one.remembered(), Subject("server", *engine), ["itl_p50_seconds"])["itl_p50_seconds"]
    assert MOST_MOMENTS / 2 <= len(moments) < 2 * MOST_MOMENTS
    assert moments[-1] == (last.at, last.readings[0].values["itl_p50_seconds"])
    assert hindsight(diagnosis().remembered(), Subject("server"), ["itl_p50_seconds"]) == {
        "itl_p50_seconds": []
    }
