"""What fires outlives the process that found it: killed and started again at any step, it is the same incident."""

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lives.test_recordings import FILES
from tests.pages import failed, scrape
from tests.watching import diagnosis, shipped_rules, watch
from watchdog.clock import Uptime
from watchdog.diagnosis.incidents import IncidentBook
from watchdog.diagnosis.inherited import Inherited
from watchdog.facts import host_memory, inflight, reachability, restarts, watching
from watchdog.facts.fact import Fact
from watchdog.history.number import AtLeast
from watchdog.history.span import NOW_SECONDS
from watchdog.language.expression import render
from watchdog.model import (
    EnginePast,
    Finding,
    Incident,
    Key,
    Reason,
    Scope,
    Scrape,
    ServerInfo,
    Snapshot,
    State,
    Subject,
    Transition,
    Truth,
)
from watchdog.notify.alert import AlertBuilder
from watchdog.notify.announcements import LEDGER, Announced, Announcements
from watchdog.rule.rule import Expectation, Rule, RuleTest, evaluate
from watchdog.scrape.recording import read, thin
from watchdog.signals.catalogue import compared_signal
from watchdog.state.store import FILE_NAME, Store

INTERVAL_SECONDS = 5.0
DAY = 86_400.0
# The machine's uptime when the first life ends.
DIED = Uptime(1, 5000.0)


class Break(NamedTuple):
    """Between two lives: how long nobody watches, by how much the clock of the second is off, and whether it booted."""

    absent_seconds: float
    off_seconds: float = 0.0
    booted: bool = False

    def __str__(self) -> str:
        clock = f" {self.off_seconds:+.0f}s" if self.off_seconds else ""
        return f"{self.absent_seconds:.0f}s{clock}{' boot' if self.booted else ''}"

    @property
    def uptime(self) -> Uptime:
        """That of the machine when the second life begins."""
        return Uptime(2, 30.0) if self.booted else Uptime(1, DIED.seconds + self.absent_seconds)


BREAKS = [
    *(Break(absent, off) for absent in (0.0, 60.0, 600.0) for off in (0.0, DAY, -DAY)),
    *(Break(60.0, off, booted=True) for off in (0.0, DAY, -DAY)),
]

# Pages that go on as they are for as long as somebody looks.


def vllm_page(at: float, **values: float) -> str:
    """A server on which something runs and each counter moves."""
    moving = ("prompt_tokens_total", "generation_tokens_total", "iteration_tokens_total_count")
    numbers = {"num_requests_running": 2.0, "num_requests_waiting": 0.0, **dict.fromkeys(moving, 90 * at)}
    labels = 'model_name="m",engine="0"'
    return "".join(f"vllm:{name}{{{labels}}} {value}\n" for name, value in (numbers | values).items())


def answered(body: bytes) -> Callable[[float], Scrape]:
    return lambda at: Scrape(at, at, 0.01, 200, body)


def refused_page(reason: Reason) -> Callable[[float], Scrape]:
    return lambda at: failed(at, reason, 200)


def stuck(at: float) -> Scrape:
    """Nothing moves any more, and requests wait."""
    return scrape(at, vllm_page(20.0, num_requests_running=9.0, num_requests_waiting=4.0))


LASTING: dict[str, tuple[str, Callable[[float], Scrape]]] = {
    "refused": ("target-down", failed),
    "500": ("target-down", lambda at: failed(at, Reason.STATUS, 500)),
    "timeout": ("target-down", lambda at: failed(at, Reason.TIMEOUT)),
    "no engine on the page": ("metrics-missing", answered(b"process_open_fds 9\n")),
    "another program": ("metrics-missing", answered(b"sglang:num_running_reqs 1\n" * 3)),
    "empty": ("metrics-missing", refused_page(Reason.EMPTY)),
    "a web page": ("metrics-invalid", answered(b"<html><body>It works</body></html>\n")),
    "not UTF-8": ("metrics-invalid", answered(b'vllm:num_requests_running{model_name="\xff"} 1\n')),
    "too large": ("metrics-invalid", refused_page(Reason.TOO_LARGE)),
    "stuck": ("engine-stalled", stuck),
}


def lives(told: Sequence[Incident], at: float, directory: Path, between: Break) -> tuple[Incident, ...]:
    """What the process after the one that said this takes up from the state directory."""
    with closing(Store(directory / FILE_NAME, uptime=lambda: DIED)) as store:
        store.open(at)
        store.record(Transition(each, State.PENDING, at) for each in told if each.state is State.FIRING)
        store.checkpoint(told, at, at)
    with closing(Store(directory / FILE_NAME, uptime=lambda: between.uptime)) as store:
        return store.open(at + between.absent_seconds + between.off_seconds).incidents


