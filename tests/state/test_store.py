"""The store: what survives a restart, what is shown of it, and what happens when the disk does not do its part."""

import fcntl
import json
import multiprocessing
import os
import resource
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings

from tests.pagers import WALL, incident, resolved
from watchdog.clock import Uptime, uptime
from watchdog.history.stretches import KEPT_SECONDS
from watchdog.model import EnginePast, Evidence, Incident, Key, Remedy, Severity, State, Subject, Transition
from watchdog.state import database
from watchdog.state import store as module
from watchdog.state.database import APPLICATION_ID, Mode
from watchdog.state.store import FILE_NAME, DayOf, Restored, Store

PENDING, FIRING, RESOLVED = State.PENDING, State.FIRING, State.RESOLVED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / FILE_NAME


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with closing(Store(path)) as opened:
        opened.open(WALL)
        yield opened


def change(one: Incident, before: State | None = None, at: float | None = None) -> Transition:
    moments = {PENDING: one.pending_since, FIRING: one.firing_since, RESOLVED: one.resolved_at}
    moment = moments[one.state] if at is None else at
    assert moment is not None
    return Transition(one, before, moment)


def began(rule: str = "kv-pool-exhausted", since: float = WALL, **others: str) -> list[Transition]:
    pending = incident(rule, PENDING, since=since, **others)  # type: ignore[arg-type]
    return [change(pending), change(incident(rule, since=since, **others), PENDING)]  # type: ignore[arg-type]


def reopened(path: Path, wall: float = WALL) -> Restored:
    with closing(Store(path)) as again:
        return again.open(wall)


def test_what_fired_goes_on_after_a_restart_as_it_was(store: Store, path: Path) -> None:
    store.record(began())
    store.checkpoint([incident()], WALL + 5, 5)
    store.close()
    restored = reopened(path, WALL + 15)
    assert restored.incidents == (incident(),)
    assert (restored.ended, restored.last_seen) == ((), WALL + 5)


def test_only_time_under_watch_counts_as_pending(store: Store, path: Path) -> None:
    pending = incident(state=PENDING)
    store.record([change(pending)])
    for second in range(0, 25, 5):
        store.checkpoint([replace(pending, held_seconds=float(second))], WALL - 5 + second, second)
    store.close()
    [restored] = reopened(path, WALL + 1800).incidents
    assert restored == replace(pending, pending_since=WALL + 1800 - 20, held_seconds=20.0)


def test_pending_time_goes_on_over_two_restarts(path: Path) -> None:
    pending = incident(state=PENDING)
    with closing(Store(path)) as first:
        first.open(WALL)
        first.record([change(pending)])
        first.checkpoint([replace(pending, held_seconds=7.0)], WALL + 7, 107)
    with closing(Store(path)) as second:
        [taken_up] = second.open(WALL + 60).incidents
        assert taken_up.held_seconds == 7
        # The steady clock of another boot says something else altogether.
        second.checkpoint([replace(taken_up, held_seconds=10.0)], WALL + 64, 6)
    [taken_up] = reopened(path, WALL + 70).incidents
    assert taken_up.held_seconds == 10


def test_what_the_book_counted_is_kept_and_not_counted_again(store: Store, path: Path) -> None:
    pending = incident(state=PENDING)
    store.record([change(pending)])
    for second in range(0, 625, 5):
        store.checkpoint([replace(pending, held_seconds=12.5)], WALL + second, second)
    store.close()
    assert [each.held_seconds for each in reopened(path, WALL + 630).incidents] == [12.5]


def test_what_fires_keeps_for_how_long_it_has_held(store: Store, path: Path) -> None:
    store.record([change(replace(incident(), held_seconds=30.0), PENDING)])
    store.close()
    assert [each.held_seconds for each in reopened(path, WALL + 5).incidents] == [30.0]


def test_after_more_than_an_hour_all_starts_afresh_and_the_end_is_known(store: Store, path: Path) -> None:
    store.record(began())
    store.record([change(incident("slow", PENDING))])
    store.checkpoint([incident(), incident("slow", PENDING)], WALL + 5, 5)
    store.close()
    restored = reopened(path, WALL + 5 + 3601)
    assert restored.incidents == ()
    assert restored.ended == (resolved(WALL + 5),)
    with closing(Store(path)) as again:
        again.open(WALL + 5 + 3700)
        assert [each.incident.state for each in again.timeline(incident().key)] == [PENDING, FIRING, RESOLVED]
        assert again.query(state=PENDING) == ()


@pytest.mark.parametrize("off", [86_400.0, -86_400.0, 40 * 86_400.0])
def test_a_clock_that_is_off_at_the_start_ends_nothing(off: float, path: Path) -> None:
    with closing(Store(path, uptime=lambda: Uptime(7, 1000.0))) as store:
        store.open(WALL)
        store.record(began())
        store.checkpoint([incident()], WALL + 5, 5)
    for up, kept in ((Uptime(7, 1010.0), 1), (Uptime(7, 4700.0), 0)):
        copy = path.with_name(f"{up.seconds}")
        shutil.copy(path, copy)
        with closing(Store(copy, uptime=lambda up=up: up)) as again:  # type: ignore[misc]
            assert len(again.open(WALL + 15 + off).incidents) == kept


