"""What is kept and shown of each recording: no judge contradicts another, and what is over keeps its story."""

from collections import defaultdict
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from tests.lives.test_recordings import FILES
from tests.watching import shipped_rules, watch
from watchdog.model import Key, Snapshot, State
from watchdog.scrape.recording import read, thin
from watchdog.state.store import Store

by_recording = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))


@cache
def story(path: Path) -> tuple[Snapshot, ...]:
    """What is known after each scrape, five seconds apart."""
    return tuple(watch(thin(read(path)[1], 5)))


@by_recording
def test_what_is_over_is_kept_with_the_tree_it_had_while_it_fired(path: Path) -> None:
    symptoms: defaultdict[Key, set[str]] = defaultdict(set)
    causes: defaultdict[Key, set[str]] = defaultdict(set)
    with closing(Store(None)) as store:
        store.open(0.0)
        for snapshot in story(path):
            for incident in snapshot.firing:
                symptoms[incident.key].update(incident.symptoms)
                causes[incident.key].update(incident.explained_by)
            store.record(snapshot.transitions)
            store.checkpoint(snapshot.incidents, snapshot.wall, snapshot.at, [snapshot.target.name])
            for over in [
                each.incident for each in snapshot.transitions if each.incident.state is State.RESOLVED
            ]:
                if over.firing_since is not None:
                    [kept] = [each for each in store.query(state=State.RESOLVED) if each.key == over.key][:1]
                    assert set(kept.symptoms) == symptoms.pop(over.key, set())
                    assert set(kept.explained_by) == causes.pop(over.key, set())


@by_recording
def test_each_change_is_kept_as_the_page_shows_it(path: Path) -> None:
    for snapshot in story(path):
        shown = {(each.key, each.state): each for each in snapshot.incidents}
        for change in snapshot.transitions:
            incident = change.incident
            assert incident == shown.get((incident.key, incident.state), incident)
            # What never fired is gone at its end; everything else is there to be seen.
            assert (incident.key, incident.state) in shown or incident.firing_since is None


@by_recording
def test_no_lead_contradicts_what_is_said_to_bind(path: Path) -> None:
    for snapshot in story(path):
        if snapshot.lead is None:
            continue
        rule = shipped_rules().find(snapshot.lead.rule)
        assert rule is not None
        if rule.limit is None:
            continue
        about = [one for one in snapshot.readings if snapshot.lead[2:] in {one.subject[1:], ("", "")}]
        assert {one.limit for one in about} <= {rule.limit}


def test_every_limit_that_a_recording_shows_is_named_at_some_scrape() -> None:
    seen = {one.limit for path in FILES for snapshot in story(path) for one in snapshot.readings}
    assert seen >= {"none", "sequences", "token_budget", "kv_pool", "deferred", "compute", "stalled"}