@pytest.mark.parametrize("between", [*BREAKS[::3], BREAKS[4], BREAKS[-1]], ids=str)
@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_through_a_restart_is_one_incident(name: str, between: Break, tmp_path: Path) -> None:
    rule, page_at = LASTING[name]
    one = diagnosis()
    for at in range(0, 60, 5):
        one.observe(scrape(float(at), vllm_page(at)))
    died_at = 500.0
    for at in range(60, int(died_at) + 1, 5):
        before = one.observe(page_at(float(at)))
    [fired] = [each for each in before.firing if each.key.rule == rule]
    two, began = diagnosis(), died_at + between.absent_seconds
    two.restore(lives(before.incidents, died_at, tmp_path, between), began)
    for step in range(80):
        page = page_at(began + 5 * step)
        after = two.observe(replace(page, wall=page.wall + between.off_seconds))
        assert after.transitions == ()
        [same] = [each for each in after.firing if each.key == fired.key]
        assert (same.firing_since, same.pending_since) == (fired.firing_since, fired.pending_since)


def test_what_ended_while_nobody_watched_ends_soon_after() -> None:
    one = diagnosis()
    one.observe(scrape(0.0, vllm_page(0)))
    for at in range(5, 60, 5):
        down = one.observe(failed(float(at)))
    stalled = watch(
        [scrape(float(at), vllm_page(at)) for at in range(0, 21, 5)]
        + [stuck(float(at)) for at in range(25, 60, 5)]
    )[-1]
    for before, seconds in ((down, 60.0), (stalled, 60.0)):
        two = diagnosis()
        two.restore(before.incidents, 100.0)
        ends = [
            (at, each.incident.key.rule)
            for at in range(100, 200, 5)
            for each in two.observe(scrape(float(at), vllm_page(at))).transitions
        ]
        assert [rule for _, rule in ends] == [before.firing[0].key.rule]
        assert ends[0][0] <= 100 + seconds


def test_a_server_that_goes_down_again_and_again_is_one_incident() -> None:
    one, told = diagnosis(), []
    for at in range(0, 400, 5):
        is_down = at >= 40 and at % 40 < 20
        snapshot = one.observe(failed(float(at)) if is_down else scrape(float(at), vllm_page(at)))
        told += [
            each.incident.state for each in snapshot.transitions if each.incident.key.rule == "target-down"
        ]
    assert told == [State.FIRING]


# Recordings: compared with the life that nobody interrupted.


@cache
def story(path: Path) -> tuple[list[Scrape], list[Snapshot]]:
    scrapes = list(thin(read(path)[1], INTERVAL_SECONDS))
    return scrapes, watch(scrapes)


def holding(snapshot: Snapshot) -> set[Key]:
    """What fires and has not cleared: what has, ends sooner or later by what else there is."""
    return {each.key for each in snapshot.firing if each.cleared_at is None}


def still_firing(snapshots: Sequence[Snapshot], first: int, last: int) -> dict[Key, Incident]:
    """Those that hold at one step and at all steps up to another one."""
    held = {each.key: each for each in snapshots[first].firing}
    for snapshot in snapshots[first : last + 1]:
        firing = holding(snapshot)
        held = {key: each for key, each in held.items() if key in firing}
    return held