@pytest.mark.parametrize("off", [86_400.0, -86_400.0, 40 * 86_400.0])
def test_a_clock_that_is_off_after_a_boot_ends_nothing(off: float, path: Path) -> None:
    with closing(Store(path, uptime=lambda: Uptime(7, 1000.0))) as store:
        store.open(WALL)
        store.record(began())
        store.checkpoint([incident()], WALL + 5, 5)
    with closing(Store(path, uptime=lambda: Uptime(8, 30.0))) as again:
        assert len(again.open(WALL + 60 + off).incidents) == 1


def test_a_clock_is_believed_once_the_machine_runs_for_a_while(path: Path) -> None:
    with closing(Store(path, uptime=lambda: Uptime(7, 1000.0))) as store:
        store.open(WALL)
        store.record(began())
        store.checkpoint([incident()], WALL + 5, 5)
    with closing(Store(path, uptime=lambda: Uptime(8, 700.0))) as again:
        assert again.open(WALL + 86_400).incidents == ()


DAY = 86_400.0


@given(
    strategies.lists(strategies.sampled_from([-DAY, 2 * DAY, 40 * DAY, 4000 * DAY]), max_size=4),
    strategies.booleans(),
)
@hypothesis_settings(max_examples=25, deadline=None)
def test_a_clock_that_is_ahead_for_a_while_deletes_no_history(offs: list[float], restarts: bool) -> None:
    at = 0.0

    def steady() -> float:
        return at

    with TemporaryDirectory() as folder:
        file = Path(folder) / "incidents.sqlite"
        store = Store(file, steady=steady)
        store.open(WALL)
        store.record(began("old"))
        store.record([change(resolved(WALL + 10, "old"), FIRING)])
        for number, off in enumerate([*offs, 0.0]):
            at += 60
            if restarts:
                store.close()
                store = Store(file, steady=steady)
                store.open(WALL + at + off)
            store.record(began(f"r{number}", since=WALL + at + off))
            store.checkpoint([], WALL + at + off, at)
        assert "old" in {each.key.rule for each in store.query()}
        at += 31 * DAY
        for _ in range(2):
            store.record(began(f"last{at}", since=WALL + at))
            at += DAY
        assert "old" not in {each.key.rule for each in store.query()}
        store.close()