def interruptions(path: Path) -> Iterator[tuple[int, int]]:
    """Steps at which something fires and the process dies, and those at which the next one begins."""
    scrapes, snapshots = story(path)
    busy = [step for step in range(len(scrapes) - 1) if snapshots[step].firing]
    for number, died in enumerate(busy[1 :: max(1, len(busy) // 3)]):
        wait = 60.0 * (number % 2)
        later = (
            step for step in range(died + 1, len(scrapes)) if scrapes[step].at - scrapes[died].at >= wait
        )
        if (began := next(later, None)) is not None:
            yield died, began


@pytest.mark.parametrize("path", FILES[::2], ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_an_interrupted_life_tells_no_end_and_no_beginning_of_its_own(path: Path) -> None:
    scrapes, snapshots = story(path)
    for died, began in interruptions(path):
        held = still_firing(snapshots, died, began)
        one = diagnosis()
        one.restore(snapshots[died].incidents, scrapes[began].at)
        for step in range(began, min(len(scrapes), began + 60)):
            after = one.observe(scrapes[step])
            firing = holding(snapshots[step])
            held = {key: each for key, each in held.items() if key in firing}
            told = [each.incident.key for each in after.transitions if each.incident.key in held]
            assert told == [], (died, began, step)
            same = {each.key: each.firing_since for each in after.firing}
            assert all(same[key] == each.firing_since for key, each in held.items())


# What was learnt of a server before: a life that begins inside an incident knows what was usual.


def learnt_at_each_step(scrapes: Sequence[Scrape], path: Path) -> Iterator[tuple[EnginePast, ...]]:
    """What the state directory holds if the process is killed after each step; nothing is closed in peace."""
    one = diagnosis()
    for step in scrapes:
        store = Store(path, interval_seconds=INTERVAL_SECONDS)
        store.open(step.wall)
        snapshot = one.observe(step)
        store.learn(snapshot.pasts)
        store.checkpoint(snapshot.incidents, step.wall, step.at, ["server"])
        yield store.pasts("server")
        store._database.close()


def leads_within(
    scrapes: Sequence[Scrape], pasts: Sequence[EnginePast], first: int, seconds: float
) -> set[str]:
    """What leads by the past in a life that begins with a scrape, knows no incident, and lasts for so long.

    What is compared with the averages that the server's counters hold since its start says so: it needs no past.
    """
    one, off = diagnosis(), 5e5  # monotonic clocks of two boots have nothing in common
    begun_at = scrapes[first].at
    assert one.recall(pasts, begun_at + off, scrapes[first].wall) == ()
    watched = [each for each in scrapes[first:] if each.at - begun_at <= seconds]
    snapshots = [one.observe(replace(each, at=each.at + off)) for each in watched]
    leads = [incident for each in snapshots for incident in each.firing if incident.key == each.lead]
    return {each.key.rule for each in leads if "since the server started" not in each.cause}


@pytest.mark.parametrize(
    "rule", ["prefix-cache-ineffective", "prefix-cache-evicted", "h200-prefix-cache-ineffective"]
)
def test_an_incident_is_named_by_the_past_that_a_killed_process_left(rule: str, tmp_path: Path) -> None:
    path = next(each for each in FILES if each.name == f"{rule}.jsonl.xz")
    scrapes, snapshots = story(path)
    [cause] = {each.lead.rule for each in snapshots if each.lead is not None}
    felt = [step for step, each in enumerate(snapshots) if each.lead is not None]
    pasts = list(learnt_at_each_step(scrapes, tmp_path / FILE_NAME))
    for died in felt[:-6]:
        assert leads_within(scrapes, (), died + 1, 30.0) == set()
        assert leads_within(scrapes, pasts[died], died + 1, 30.0) == {cause}


def restarted(scrape: Scrape) -> Scrape:
    """The same page of a process that began a minute later."""
    began = re.search(rb"(?m)^process_start_time_seconds (\S+)", scrape.body)
    assert began is not None
    text = scrape.body.replace(began[1], b"%r" % (float(began[1]) + 60))
    assert text != scrape.body
    return replace(scrape, body=text)


def told_version(scrape: Scrape, version: str) -> Scrape:
    return replace(scrape, server_info=ServerInfo(version=version))


def untold(scrape: Scrape) -> Scrape:
    return replace(scrape, server_info=ServerInfo())


def test_the_past_of_another_life_of_the_server_is_not_used(tmp_path: Path) -> None:
    path = next(each for each in FILES if each.name == "prefix-cache-ineffective.jsonl.xz")
    scrapes, snapshots = story(path)
    died = next(step for step, each in enumerate(snapshots) if each.lead is not None)
    scrapes = [told_version(each, "0.24.0") for each in scrapes]
    pasts = list(learnt_at_each_step(scrapes[: died + 1], tmp_path / FILE_NAME))[-1]
    [before] = pasts
    for other in (
        [restarted(each) for each in scrapes],
        [told_version(each, "0.25.0") for each in scrapes],
        # The version is told only once the server was asked for it.
        [*map(untold, scrapes[: died + 3]), *(told_version(each, "0.25.0") for each in scrapes[died + 3 :])],
    ):
        assert leads_within(other, pasts, died + 1, 30.0) == set()
    assert leads_within([*map(untold, scrapes)], pasts, died + 1, 30.0)
    stranger = before._replace(subject=before.subject._replace(model_name="other"))
    assert leads_within(scrapes, (stranger,), died + 1, 30.0) == set()


def test_a_process_that_stops_in_peace_leaves_all_that_it_learnt() -> None:
    scrapes, _ = story(next(each for each in FILES if each.name == "healthy-busy.jsonl.xz"))
    one, handed_on = diagnosis(), 0
    for step in scrapes:
        given = one.observe(step).pasts
        handed_on += len(given)
        # What went out with its step is not asked for a second time.
        assert not given or one.pasts() == ()
    assert handed_on > 0
    # Less than a minute of it was not worth a write; at the end it is.
    [left] = one.pasts()
    assert left.packed
    assert one.pasts() == ()


def test_a_past_that_cannot_be_used_is_told_once_and_costs_nothing(tmp_path: Path) -> None:
    scrapes, _ = story(next(each for each in FILES if each.name == "healthy.jsonl.xz"))
    [before] = list(learnt_at_each_step(scrapes, tmp_path / FILE_NAME))[-1]
    cut, other = before.packed[:-9], before.subject._replace(engine="1")
    one = diagnosis()
    [why] = one.recall(
        [before._replace(packed=cut), before._replace(packed=cut, subject=other)], 0.0, before.wall
    )
    assert why == "it is truncated, or far too large"
    [why] = one.recall([before], 0.0, before.wall - 3600)
    assert "a clock was set" in why
    assert one.observe(scrapes[0]).up


# Every shipped rule, by the firing tests that it carries.

_LASTING_FACTS = frozenset(
    one.name
    for module in (host_memory, inflight, reachability, restarts, watching)
    for one in vars(module).values()
    if isinstance(one, Fact) and (one.unit in {"s", "scrapes", "restarts", "jumps"} or "growth" in one.name)
)
FIRING = [
    (rule, test) for rule in shipped_rules().rules for test in rule.tests if test.expect is Expectation.FIRES
]


def is_age(name: str) -> bool:
    return name in _LASTING_FACTS or name.endswith("seconds_since_progress")


def as_known_after(signals: Mapping[str, float], seconds: float) -> dict[str, float]:
    """The same server as a process sees it that has watched for so long, and has no past to compare with."""
    known = {
        name: value
        for name, value in signals.items()
        if compared_signal(name) is None and name != "vllm_seen"
    }
    return {
        name: AtLeast(min(value, seconds if name.endswith("seconds") or "seconds_" in name else seconds // 5))
        if is_age(name)
        else value
        for name, value in known.items()
    }


def finding(rule: Rule, subject: Subject, truth: Truth, signals: Mapping[str, float]) -> Finding:
    evidence = tuple(render(clause, signals.get) for clause in rule.when) if truth is Truth.YES else ()
    return Finding(rule.id, subject, truth, rule.severity, cause="because", evidence=evidence)


@pytest.mark.parametrize(("rule", "test"), FIRING, ids=[f"{rule.id}: {test.name}" for rule, test in FIRING])
@settings(max_examples=6, deadline=None)
@given(watched=st.floats(0, 2000), interval=st.sampled_from([1.0, 5.0, 15.0]))
def test_no_shipped_rule_ends_for_want_of_what_a_process_before_saw(
    rule: Rule, test: RuleTest, watched: float, interval: float
) -> None:
    subject = {
        Scope.ENGINE: Subject("t", "m", "0"),
        Scope.TARGET: Subject("t"),
        Scope.FLEET: Subject("*", "m"),
    }[rule.scope]
    book = IncidentBook(shipped_rules())
    yes, at = finding(rule, subject, Truth.YES, test.signals), 0.0
    standing = book.update([yes], at, at)
    while standing.incidents[0].state is not State.FIRING:
        at += interval
        standing = book.update([yes], at, at)
    [fired] = standing.incidents
    book = IncidentBook(shipped_rules())
    inherited = Inherited()
    book.restore([fired], 1e6)
    inherited.take_up([fired])
    compared = inherited.compared(subject).get(rule.id, {})
    seconds = 0.0
    while seconds <= watched:
        known = {**compared, **as_known_after(test.signals, seconds)}
        if any(each.values.get("vllm_seen") for each in fired.evidence):
            known["vllm_seen"] = 1.0
        truth = evaluate(rule, known.get).truth
        [judged] = inherited.settled([finding(rule, subject, truth, known)], shipped_rules(), seconds)
        standing = book.update([judged], 1e6 + seconds, 1e6 + seconds)
        assert standing.transitions == ()
        [same] = standing.incidents
        assert (same.key, same.state, same.firing_since) == (fired.key, State.FIRING, fired.firing_since)
        seconds += max(interval, watched / 20)


def test_the_firing_tests_are_of_every_shipped_rule() -> None:
    assert {rule.id for rule, _ in FIRING} == {rule.id for rule in shipped_rules().rules}


def test_a_no_of_a_part_of_a_window_is_no_end() -> None:
    book, inherited = IncidentBook(shipped_rules()), Inherited()
    key = Subject("t", "m", "0")
    rule = shipped_rules().by_id("kv-pool-exhausted")
    for at in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0):
        standing = book.update([finding(rule, key, Truth.YES, {})], at, at)
    stored = [
        replace(each, state=State.FIRING, firing_since=each.pending_since) for each in standing.incidents
    ]
    inherited.take_up(stored)
    no = finding(rule, key, Truth.NO, {})
    assert inherited.settled([no], shipped_rules(), None)[0].truth is Truth.UNKNOWN
    assert inherited.settled([no], shipped_rules(), NOW_SECONDS - 1)[0].truth is Truth.UNKNOWN
    assert inherited.settled([no], shipped_rules(), NOW_SECONDS)[0].truth is Truth.NO
    assert inherited.settled([no], shipped_rules(), 0.0)[0].truth is Truth.NO


# All shipped rules at once: what they told is in the state directory, and what the pager heard of it.

EVERY_RULE = [
    (rule, next(each for each in rule.tests if each.expect is Expectation.FIRES))
    for rule in shipped_rules().rules
]
SUBJECTS = {
    Scope.ENGINE: Subject("t", "m", "0"),
    Scope.TARGET: Subject("t"),
    Scope.FLEET: Subject("*", "m"),
}


def of_every_rule(truth: Truth) -> list[Finding]:
    return [finding(rule, SUBJECTS[rule.scope], truth, test.signals) for rule, test in EVERY_RULE]


class Life:
    """A book of incidents, and what is kept and announced of it, as the service does with each step."""

    def __init__(self, path: Path, wall: float, up: Uptime) -> None:
        self.store = Store(path, uptime=lambda: up)
        self.restored = self.store.open(wall)
        self.book = IncidentBook(shipped_rules())
        self.announcements = Announcements(AlertBuilder({}, ""), False, self.store.ledger(LEDGER))

    def step(self, truth: Truth, at: float, wall: float, *, killed_after: str = "") -> Announced | None:
        """One step, or as much of it as is done when the process is killed."""
        standing = self.book.update(of_every_rule(truth), at, wall)
        self.store.record(standing.transitions)
        if killed_after == "the record":
            return None
        self.store.checkpoint(standing.incidents, wall, at, ["t", "*"])
        if killed_after == "the checkpoint":
            return None
        return self.announcements.observe(
            standing.with_ended, wall, {each.key for each in standing.incidents}
        )


KILLED_AFTER = ["the record", "the checkpoint", "the announcement"]
WALL = 1.7e9


@cache
def ended_life(killed_after: str) -> tuple[bytes, Mapping[Key, float | None], frozenset[str]]:
    """The file that a life leaves in which each shipped rule fires, the starts in it, and what the pager heard of."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE_NAME
        life, at = Life(path, WALL, DIED), 0.0
        told: set[str] = set()
        starts: dict[Key, float | None] = {}
        while len(starts) < len(EVERY_RULE):
            at += 30
            assert at < 7200, {rule.id for rule, _ in EVERY_RULE} - {key.rule for key in starts}
            announced = life.step(Truth.YES, at, WALL + at)
            told |= set(announced.seen) if announced else set()
            found = life.store.query(state=State.FIRING, limit=1000)
            starts = {each.key: each.firing_since for each in found}
        life.step(Truth.YES, at + 30, WALL + at + 30, killed_after=killed_after)
        # As a kill leaves it, but for what lies in the log beside the file.
        life.store._database.close()
        return path.read_bytes(), starts, frozenset(told)


@pytest.mark.parametrize("killed_after", KILLED_AFTER)
@pytest.mark.parametrize("between", BREAKS, ids=str)
def test_whatever_fires_is_the_same_alert_in_the_next_life(
    between: Break, killed_after: str, tmp_path: Path
) -> None:
    file, starts, told = ended_life(killed_after)
    path = tmp_path / FILE_NAME
    path.write_bytes(file)
    with closing(sqlite3.connect(path)) as read_only:
        [[last_seen]] = read_only.execute("SELECT value FROM moments WHERE name = 'last_seen'")
    began = last_seen + between.absent_seconds + between.off_seconds
    life = Life(path, began, between.uptime)
    assert {each.key: each.firing_since for each in life.restored.incidents} == starts
    life.book.restore(life.restored.incidents, 9e5)
    for second in (0, 5, 60, 300, 600, 660):
        truth = Truth.UNKNOWN if second < 600 else Truth.YES
        announced = life.step(truth, 9e5 + second, began + second)
        assert announced is not None
        assert announced.news == frozenset()
        assert set(announced.seen) == told
        for each in announced.seen.values():
            assert each.firing
            assert each.alert.starts_at == starts[each.key]
    life.store.close()