def test_a_state_folder_that_is_deleted_is_made_again_with_all_that_was_in_it(
    store: Store, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.record(began())
    store.record([change(resolved(WALL + 10, "old", since=WALL), FIRING)])
    store.ledger("a").save({"x": "1"})
    shutil.rmtree(path.parent)
    for second in (60, 120):
        store.checkpoint([incident()], WALL + second, second)
    assert [each.msg for each in caplog.records].count("state_file_deleted") == 1
    assert (store.health.mode, store.warning) == (Mode.DISK, "")
    store.close()
    with closing(Store(path)) as again:
        assert again.open(WALL + 130).incidents == (incident(),)
        assert {each.key.rule for each in again.query()} == {"old", incident().key.rule}
        assert again.ledger("a").load() == {"x": "1"}


def test_a_state_folder_that_cannot_be_made_again_is_told(store: Store, path: Path) -> None:
    store.record(began())
    shutil.rmtree(path.parent)
    path.parent.write_text("a file in its place")
    store.checkpoint([incident()], WALL + 60, 60)
    assert store.health.mode is Mode.MEMORY
    assert store.warning
    assert store.query() == (incident(),)


def test_the_uptime_of_this_machine_goes_on() -> None:
    first, second = uptime(), uptime()
    assert first is not None
    assert second is not None
    assert (first.boot, first.seconds <= second.seconds) == (second.boot, True)


def test_what_a_predecessor_left_open_outlives_a_successor_that_came_too_soon(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_LOCK_SECONDS", 0.0)
    store.record(began("theirs"))
    store.ledger("pager").save({"theirs": "told"})
    with closing(Store(path)) as second:
        assert second.open(WALL + 5).incidents == ()
        second.record(began("ours", since=WALL + 5))
        store.close()
        monkeypatch.setattr(time, "monotonic", partial(lambda real: real() + 1000, time.monotonic))
        second.record(began("later", since=WALL + 6))
        assert second.health.mode is Mode.DISK
    with closing(Store(path)) as third:
        assert {each.key.rule for each in third.open(WALL + 9).incidents} == {"theirs", "ours", "later"}
        assert [each.incident.state for each in third.timeline(incident("theirs").key)] == [PENDING, FIRING]
        assert third.ledger("pager").load() == {"theirs": "told"}


def test_an_end_just_before_the_restart_is_handed_over_but_not_when_it_began_again(
    store: Store, path: Path
) -> None:
    for rule in ("ended", "again"):
        store.record(began(rule))
        store.record([change(resolved(WALL + 9, rule), FIRING)])
    store.record([change(incident("again", PENDING, since=WALL + 20))])
    store.checkpoint([incident("again", PENDING, since=WALL + 20)], WALL + 20, 20)
    store.close()
    restored = reopened(path, WALL + 25)
    assert restored.ended == (resolved(WALL + 9, "ended"),)
    assert [each.key.rule for each in restored.incidents] == ["again"]


def test_a_pending_incident_that_is_over_is_not_taken_up(store: Store, path: Path) -> None:
    one, other = incident("a", PENDING), incident("b", PENDING, target="gpu-1")
    third = incident("c", PENDING)
    store.record([change(one), change(other), change(third)])
    store.record([change(replace(third, state=RESOLVED, resolved_at=WALL), PENDING)])
    store.checkpoint([one, other], WALL, 0)
    store.checkpoint([], WALL + 5, 5, targets=["gpu-0"])
    store.close()
    assert [each.key.rule for each in reopened(path, WALL + 9).incidents] == ["b"]
    with closing(Store(path)) as again:
        again.open(WALL + 9)
        assert again.timeline(third.key) == ()


def test_what_belongs_to_nothing_known_ends_once() -> None:
    restored = Restored((incident("a"), incident("gone"), incident("b", PENDING, target="gone")))
    kept, ends = restored.split(lambda key: "gone" not in key, WALL + 9)
    assert [each.key.rule for each in kept] == ["a"]
    assert [(each.incident.key.rule, each.before, each.incident.resolved_at) for each in ends] == [
        ("gone", FIRING, WALL + 9),
        ("b", PENDING, WALL + 9),
    ]


def test_what_belongs_to_nothing_known_ends_no_sooner_than_it_began() -> None:
    """Also where the clock was set back since."""
    restored = Restored((incident("gone"), incident("gone-too", PENDING)))
    _, ends = restored.split(lambda _: False, WALL - 3600)
    assert [each.incident.resolved_at for each in ends] == [
        restored.incidents[0].firing_since,
        restored.incidents[1].pending_since,
    ]
    assert [each.at for each in ends] == [each.incident.resolved_at for each in ends]


def test_a_timeline_holds_each_change_with_its_evidence(store: Store) -> None:
    store.record(began())
    store.record([change(resolved(WALL + 60, value=0.4), FIRING)])
    store.record(began(since=WALL + 100))
    line = store.timeline("kv-pool-exhausted/gpu-0/m/0")
    assert [(each.before, each.incident.state, each.at) for each in line] == [
        (None, PENDING, WALL - 5),
        (PENDING, FIRING, WALL),
        (FIRING, RESOLVED, WALL + 60),
        (None, PENDING, WALL + 95),
        (PENDING, FIRING, WALL + 100),
    ]
    assert line[2].incident.evidence == (Evidence("kv > 0.75", {"kv": 0.4}, "kv (0.4) > 0.75"),)
    assert store.timeline(incident().key) == line
    assert store.timeline("no/such/key/0") == ()


def test_incidents_are_found_by_time_state_and_rule(store: Store) -> None:
    store.record(began("a"))
    store.record(began("b", since=WALL + 100))
    store.record([change(resolved(WALL + 200, "b", since=WALL + 100), FIRING)])
    store.record(began("c", since=WALL + 150))

    def rules(*arguments: object) -> list[str]:
        return [each.key.rule for each in store.query(*arguments)]  # type: ignore[arg-type]

    assert rules(None, None, None, 10) == ["b", "c", "a"]
    assert rules(WALL + 100, None, None, 10) == ["b", "c"]
    assert rules(None, FIRING, None, 10) == ["c", "a"]
    assert rules(None, None, "a", 10) == ["a"]
    assert rules(None, None, None, 1) == ["b"]
    assert rules(None, None, "a'; DROP TABLE incidents", 1) == []
    assert rules(None, None, None, -1) == []


def test_an_end_told_twice_is_kept_once_and_one_never_seen_is_kept(store: Store) -> None:
    store.record(began())
    end = change(resolved(WALL + 9), FIRING)
    store.record([end])
    store.record([end])
    assert len(store.query()) == 1
    store.record([change(resolved(WALL + 9, "unseen"), FIRING)])
    assert len(store.query()) == 2


def test_a_firing_incident_is_refreshed_now_and_then_and_made_known_if_it_is_not(
    store: Store, path: Path
) -> None:
    store.checkpoint([incident(value=0.5)], WALL, 0)
    store.checkpoint([incident(value=0.6)], WALL + 55, 55)
    assert store.query()[0].evidence[0].values == {"kv": 0.5}
    store.checkpoint([incident(value=0.7)], WALL + 60, 60)
    assert store.query()[0].evidence[0].values == {"kv": 0.7}
    # A reload with a longer `for` takes it back to pending, without a transition.
    store.checkpoint([incident(state=PENDING)], WALL + 65, 65)
    assert store.query()[0].state is PENDING


def test_what_is_old_or_too_much_goes_and_what_fires_stays(path: Path) -> None:
    with closing(Store(path, retention_days=1, max_incidents=3)) as store:
        store.open(WALL)
        store.record(began("fires"))
        for number in range(5):
            store.record(began(f"r{number}", since=WALL + number))
            store.record([change(resolved(WALL + 10 + number, f"r{number}", since=WALL + number), FIRING)])
        assert [each.key.rule for each in store.query()] == ["r4", "r3", "fires"]
        assert store.timeline(Key("r0", "gpu-0", "m", "0")) == ()
        day_later = WALL + 86400 + 14
        store.record([change(incident("later", since=day_later))])
        assert [each.key.rule for each in store.query()] == ["later", "r4", "fires"]
        for number in range(4):
            store.record([change(incident(f"more{number}", since=day_later))])
        assert len(store.query(state=FIRING)) == 3
        with closing(Store(path.with_name("other"))) as roomy:
            roomy.open(WALL)
    assert len(reopened(path, day_later).incidents) == 6


def test_a_lower_limit_is_reached_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PRUNED_AT_ONCE", 5)
    with closing(Store(path)) as store:
        store.open(WALL)
        for number in range(12):
            ended = resolved(WALL + 10 + number, f"r{number}", since=WALL + number)
            store.record([*began(f"r{number}", since=WALL + number), change(ended, FIRING)])
    counts = []
    with closing(Store(path, max_incidents=3)) as store:
        store.open(WALL + 60)
        for number in range(4):
            store.record(began(f"new{number}", since=WALL + 60))
            with closing(sqlite3.connect(path)) as reader:
                [[count]] = reader.execute("SELECT count(*) FROM incidents")
            counts.append(count)
        assert len(store.query(state=FIRING)) == 3
    assert counts == [8, 4, 3, 4]


def test_a_ledger_is_each_senders_own_and_survives(store: Store, path: Path) -> None:
    store.ledger("a").save({"x": "1", "y": "2"})
    store.ledger("b").save({"x": "3"})
    store.ledger("a").save({"y": None, "x": "4"})
    store.ledger("a").save({})
    store.close()
    with closing(Store(path)) as again:
        again.open(WALL)
        assert again.ledger("a").load() == {"x": "4"}
        assert again.ledger("b").load() == {"x": "3"}


# What it costs.


def statements(store: Store, path: Path) -> list[str]:
    """Fills with what is asked of a connection from now on."""
    asked: list[str] = []
    connection = store._database._connection
    assert connection is not None
    connection.set_trace_callback(asked.append)
    return asked


def test_nothing_that_a_step_asks_reads_a_whole_table(store: Store, path: Path) -> None:
    """At ten thousand old incidents each such reading is more than all else that a step does."""
    store.record(began("first"))
    asked = statements(store, path)
    store.record(began())
    store.record([change(incident("slow", PENDING)), change(incident("near", PENDING))])
    store.checkpoint([incident(), incident("slow", PENDING), incident("unseen")], WALL + 5, 5, ["gpu-0"])
    store.checkpoint([incident(), incident("slow", PENDING)], WALL + 10, 10, ["gpu-0", "gpu-1"])
    store.record([change(resolved(WALL + 9), FIRING), change(resolved(WALL + 9, "unseen"), FIRING)])
    store.checkpoint([], WALL + 100, 100, ["gpu-0"])
    store._max_incidents = 1
    store.record(began("last"))
    store.ledger("a").save({"x": "1", "y": None})
    store.query(WALL, FIRING)
    store.query(WALL, rule="first")
    store.query()
    with closing(sqlite3.connect(path)) as other:
        plans = {
            each: [row[3] for row in other.execute(f"EXPLAIN QUERY PLAN {each}")]
            for each in asked
            if each.startswith(("SELECT", "INSERT", "UPDATE", "DELETE"))
        }
    assert len(plans) > 15
    # An index over what is pending is as short as what is pending; a limit ends a reading in the order of an index.
    scans = {
        each: plan
        for each, plan in plans.items()
        if "SCAN" in str(plan) and "pending_incidents" not in str(plan) and "LIMIT" not in each
    }
    assert scans == {}
    # Rows of the same moment may be sorted, all of them never.
    assert "TEMP B-TREE FOR ORDER BY" not in str(plans)


def test_an_earlier_file_gets_the_indexes_that_it_lacks(store: Store, path: Path) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.executescript(
            "DROP INDEX pending_incidents; DROP INDEX firing_incidents; DROP INDEX incidents_by_rule"
        )
    reopened(path)
    with closing(sqlite3.connect(path)) as other:
        indexes = {row[0] for row in other.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert indexes >= {"pending_incidents", "firing_incidents", "incidents_by_rule"}


@pytest.fixture
def patient(path: Path) -> Iterator[Store]:
    """One that writes how incidents stand each five seconds."""
    with closing(Store(path, interval_seconds=5)) as opened:
        opened.open(WALL)
        yield opened


def killed(store: Store) -> None:
    """Lets go of the file as a kill does: nothing is written any more."""
    store._database.close()


def test_the_steps_of_all_targets_are_one_transaction_an_interval(patient: Store, path: Path) -> None:
    names = [f"t{number}" for number in range(100)]
    asked = statements(patient, path)
    for second in range(0, 300, 5):
        for position, name in enumerate(names):
            firing, pending = incident(target=name), incident("slow", PENDING, target=name)
            at = second + position / 20
            patient.checkpoint([firing, pending], WALL + at, at, [name])
    assert 60 <= asked.count("COMMIT") <= 1 + 60 / 0.9


def test_calm_targets_write_once_a_minute_that_they_are_watched(patient: Store, path: Path) -> None:
    asked = statements(patient, path)
    for second in range(0, 300, 5):
        patient.checkpoint([], WALL + second, second, ["gpu-0"])
    assert asked.count("COMMIT") == 5
    patient.close()
    assert reopened(path).last_seen == WALL + 295


def test_what_is_only_to_be_known_is_seldom_written_again_and_at_once_where_it_stands_otherwise(
    patient: Store, path: Path
) -> None:
    info = incident(severity=Severity.INFO)
    patient.record([change(info)])
    patient.checkpoint([info], WALL, 0, ["gpu-0"])
    asked = statements(patient, path)
    for second in range(5, 65, 5):
        patient.checkpoint([replace(info, cause=str(second))], WALL + second, second, ["gpu-0"])
    assert sum("UPDATE incidents" in each for each in asked) <= 1
    patient.checkpoint([replace(info, explained_by=("cause",))], WALL + 70, 70, ["gpu-0"])
    assert patient.query()[0].explained_by == ("cause",)


def test_a_kill_loses_what_the_last_interval_told_and_no_transition(patient: Store, path: Path) -> None:
    pending = incident("slow", PENDING)
    patient.record(began())
    patient.record([change(pending)])
    for second in range(13):
        held = replace(pending, held_seconds=float(second))
        patient.checkpoint([incident(), held], WALL + second, second, ["gpu-0"])
    patient.record([change(incident("new", PENDING))])
    killed(patient)
    by_rule = {each.key.rule: each for each in reopened(path, WALL + 13).incidents}
    assert by_rule.keys() == {"kv-pool-exhausted", "slow", "new"}
    assert by_rule["slow"].held_seconds >= 12 - 5


def test_a_step_never_overtakes_the_transition_after_it(patient: Store, path: Path) -> None:
    """What one target said before is written when another one's step is due."""
    patient.record([*began("ends"), change(incident("fires", PENDING))])
    patient.checkpoint([], WALL, 0, ["gpu-1"])
    patient.checkpoint([incident("ends"), incident("fires", PENDING)], WALL + 1, 1, ["gpu-0"])
    patient.record([change(resolved(WALL + 2, "ends"), FIRING)])
    patient.record([change(incident("fires"), PENDING), change(incident("new", PENDING))])
    patient.checkpoint([], WALL + 6, 6, ["gpu-1"])
    killed(patient)
    states = {each.key.rule: each.state for each in reopened(path, WALL + 7).incidents}
    assert states == {"fires": FIRING, "new": PENDING}


events = strategies.lists(
    strategies.tuples(
        strategies.sampled_from("abc"), strategies.sampled_from(["begin", "end", "near", "step"])
    ),
    max_size=30,
)


@given(events)
@hypothesis_settings(deadline=None, max_examples=60)
def test_it_knows_how_many_it_keeps_without_counting_again(happened: list[tuple[str, str]]) -> None:
    with closing(Store(None, max_incidents=4, interval_seconds=3)) as store:
        store.open(WALL)
        for second, (rule, event) in enumerate(happened):
            wall = WALL + second
            if event == "begin":
                store.record([change(incident(rule, since=wall))])
            elif event == "end":
                store.record([change(resolved(wall, rule, since=wall), FIRING)])
            elif event == "near":
                store.record([change(incident(rule, PENDING, since=wall))])
            store.checkpoint([incident(rule, PENDING, since=wall)], wall, second, ["gpu-0"])
            rows = store._rows("SELECT count(*) FROM incidents", ())
            assert store._count in {None, rows[0][0]}


def test_without_a_path_it_works_in_memory_and_says_so() -> None:
    with closing(Store(None)) as store:
        assert store.open(WALL) == Restored()
        store.record(began())
        assert store.query() == (incident(),)
        assert (store.health.mode, store.health.warning) == (Mode.MEMORY, "no state directory is set")
    assert store.query() == ()
    store.record(began())


def test_many_threads_may_use_it(store: Store) -> None:
    def work(number: int) -> None:
        for step in range(20):
            store.record(began(f"r{step}", target=f"t{number}"))
            store.checkpoint([incident(f"r{step}", target=f"t{number}")], WALL + step, step)
            store.query(limit=5)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.query()) == 80
    assert store.health.mode is Mode.DISK


@pytest.mark.parametrize("content", [b"garbage" * 999, b"", b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_none_is_set_aside_or_taken_over(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with closing(Store(path)) as store:
        assert store.open(WALL) == Restored()
        store.record(began())
        assert store.health.mode is Mode.DISK
        aside = store.health.set_aside
        if content:
            assert aside is not None
            assert aside.read_bytes() == content
            assert aside.name.startswith(FILE_NAME + ".aside-")
        else:
            assert aside is None
    assert reopened(path).incidents == (incident(),)


def test_a_file_whose_inside_is_broken_or_cut_is_set_aside_with_its_log(store: Store, path: Path) -> None:
    for number in range(50):
        store.record(began(f"r{number}"))
    store.close()
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:5000] + b"\x55" * 4000 + whole[9000:]):
        path.write_bytes(broken)
        path.with_name(path.name + "-wal").write_bytes(b"left behind")
        with closing(Store(path)) as again:
            assert again.open(WALL).incidents == ()
            assert again.health.set_aside is not None
            assert again.health.set_aside.read_bytes() == broken
        assert reopened(path) == Restored()


@pytest.mark.parametrize(
    ("pragma", "why"),
    [
        (f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 99", "version 99"),
        ("PRAGMA application_id = 7", "another program's database"),
        ("PRAGMA application_id = 0", "another program's database"),
    ],
)
def test_a_foreign_or_newer_database_is_set_aside_unharmed(
    path: Path, pragma: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as foreign:
        foreign.executescript(f"CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1); {pragma}")
    with closing(Store(path)) as store:
        store.open(WALL)
        aside = store.health.set_aside
        assert aside is not None
    assert why in str([vars(record) for record in caplog.records])
    with closing(sqlite3.connect(aside)) as foreign:
        assert foreign.execute("SELECT x FROM theirs").fetchall() == [(1,)]


def turned_into_version_1(path: Path, *more: str) -> None:
    """Version 1 differs in the name of one table, and knows no past of engines."""
    with closing(sqlite3.connect(path)) as older:
        older.executescript(
            ";".join(
                ["DROP TABLE pasts", "ALTER TABLE moments RENAME TO facts", "PRAGMA user_version = 1", *more]
            )
        )


def test_a_database_of_an_older_schema_is_upgraded_with_all_that_it_holds(store: Store, path: Path) -> None:
    store.record(began())
    store.checkpoint([incident()], WALL + 5, 5)
    store.close()
    turned_into_version_1(path)
    restored = reopened(path, WALL + 15)
    assert (restored.incidents, restored.last_seen) == ((incident(),), WALL + 5)
    with closing(sqlite3.connect(path)) as upgraded:
        assert upgraded.execute("PRAGMA user_version").fetchone() == (database.SCHEMA_VERSION,)
    assert reopened(path, WALL + 20).incidents == (incident(),)


def test_an_older_database_with_tables_of_others_is_set_aside_as_it_was(store: Store, path: Path) -> None:
    store.close()
    turned_into_version_1(path, "CREATE TABLE theirs (x)")
    with closing(Store(path)) as again:
        again.open(WALL)
        aside = again.health.set_aside
    assert aside is not None
    with closing(sqlite3.connect(aside)) as older:
        assert older.execute("PRAGMA user_version").fetchone() == (1,)


def past(target: str = "gpu-0", engine: str = "0", wall: float = WALL, packed: bytes = b"x") -> EnginePast:
    return EnginePast(Subject(target, "m", engine), wall, packed)


def test_what_was_learnt_of_engines_is_written_with_the_next_checkpoint(patient: Store, path: Path) -> None:
    patient.checkpoint([], WALL, 0, ["gpu-0"])
    asked = statements(patient, path)
    patient.learn([past(), past(engine="1"), past("gpu-1")])
    patient.learn([past(wall=WALL + 1, packed=b"newer")])
    assert patient.pasts("gpu-0") == ()
    patient.checkpoint([], WALL + 5, 5, ["gpu-0"])
    assert asked.count("COMMIT") == 1
    killed(patient)
    with closing(Store(path)) as again:
        again.open(WALL + 6)
        assert again.pasts("gpu-0") == (past(wall=WALL + 1, packed=b"newer"), past(engine="1"))
        assert (again.pasts("gpu-1"), again.pasts("gpu-2")) == ((past("gpu-1"),), ())


def test_the_past_of_engines_that_are_gone_goes_after_its_hours(path: Path) -> None:
    steady = iter((0.0, 60.0, KEPT_SECONDS + 30, KEPT_SECONDS + 30)).__next__
    with closing(Store(path, steady=steady)) as patient:
        patient.open(WALL)
        patient.learn([past("gone"), past("stays", wall=WALL + 60)])
        patient.checkpoint([], WALL + 60, 0)
        patient.learn([past("stays", engine="1", wall=WALL + KEPT_SECONDS + 30)])
        patient.checkpoint([], WALL + KEPT_SECONDS + 30, 600)
        assert (len(patient.pasts("gone")), len(patient.pasts("stays"))) == (0, 2)


def test_a_clock_that_is_ahead_for_a_while_keeps_the_past_of_engines(path: Path) -> None:
    with closing(Store(path, steady=lambda: 0.0)) as store:
        store.open(WALL)
        store.learn([past("gone")])
        store.checkpoint([], WALL + 60, 0)
        store.learn([past("stays", wall=WALL + DAY)])
        store.checkpoint([], WALL + DAY, 600)
        assert store.pasts("gone")


def test_a_past_that_is_no_bytes_is_left_to_who_unpacks_it(store: Store, path: Path) -> None:
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("INSERT INTO pasts VALUES ('gpu-0', 'm', '0', 0, 'text')")
        other.commit()
    with closing(Store(path)) as again:
        again.open(WALL)
        assert again.pasts("gpu-0") == (past(wall=0, packed=b""),)


def test_a_database_without_pasts_gets_room_for_them(store: Store, path: Path) -> None:
    store.record(began())
    store.close()
    with closing(sqlite3.connect(path)) as older:
        older.executescript("DROP TABLE pasts; PRAGMA user_version = 2")
    with closing(Store(path)) as again:
        assert again.open(WALL).incidents == (incident(),)
        again.learn([past()])
        again.checkpoint([incident()], WALL, 0, ["gpu-0"])
        assert again.pasts("gpu-0") == (past(),)


def test_files_set_aside_do_not_pile_up(path: Path) -> None:
    path.parent.mkdir()
    for _ in range(8):
        path.write_bytes(b"garbage" * 999)
        reopened(path)
    assert len(list(path.parent.glob("*.aside-*"))) == 5


def test_what_is_kept_is_for_its_owner_alone(store: Store, path: Path) -> None:
    store.record(began())
    assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {
        f"{path.name}{suffix}": 0o600 for suffix in ("", "-wal", "-shm", ".lock")
    }


def test_a_place_that_cannot_be_written_means_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "state" / FILE_NAME, tmp_path / "folder"):
        with closing(Store(path)) as store:
            assert store.open(WALL) == Restored()
            store.record(began())
            store.checkpoint([incident()], WALL, 0)
            assert store.query() == (incident(),)
            assert store.health.mode is Mode.MEMORY
            assert store.health.warning


def test_two_watchdogs_do_not_share_a_file(store: Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LOCK_SECONDS", 0.2)
    store.record(began())
    with closing(Store(path)) as second:
        second.open(WALL)
        assert second.health.mode is Mode.MEMORY
        assert second.health.warning == "another watchdog is using the file"
        monkeypatch.setattr(database, "RETURN_PAUSE_SECONDS", 0.0)
        second.record(began("other"))
        assert second.health.mode is Mode.MEMORY


def test_a_successor_waits_for_its_predecessor_to_let_go(store: Store, path: Path) -> None:
    store.record(began())
    threading.Timer(0.3, store.close).start()
    with closing(Store(path)) as second:
        assert second.open(WALL).incidents == (incident(),)
        assert second.health.mode is Mode.DISK


def _fill_the_disk(path: Path, answers: "multiprocessing.queues.SimpleQueue[object]") -> None:
    database.RETURN_PAUSE_SECONDS = 0.0
    store = Store(path)
    store.open(WALL)
    store.record(began("before"))
    store.ledger("a").save({"x": "1"})
    # No file of this process may grow any more: as good as a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    for number in range(30):
        store.record(began(f"r{number}"))
    store.checkpoint([incident("r1")], WALL + 1, 1)
    store.ledger("a").save({"x": "2"})
    answers.put((store.health.mode.value, len(store.query(limit=99)), dict(store.ledger("a").load())))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.record([change(resolved(WALL + 9, "before"), FIRING)])
    answers.put((store.health.mode.value, len(store.query(limit=99)), dict(store.ledger("a").load())))
    store.close()


def test_a_full_disk_means_memory_and_a_disk_with_room_is_used_again(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_fill_the_disk, args=(path, answers))
    process.start()
    full, roomy = answers.get(), answers.get()
    process.join()
    answers.close()
    assert full == ("in memory", 31, {"x": "2"})
    assert roomy == ("on disk", 31, {"x": "2"})
    restored = reopened(path, WALL + 10)
    assert len(restored.incidents) == 30
    assert [each.key.rule for each in restored.ended] == ["before"]
    with closing(Store(path)) as again:
        again.open(WALL + 10)
        assert len(again.timeline(Key("before", "gpu-0", "m", "0"))) == 3


def test_a_file_that_breaks_while_we_run_means_memory_and_then_a_new_file(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record(began())
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE transitions")
    monkeypatch.setattr(database, "RETURN_PAUSE_SECONDS", 0.0)
    store.record(began("b"))
    assert str(store.health.mode) == "in memory"
    store.record(began("c"))
    assert str(store.health.mode) == "on disk"
    assert store.health.set_aside is not None
    store.close()
    assert {each.key.rule for each in reopened(path).incidents} >= {"b", "c"}


def test_a_row_that_makes_no_sense_costs_no_other(store: Store, path: Path) -> None:
    store.record(began("a"))
    store.record(began("b"))
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE incidents SET body = '{' WHERE rule = 'a'")
        other.execute("UPDATE transitions SET body = '[]' WHERE number = 1")
        other.commit()
    with closing(Store(path)) as again:
        assert [each.key.rule for each in again.open(WALL).incidents] == ["b"]
        assert [each.key.rule for each in again.query()] == ["b"]
        assert len(again.timeline(Key("b", "gpu-0", "m", "0"))) == 1


texts = strategies.text(max_size=20)
numbers = strategies.floats(allow_nan=True, allow_infinity=True)


@given(texts, numbers, strategies.sampled_from(list(Severity)), strategies.sampled_from([PENDING, FIRING]))
@hypothesis_settings(deadline=None, max_examples=50)
def test_an_incident_reads_back_as_it_was(text: str, number: float, severity: Severity, state: State) -> None:
    values = {text: number, "none": None}
    one = replace(
        incident(state=state, severity=severity, unknown=True, explained_by=(text,), symptoms=(text,)),
        key=Key(text, text, text, text),
        cause=text,
        unhelpful=(text,),
        evidence=(Evidence(text, values, text),),
        held_seconds=12.5,
    )
    finite = {name: each if each is not None and isfinite(each) else None for name, each in values.items()}
    with closing(Store(None)) as store:
        store.open(WALL)
        store.record([change(one)])
        assert store.query() == (replace(one, evidence=(Evidence(text, finite, text),)),)


# As the versions before `held_seconds` wrote it, from a real file.
OLD_BODY = (
    '{"key":["queue-latency-high","gpu-0","tiny","0"],"title":"Requests wait long in the queue","severity":"warning",'
    '"state":"firing","cause":"Requests spend 11 s in the queue.","evidence":[{"clause":"queue_mean_seconds > 1",'
    '"values":{"queue_mean_seconds":11.08,"waiting_max":null},"text":"queue mean (11 s) > 1 s"}],"remedies":'
    '[{"action":"Add a replica, or limit what is let in.","flag":null,"value":null,"why":"7.9 requests come a second.",'
    '"price":"Another GPU.","direction":null}],"unhelpful":["A restart."],"runbook":"docs/causes.md#q",'
    '"pending_since":1700000000.25,"firing_since":1700000020.25,"resolved_at":null,"symptoms":["e2e-high","ttft-high"],'
    '"explained_by":["seqs-limited"],"unknown":false,"easing":true}'
)


def test_what_earlier_versions_kept_is_still_read(store: Store, path: Path) -> None:
    store.close()
    pending = OLD_BODY.replace('"firing"', '"pending"').replace('["queue-latency-high"', '["ttft-high"')
    with closing(sqlite3.connect(path)) as other:
        for number, (key, state, held, body) in enumerate(
            (
                ("queue-latency-high/gpu-0/tiny/0", "firing", 0.0, OLD_BODY),
                ("ttft-high/gpu-0/tiny/0", "pending", 17.5, pending),
            )
        ):
            rule = key.partition("/")[0]
            row = (number, key, rule, "gpu-0", state, WALL + number, None, held, WALL + 25, body)
            other.execute("INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        other.execute("INSERT INTO transitions VALUES (0, 1, ?, 'pending', ?)", (WALL, OLD_BODY))
        other.execute("INSERT OR REPLACE INTO moments VALUES ('last_seen', ?)", (WALL + 25,))
        other.commit()
    with closing(Store(path)) as again:
        fires, pends = again.open(WALL + 30).incidents
        assert fires.symptoms == ("e2e-high", "ttft-high")
        assert fires.evidence[0].values == {"queue_mean_seconds": 11.08, "waiting_max": None}
        assert fires.remedies[0] == Remedy(
            "Add a replica, or limit what is let in.",
            None,
            None,
            "7.9 requests come a second.",
            "Another GPU.",
        )
        assert (fires.firing_since, fires.is_cleared, fires.held_seconds) == (1700000020.25, False, 0.0)
        assert (pends.state, pends.held_seconds, pends.pending_since) == (PENDING, 17.5, WALL + 30 - 17.5)
        assert [each.before for each in again.timeline(fires.key)] == [PENDING]


def test_what_a_later_version_adds_is_passed_over(store: Store, path: Path) -> None:
    store.record(began())
    store.close()
    with closing(sqlite3.connect(path)) as other:
        for table in ("incidents", "transitions"):
            other.execute(
                f"UPDATE {table} SET body = json_set(body, '$.mood', 'grim', '$.remedies[0].risk', 3)"
            )
        other.commit()
    assert reopened(path).incidents == (incident(),)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"key": 1}', json.dumps({"key": list("abcd")})])
def test_what_is_no_incident_is_told_and_passed_over(
    store: Store, path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.record(began())
    store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE incidents SET body = ?", (text,))
        other.commit()
    assert reopened(path).incidents == ()
    assert "incident_unreadable" in caplog.text


def test_the_lock_goes_with_the_store(store: Store, path: Path) -> None:
    store.close()
    lock_file = os.open(f"{path}.lock", os.O_RDWR)
    fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock_file)


def test_the_day_of_a_target_is_written_with_the_next_checkpoint(patient: Store, path: Path) -> None:
    text = "2983333:" + "h" * 144
    patient.checkpoint([], WALL, 0, ["server"])
    patient.keep_day(DayOf.VERDICTS, "gone", "100:" + "c" * 144)
    patient.keep_day(DayOf.VERDICTS, "server", text)
    patient.keep_day(DayOf.READINGS, "server", "2983333:{}")
    assert patient.days(DayOf.VERDICTS) == {}
    asked = statements(patient, path)
    patient.checkpoint([], WALL + 5, 5, ["server"])
    assert asked.count("COMMIT") == 1
    # What has had no verdict for a day is forgotten.
    assert patient.days(DayOf.VERDICTS) == {"server": text}
    assert patient.days(DayOf.READINGS) == {"server": "2983333:{}"}
    patient.keep_day(DayOf.VERDICTS, "server", text.replace("h", "c"))
    patient.close()
    with closing(Store(path)) as again:
        again.open(WALL + 6)
        assert again.days(DayOf.VERDICTS) == {"server": text.replace("h", "c")}
        assert again.ledger("alertmanager").load() == {}
