"""The life of an incident, for any sequence of answers: properties first, then the cases people ask about."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.diagnosis import incidents
from watchdog.diagnosis.incidents import (
    AFTERMATH_SECONDS,
    GAP_SECONDS,
    GONE_SECONDS,
    LONGEST_WAKE_SECONDS,
    RESOLVED_RETENTION_SECONDS,
    IncidentBook,
)
from watchdog.diagnosis.relations import explains, is_explained_by, related
from watchdog.history.span import NOW_SECONDS, RECENT_SECONDS
from watchdog.language.template import Template
from watchdog.model import (
    Finding,
    Incident,
    Key,
    Remedy,
    Scope,
    Severity,
    Standing,
    State,
    Subject,
    Transition,
    Truth,
)
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet

YES, NO, UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
ENGINE = Subject("t", "m", "0")
TARGET = Subject("t")


def rule(
    identity: str = "cause",
    wait: float = 10,
    keep: float = 20,
    severity: Severity = Severity.WARNING,
    explains: Sequence[str] = (),
    scope: Scope = Scope.ENGINE,
) -> Rule:
    return Rule(
        id=identity,
        title=identity,
        severity=severity,
        raise_to=None,
        scope=scope,
        for_seconds=wait,
        keep_firing_seconds=keep,
        parameters={},
        when=(),
        unless=(),
        explains=tuple(explains),
        cause=Template.read("", ()),
        remedies=(),
        unhelpful=(),
        false_positives=(),
        references=(),
        tests=(),
        path=Path("made.yaml"),
    )


class Book:
    """An incident book, and how its incidents stood after the last step."""

    def __init__(self, *rules: Rule) -> None:
        self.book = IncidentBook(RuleSet(rules, "digest"))
        self.last = Standing()

    def update(
        self, findings: Iterable[Finding], at: float, wall: float, *, readable: bool = True
    ) -> tuple[Transition, ...]:
        self.last = self.book.update(findings, at, wall, readable=readable)
        return self.last.transitions

    def incidents(self) -> tuple[Incident, ...]:
        return self.last.incidents

    def lead(self) -> Key | None:
        return self.last.lead

    def restore(self, stored: Iterable[Incident], at: float, wall: float = 0.0) -> None:
        """Takes them up, and makes a step in which no rule says anything."""
        self.book.restore(stored, at)
        self.update([], at, wall)

    def replace_rules(self, *rules: Rule, wall: float = 0.0) -> None:
        self.book.replace_rules(RuleSet(rules, "other"), wall)


def book(*rules: Rule) -> Book:
    return Book(*(rules or (rule(),)))


def says(
    truth: Truth, identity: str = "cause", subject: Subject = ENGINE, severity: Severity = Severity.WARNING
) -> Finding:
    return Finding(identity, subject, truth, severity, cause=f"{identity} because")


def play(
    one: Book, answers: Sequence[Truth], interval: float = 5.0, begin: float = 0.0
) -> list[State | None]:
    """The state after each answer."""
    states: list[State | None] = []
    for index, truth in enumerate(answers):
        at = begin + index * interval
        one.update([says(truth)], at, 1e9 + at)
        live = [incident.state for incident in one.incidents() if incident.state is not State.RESOLVED]
        states.append(live[0] if live else None)
    return states


answers = st.lists(st.sampled_from([YES, NO, UNKNOWN]), max_size=40)


@pytest.mark.slow
@given(answers, st.sampled_from([0.0, 5.0, 7.0, 30.0]), st.sampled_from([1.0, 5.0, 15.0]))
def test_nothing_fires_before_its_rule_held_for_its_time(
    given_answers: list[Truth], wait: float, interval: float
) -> None:
    held = 0.0
    before = NO
    firing = False
    states = play(book(rule(wait=wait)), given_answers, interval)
    for index, (truth, state) in enumerate(zip(given_answers, states, strict=True)):
        held = held + interval if truth is YES and before is YES else (0.0 if truth is NO else held)
        if state is State.FIRING and not firing:
            assert truth is YES
            # Half of the time since the look before it was first seen counts, where there was one.
            assert held + (interval / 2 if index else 0.0) >= wait - 1e-6
        firing, before = state is State.FIRING, truth


@pytest.mark.parametrize(
    ("interval", "answers_until_it_fires"), [(1.0, 6), (5.0, 2), (7.0, 2), (10.0, 1), (15.0, 1), (60.0, 1)]
)
def test_a_hold_shorter_than_half_the_pace_costs_no_scrape(
    interval: float, answers_until_it_fires: int
) -> None:
    states = play(book(rule(wait=5.0)), [NO, *[YES] * 8], interval)[1:]
    assert states.index(State.FIRING) + 1 == answers_until_it_fires


def test_what_the_first_look_finds_has_not_held_yet() -> None:
    assert play(book(rule(wait=5.0)), [YES, YES], 60.0) == [State.PENDING, State.FIRING]


@pytest.mark.slow
@given(answers)
def test_unknown_neither_fires_nor_resolves(given_answers: list[Truth]) -> None:
    previous: State | None = None
    states = play(book(rule(wait=5, keep=5)), given_answers)
    for truth, state in zip(given_answers, states, strict=True):
        if truth is UNKNOWN:
            assert state is previous
        previous = state


@pytest.mark.slow
@given(answers)
def test_the_same_answers_give_the_same_incidents(given_answers: list[Truth]) -> None:
    first, second = book(), book()
    play(first, given_answers)
    play(second, given_answers)
    assert first.incidents() == second.incidents()


@pytest.mark.slow
@given(answers, st.integers(0, 39))
def test_a_restart_at_any_moment_keeps_identity_and_start(given_answers: list[Truth], cut: int) -> None:
    one = book()
    play(one, given_answers[:cut])
    stored = [incident for incident in one.incidents() if incident.state is not State.RESOLVED]
    other = book()
    other.restore(stored, 1000.0)
    after = {incident.key: incident for incident in other.incidents()}
    assert after.keys() == {incident.key for incident in stored}
    for incident in stored:
        assert after[incident.key].firing_since == incident.firing_since
        assert after[incident.key].pending_since == incident.pending_since
        assert after[incident.key].held_seconds >= incident.held_seconds
    other.update([says(UNKNOWN)], 2000.0, 2e9)
    assert {incident.key: incident.state for incident in other.incidents()} == {
        incident.key: incident.state for incident in stored
    }


def test_pending_then_firing_then_resolved() -> None:
    states = play(book(), [YES, YES, YES, NO, NO, NO, NO, NO, NO])
    pending, firing = State.PENDING, State.FIRING
    assert states == [pending, pending, firing, firing, firing, firing, firing, None, None]


def test_without_a_wait_it_fires_at_once() -> None:
    assert play(book(rule(wait=0)), [YES]) == [State.FIRING]


def test_one_no_ends_pending() -> None:
    assert play(book(), [YES, YES, NO, YES, YES]) == [
        State.PENDING,
        State.PENDING,
        None,
        State.PENDING,
        State.PENDING,
    ]


def test_a_yes_in_between_begins_the_quiet_time_anew() -> None:
    states = play(book(rule(wait=0, keep=10)), [YES, NO, NO, YES, NO, NO, NO])
    assert states == [State.FIRING] * 6 + [None]


def test_time_in_which_nobody_looked_does_not_count() -> None:
    one = book(rule(wait=30))
    one.update([says(YES)], 0, 0)
    one.update([says(YES)], GAP_SECONDS + 600, 0)
    assert one.incidents()[0].state is State.PENDING


def test_the_transitions_tell_each_change_once() -> None:
    one = book(rule(wait=5, keep=5))
    seen: list[tuple[State | None, State, float]] = []
    for index, truth in enumerate([YES, YES, YES, NO, NO, NO]):
        changes = one.update([says(truth)], 5.0 * index, 100 + 5.0 * index)
        seen.extend((change.before, change.incident.state, change.at) for change in changes)
    assert seen == [
        (None, State.PENDING, 100),
        (State.PENDING, State.FIRING, 105),
        (State.FIRING, State.RESOLVED, 120),
    ]


def test_an_end_is_never_before_its_beginning_even_if_the_clock_was_set_back() -> None:
    one = book(rule(wait=0, keep=0))
    one.update([says(YES)], 0, 5000)
    (change,) = one.update([says(NO)], 5, 1000)
    assert change.incident.resolved_at == 5000


def test_the_unexplained_cause_leads_and_the_rest_hangs_below() -> None:
    one = book(
        rule("pool", 0, explains=["slow", "queue"]), rule("slow", 0), rule("queue", 0, explains=["slow"])
    )
    one.update([says(YES, "slow"), says(YES, "queue"), says(YES, "pool")], 0, 0)
    lead, *others = one.incidents()
    assert lead.key.rule == "pool"
    assert lead.symptoms == ("queue", "slow")
    assert {other.key.rule: other.explained_by for other in others} == {
        "queue": ("pool",),
        "slow": ("pool", "queue"),
    }


def test_a_pending_one_knows_what_explains_it_already() -> None:
    one = book(rule("cause", wait=0, explains=["symptom"]), rule("symptom", wait=60), rule("other", wait=60))
    one.update([says(YES), says(YES, "symptom"), says(YES, "other")], 0, 1e9)
    assert {each.key.rule: each.explained_by for each in one.incidents()} == {
        "cause": (),
        "symptom": ("cause",),
        "other": (),
    }
    one.update([says(NO), says(YES, "symptom"), says(YES, "other")], 5, 1e9 + 5)
    one.update([says(NO), says(NO, "symptom"), says(YES, "other")], 30, 1e9 + 30)
    assert not any(each.explained_by for each in one.incidents())


def test_what_holds_no_more_is_cleared_until_it_ends_or_comes_back() -> None:
    one = book(rule(wait=0, keep=20))
    steps = ((YES, False), (NO, True), (YES, False), (NO, True), (UNKNOWN, False), (NO, True), (NO, True))
    for index, (truth, cleared) in enumerate(steps):
        one.update([says(truth)], index * 5.0, 1e9 + index * 5.0)
        assert one.incidents()[0].is_cleared is cleared
    one.update([says(NO)], 60, 1e9 + 60)
    (over,) = one.incidents()
    assert (over.state, over.is_cleared) == (State.RESOLVED, False)


def test_worse_severity_leads_before_more_symptoms_before_age() -> None:
    one = book(rule("old", 0), rule("wide", 0, explains=["symptom"]), rule("symptom", 0), rule("bad", 0))
    one.update([says(YES, "old")], 0, 0)
    one.update([says(YES, "old"), says(YES, "wide"), says(YES, "symptom")], 5, 5)
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "wide"
    one.update(
        [says(YES, name) for name in ("old", "wide", "symptom")]
        + [says(YES, "bad", severity=Severity.CRITICAL)],
        10,
        10,
    )
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "bad"


def test_info_neither_leads_nor_takes_the_lead_away() -> None:
    one = book(rule("note", 0, severity=Severity.INFO, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "note", severity=Severity.INFO)], 0, 0)
    assert one.lead() is None
    one.update([says(YES, "note", severity=Severity.INFO), says(YES, "slow")], 5, 5)
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "slow"


def test_another_engine_explains_nothing_here() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    other = Subject("t", "m", "1")
    one.update([says(YES, "pool"), says(YES, "slow", other)], 0, 0)
    assert all(not incident.explained_by for incident in one.incidents())


def test_what_cannot_be_seen_hangs_below_why_it_cannot() -> None:
    down = rule("down", 0, severity=Severity.CRITICAL, scope=Scope.TARGET)
    one = book(rule("pool", 0, severity=Severity.CRITICAL), down)
    one.update([says(YES, "pool", severity=Severity.CRITICAL)], 0, 0)
    one.update([says(YES, "down", TARGET, Severity.CRITICAL)], 5, 5)
    lead, other = one.incidents()
    assert lead.key.rule == "down"
    assert other.unknown
    assert other.explained_by == ("down",)


def test_symptoms_do_not_begin_in_the_wake_of_their_cause() -> None:
    one = book(rule("stall", 0, keep=0, explains=["slow"]), rule("slow", 5))
    one.update([says(YES, "stall"), says(NO, "slow")], 0, 0)
    one.update([says(NO, "stall"), says(YES, "slow")], 5, 5)
    for at in range(5, 65, 5):
        one.update([says(NO, "stall"), says(YES, "slow")], at, at)
        assert [(each.key.rule, each.state) for each in one.incidents()] == [
            ("stall", State.FIRING),
            ("slow", State.PENDING),
        ]
        assert one.lead() == Key("stall", *ENGINE)
        assert one.last.pageable == frozenset()
    for at in range(65, 90, 5):
        one.update([says(NO, "stall"), says(YES, "slow")], at, at)
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "slow"


@pytest.mark.parametrize(
    ("lasted", "explains_for"),
    [(5, AFTERMATH_SECONDS), (200, 200), (LONGEST_WAKE_SECONDS + 300, LONGEST_WAKE_SECONDS)],
)
def test_what_a_cause_left_behind_hangs_below_it_for_as_long_as_it_lasted(
    lasted: float, explains_for: float
) -> None:
    one = book(rule("stall", 0, keep=10, explains=["slow"]), rule("slow", 10))
    for at in (0.0, lasted - 1):
        one.update([says(YES, "stall")], at, at)
    one.update([says(NO, "stall")], lasted, lasted)
    step = explains_for / 20
    for number in range(1, 20):
        at = lasted + number * step
        one.update([says(NO, "stall"), says(YES, "slow")], at, at)
        assert (one.lead(), one.last.pageable) == (Key("stall", *ENGINE), frozenset())
    for at in (lasted + explains_for, lasted + explains_for + 1):
        one.update([says(NO, "stall"), says(YES, "slow")], at, at)
    # Whoever still waits by then waits for something else.
    assert one.last.pageable == {Key("slow", *ENGINE)}


@pytest.mark.parametrize("between", [NO, UNKNOWN])
def test_what_begins_once_no_window_remembers_a_cause_is_none_of_its_symptoms(between: Truth) -> None:
    def leads(begins_after: float) -> str | None:
        one = book(rule("cold", 0, keep=90, explains=["busy"]), rule("busy", 0))
        one.update([says(YES, "cold")], 0, 0)
        one.update([says(NO, "cold")], 5, 5)
        at = 5 + begins_after
        one.update([says(between, "cold")], at - 1, at - 1)
        one.update([says(between, "cold"), says(YES, "busy")], at, at)
        one.update([says(between, "cold"), says(YES, "busy")], at + 1, at + 1)
        lead = one.lead()
        return None if lead is None else lead.rule

    assert leads(NOW_SECONDS - 5) == "cold"
    assert leads(NOW_SECONDS + 5) == "busy"


def test_what_only_the_window_remembers_has_cleared_but_closes_no_sooner() -> None:
    one = book(rule("surge", 0, keep=20))
    fades = says(YES, "surge")._replace(fades=True)
    one.update([says(YES, "surge")], 0, 100)
    for at in (5, 10, 15):
        one.update([fades], at, 100 + at)
        [surge] = one.incidents()
        assert (surge.cleared_at, surge.closes_at) == (105, 105 + NOW_SECONDS - RECENT_SECONDS + 20)
        assert (one.lead(), one.last.pageable, one.last.hurting) == (surge.key, frozenset(), frozenset())
    for at in (20, 39):
        one.update([says(NO, "surge")], at, 100 + at)
        [surge] = one.incidents()
        assert (surge.state, surge.cleared_at, surge.closes_at) == (State.FIRING, 105, 140)
    one.update([says(NO, "surge")], 40, 140)
    assert one.incidents()[0].state is State.RESOLVED


def test_load_that_comes_and_goes_is_called_over_too_soon_only_once() -> None:
    one = book(rule("surge", 0, keep=20))
    fades = says(YES, "surge")._replace(fades=True)
    cleared, at = [], 0.0
    for _ in range(20):
        for finding in (says(YES, "surge"), says(YES, "surge"), fades, fades):
            one.update([finding], at, at)
            cleared.append(one.incidents()[0].is_cleared)
            at += 5
    assert cleared == [False, False, True, True, *[False] * 76]
    assert len(one.incidents()) == 1
    # The whole window is still believed, and the next incident begins with trust.
    for said in (NO, NO, NO, NO, NO, YES):
        one.update([says(said, "surge")], at, at)
        at += 5
    one.update([fades], at, at)
    assert [each.is_cleared for each in one.incidents() if each.state is State.FIRING] == [True]


def test_what_is_over_by_the_newest_pages_does_not_begin_to_fire() -> None:
    one = book(rule("surge", 10, keep=20))
    states = []
    for at, fades in ((0, False), (5, False), (10, True), (15, True), (20, False)):
        one.update([says(YES, "surge")._replace(fades=fades)], at, at)
        states.append(one.incidents()[0].state)
    assert states == [*[State.PENDING] * 4, State.FIRING]


@pytest.mark.parametrize("keep", [0, 20, AFTERMATH_SECONDS + 30])
def test_a_cause_that_cleared_leads_until_its_symptoms_are_gone_a_minute_at_most(keep: float) -> None:
    one = book(rule("stall", 0, keep=keep, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "stall"), says(YES, "slow")], 0, 0)
    end = 5 + max(keep, AFTERMATH_SECONDS)
    for at in (5.0, 5 + keep / 2, end - 1):
        one.update([says(NO, "stall"), says(YES, "slow")], at, at)
        stall, slow = one.incidents()
        assert (stall.key.rule, stall.cleared_at, slow.explained_by) == ("stall", 5, ("stall",))
        assert one.lead() == stall.key
        assert (stall.closes_at is None) is (at >= 5 + keep)
        assert one.last.pageable == frozenset()
    one.update([says(NO, "stall"), says(YES, "slow")], end, end)
    assert one.lead() == Key("slow", *ENGINE)
    # What lasts longer than any window remembers is news of its own.
    assert one.last.pageable == {Key("slow", *ENGINE)}


def test_what_has_cleared_ends_with_its_cause_and_leads_at_no_step() -> None:
    one = book(
        rule("stall", 0, keep=10, explains=["slow", "queue"]), rule("slow", 0, keep=90), rule("queue", 0)
    )
    one.update([says(YES, "stall"), says(YES, "slow"), says(YES, "queue")], 0, 0)
    for at in (5, 10):
        one.update([says(NO, "stall"), says(NO, "slow"), says(UNKNOWN, "queue")], at, at)
        assert one.lead() == Key("stall", *ENGINE)
    changes = one.update([says(NO, "stall"), says(NO, "slow"), says(UNKNOWN, "queue")], 15, 15)
    assert [each.incident.key.rule for each in changes] == ["stall", "slow", "queue"]
    assert {each.incident.state for each in changes} == {State.RESOLVED}
    assert one.lead() is None


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_symptom_of_symptoms_that_has_cleared_ends_with_the_first_cause(order: str) -> None:
    between = [rule(name, 0, keep=90, explains=["late"]) for name in order]
    one = book(rule("surge", 0, keep=10, explains=["a", "b", "late"]), *between, rule("late", 0, keep=90))
    names = ("surge", "a", "b", "late")
    one.update([says(YES, name) for name in names], 0, 0)
    for at in (5, 10, 15):
        changes = one.update([says(NO, name) for name in names], at, at)
    assert {each.incident.key.rule for each in changes} == set(names)
    assert one.lead() is None


def test_a_symptom_of_symptoms_that_holds_stays() -> None:
    one = book(
        rule("surge", 0, keep=0, explains=["a"]), rule("a", 0, keep=90, explains=["late"]), rule("late", 0)
    )
    one.update([says(YES, name) for name in ("surge", "a", "late")], 0, 0)
    changes = one.update([says(NO, "surge"), says(NO, "a"), says(YES, "late")], 5, 5)
    assert [each.incident.key.rule for each in changes] == ["surge", "a"]
    assert next((each.key.rule, each.state) for each in one.incidents()) == ("late", State.FIRING)


def test_what_began_before_and_cannot_be_judged_outlives_what_came_later() -> None:
    one = book(rule("down", 0, keep=0, explains=["slow"]), rule("slow", 0, keep=30))
    one.update([says(YES, "slow")], 0, 0)
    one.update([says(YES, "down"), says(UNKNOWN, "slow")], 5, 5)
    [change] = one.update([says(NO, "down"), says(UNKNOWN, "slow")], 10, 10)
    assert change.incident.key.rule == "down"
    assert one.lead() == Key("slow", *ENGINE)


def test_a_symptom_with_another_cause_keeps_nobody() -> None:
    one = book(rule("a", 0, keep=0, explains=["slow"]), rule("b", 0, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "a"), says(YES, "b"), says(YES, "slow")], 0, 0)
    [change] = one.update([says(NO, "a"), says(YES, "b"), says(YES, "slow")], 5, 5)
    assert (change.incident.key.rule, change.incident.state) == ("a", State.RESOLVED)
    assert one.lead() == Key("b", *ENGINE)


def test_trouble_began_when_its_rule_says_and_is_told_so_from_the_first_look_to_the_end() -> None:
    one = book(rule("stall", 10, keep=0))
    one.update([says(YES, "stall")._replace(began_seconds=25.0)], 100, 1100)
    assert [each.since for each in one.incidents()] == [1075]
    # A history that has forgotten the last step sees a shorter stall.
    one.update([says(YES, "stall")._replace(began_seconds=5.0)], 110, 1110)
    [over] = one.update([says(NO, "stall")], 115, 1115)
    assert (over.incident.since, over.incident.firing_since, over.incident.resolved_at) == (1075, 1110, 1115)


def test_trouble_of_which_nothing_tells_the_beginning_began_when_it_was_seen() -> None:
    one = book(rule("slow", 10))
    one.update([says(YES, "slow")], 100, 1100)
    assert [each.since for each in one.incidents()] == [1100]


@pytest.mark.parametrize("wait", [20, 60])
def test_a_lead_that_a_pending_cause_would_explain_is_not_worth_a_page_for_ten_seconds(wait: float) -> None:
    def pageable(at: float, truth: Truth = YES) -> set[str]:
        one = book(rule("pool", wait, explains=["thrash"]), rule("thrash", 0))
        one.update([says(YES, "pool"), says(YES, "thrash")], 0, 0)
        assert one.lead() == Key("thrash", *ENGINE)
        assert one.last.pageable == frozenset()
        one.update([says(truth, "pool"), says(YES, "thrash")], at, at)
        return {each.rule for each in one.last.pageable}

    # Where the deeper cause does not come, or takes too long, the lead has the page.
    assert pageable(5) == set()
    assert pageable(10) == {"thrash"}
    assert pageable(5, NO) == {"thrash"}


@pytest.mark.parametrize("wait", [0.0, 20.0])
def test_what_is_about_to_be_explained_waits_for_its_cause_and_never_leads(wait: float) -> None:
    one = book(rule("cause", wait + 10, explains=["slow"]), rule("slow", wait))
    leads = []
    for at in range(0, 45, 5):
        one.update([says(YES), says(YES, "slow")], at, 1000 + at)
        leads.append(one.lead())
        assert one.last.pageable in (frozenset(), {Key("cause", *ENGINE)})
    named = int(wait + 10) // 5
    assert leads == [None] * named + [Key("cause", *ENGINE)] * (9 - named)
    assert [each.symptoms for each in one.incidents() if each.key == one.lead()] == [("slow",)]


def test_a_symptom_that_is_all_there_is_leads_after_ten_seconds_at_most() -> None:
    def leads_at(*causes: Rule, says_of_cause: Sequence[Truth], severity: Severity = Severity.WARNING) -> int:
        one = book(*causes, rule("slow", 30))
        for step, truth in enumerate(says_of_cause):
            told = [says(truth, each.id, severity=severity) for each in causes]
            one.update([*told, says(YES, "slow")], step * 5, step * 5)
            if one.lead() is not None:
                return step * 5
        raise AssertionError

    cause = rule("cause", 10, explains=["slow"])
    assert leads_at(cause, says_of_cause=[NO] * 10) == 30
    # One that comes and goes keeps nobody waiting, nor does one that takes too long, is unknown or a notice.
    assert leads_at(cause, says_of_cause=[*[NO] * 6, *[YES, NO] * 3]) == 35
    assert leads_at(cause, says_of_cause=[*[NO] * 6, YES, UNKNOWN]) == 35
    assert (
        leads_at(cause, rule("other", 10, explains=["slow"]), says_of_cause=[*[NO] * 5, YES, NO, YES]) == 30
    )
    assert leads_at(rule("cause", 60, explains=["slow"]), says_of_cause=[YES] * 10) == 30
    notice = rule("cause", 10, explains=["slow"], severity=Severity.INFO)
    assert leads_at(notice, says_of_cause=[*[NO] * 6, YES, YES], severity=Severity.INFO) == 30
    # What has begun too late to fire within ten seconds of the symptom's own time is not waited for.
    assert leads_at(rule("cause", 15, explains=["slow"]), says_of_cause=[*[NO] * 6, YES, YES]) == 30
    assert leads_at(rule("other", 10), says_of_cause=[YES] * 10) == 10


def test_what_waits_for_its_cause_is_pending_and_told_once() -> None:
    one = book(rule("cause", 10, explains=["slow"]), rule("slow", 0))
    told = [
        [
            (change.incident.key.rule, change.before, change.incident.state)
            for change in one.update([says(YES), says(YES, "slow")], at, at)
        ]
        for at in (0, 5, 10)
    ]
    assert sorted(told[0]) == [("cause", None, State.PENDING), ("slow", None, State.PENDING)]
    assert told[1] == []
    assert sorted(told[2]) == [("cause", State.PENDING, State.FIRING), ("slow", State.PENDING, State.FIRING)]


def test_what_lasts_is_not_over_and_begins_nothing() -> None:
    lasting = says(NO)._replace(lasts=True, cause="the queue it left stands")
    one = book(rule("cause", 0, keep=10))
    one.update([lasting], 0, 0)
    assert one.incidents() == ()
    one.update([says(YES)], 5, 5)
    for at in range(10, 120, 5):
        one.update([lasting], at, at)
        [incident] = one.incidents()
        assert (incident.state, incident.is_cleared, incident.cause) == (
            State.FIRING,
            False,
            "the queue it left stands",
        )
    # It has been quiet for long enough by then.
    one.update([says(NO)], 120, 120)
    assert [each.state for each in one.incidents()] == [State.RESOLVED]


def test_what_has_just_begun_to_last_keeps_firing_for_the_rest_of_its_time() -> None:
    one = book(rule("cause", 0, keep=30))
    one.update([says(YES, severity=Severity.CRITICAL)], 0, 0)
    one.update([says(NO)._replace(lasts=True)], 5, 5)
    [lasting] = one.incidents()
    assert (lasting.severity, lasting.is_cleared) == (Severity.CRITICAL, False)
    one.update([says(NO)], 10, 10)
    [cleared] = one.incidents()
    assert (cleared.state, cleared.cleared_at, cleared.closes_at) == (State.FIRING, 10, 35)


def test_the_symptoms_of_what_lasted_fade_under_it() -> None:
    one = book(rule("cause", 0, keep=10, explains=["slow"]), rule("slow", 0, keep=0))
    one.update([says(YES), says(YES, "slow")], 0, 0)
    for at in range(5, 200, 5):
        one.update([says(NO)._replace(lasts=True), says(YES, "slow")], at, at)
    for at in (200, 205, 210, 215):
        one.update([says(NO), says(YES, "slow")], at, at)
        assert one.lead() == Key("cause", *ENGINE)
    one.update([says(NO), says(NO, "slow")], 220, 220)
    assert one.lead() is None


def test_what_is_pending_does_not_last() -> None:
    one = book(rule("cause", 10))
    one.update([says(YES)], 0, 0)
    one.update([says(NO)._replace(lasts=True)], 5, 5)
    assert one.incidents() == ()


def test_what_is_pending_and_explains_nothing_keeps_no_page_back() -> None:
    one = book(rule("other", 5), rule("thrash", 0))
    one.update([says(YES, "other"), says(YES, "thrash")], 0, 0)
    assert one.last.pageable == {Key("thrash", *ENGINE)}


def test_what_holds_leads_before_what_has_cleared() -> None:
    one = book(rule("bad", 0), rule("mild", 0))
    critical = says(YES, "bad", severity=Severity.CRITICAL)
    one.update([critical, says(YES, "mild")], 0, 0)
    assert one.lead() == Key("bad", *ENGINE)
    one.update([says(NO, "bad"), says(YES, "mild")], 5, 5)
    assert one.lead() == Key("mild", *ENGINE)


def test_a_notice_that_ended_holds_nothing_back_that_people_feel() -> None:
    one = book(rule("shift", 0, keep=0, severity=Severity.INFO, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "shift", severity=Severity.INFO)], 0, 0)
    one.update([says(NO, "shift", severity=Severity.INFO), says(YES, "slow")], 5, 5)
    [slow] = [each for each in one.incidents() if each.key.rule == "slow"]
    assert (slow.state, slow.explained_by) == (State.FIRING, ())


def test_an_engine_that_is_gone_for_good_takes_its_incidents_along() -> None:
    one = book(rule(wait=0))
    one.update([says(YES)], 0, 0)
    one.update([], GONE_SECONDS - 1, 0)
    assert one.incidents()[0].state is State.FIRING
    one.update([], GONE_SECONDS + 1, 0)
    assert one.incidents()[0].state is State.RESOLVED


def test_an_engine_behind_a_dead_target_is_not_gone() -> None:
    one = book(rule(wait=0))
    one.update([says(YES)], 0, 0)
    for at in range(0, 4000, 100):
        one.update([], at, at, readable=False)
    assert one.incidents()[0].state is State.FIRING


@pytest.mark.parametrize(("wait", "state"), [(0, State.FIRING), (5, State.FIRING), (60, State.PENDING)])
def test_new_rules_keep_what_still_meets_its_time(wait: float, state: State) -> None:
    one = book(rule(wait=5))
    play(one, [YES, YES, YES])
    one.replace_rules(rule(wait=wait))
    one.update([], 15.0, 0)
    assert [incident.state for incident in one.incidents()] == [state]


def test_a_rule_that_is_gone_resolves_its_incident_once() -> None:
    one = book(rule(wait=0))
    play(one, [YES])
    one.replace_rules(rule("other"), wall=77)
    changes = one.update([], 10, 80)
    assert [(change.incident.key.rule, change.incident.state) for change in changes] == [
        ("cause", State.RESOLVED)
    ]
    assert one.update([], 15, 85) == ()
    assert one.incidents() == ()


def test_severity_only_rises_while_it_fires() -> None:
    one = book(rule(wait=0, severity=Severity.INFO))
    seen = []
    for at, severity in enumerate([Severity.INFO, Severity.WARNING, Severity.INFO, Severity.CRITICAL]):
        changes = one.update([says(YES, severity=severity)], float(at), float(at))
        seen.append((one.incidents()[0].severity, len(changes)))
    assert seen == [(Severity.INFO, 1), (Severity.WARNING, 1), (Severity.WARNING, 0), (Severity.CRITICAL, 1)]


def test_a_full_book_forgets_what_is_over_and_never_what_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "MOST_INCIDENTS", 3)
    one = book(rule(wait=0, keep=0))
    engines = [Subject("t", "m", str(number)) for number in range(5)]

    def step(at: float, *truths: Truth) -> dict[str, State]:
        one.update([says(truth, subject=each) for each, truth in zip(engines, truths, strict=False)], at, at)
        return {incident.key.engine: incident.state for incident in one.incidents()}

    assert len(step(0, YES, YES, YES, YES)) == 3  # the fourth finds no room
    assert step(5, NO, YES, NO, NO)["0"] is State.RESOLVED
    firing, over = State.FIRING, State.RESOLVED
    assert step(10, NO, YES, NO, YES) == {"1": firing, "2": over, "3": firing}  # the oldest made room
    assert step(15, NO, YES, YES, YES) == {"1": firing, "2": firing, "3": firing}  # its own place is free
    assert step(20, YES, YES, YES, YES) == {"1": firing, "2": firing, "3": firing}


def test_what_is_over_stays_to_be_seen_for_an_hour() -> None:
    one = book(rule(wait=0, keep=0))
    one.update([says(YES)], 0, 0)
    one.update([says(NO)], 5, 5)
    one.update([says(NO)], 3605, 0)
    assert [incident.state for incident in one.incidents()] == [State.RESOLVED]
    one.update([says(NO)], 3606, 0)
    assert one.incidents() == ()


def test_what_comes_again_is_new_and_outlives_the_time_of_the_one_before() -> None:
    one = book(rule(wait=0, keep=0))
    one.update([says(YES)], 0, 0)
    one.update([says(NO)], 5, 5)
    one.update([says(YES)], 10, 10)
    assert [(each.state, each.firing_since) for each in one.incidents()] == [(State.FIRING, 10)]
    at = 10 + RESOLVED_RETENTION_SECONDS + 5
    assert one.update([says(YES)], at, at) == ()
    assert [(each.state, each.firing_since) for each in one.incidents()] == [(State.FIRING, 10)]


def test_hurting_is_what_holds_above_info() -> None:
    one = book(rule(wait=0, keep=0), rule("note", 0, severity=Severity.INFO), rule("slow", 60))
    other = Subject("t", "m", "1")
    one.update([says(YES), says(YES, "slow", other), says(YES, "note", TARGET, Severity.INFO)], 0, 0)
    assert one.last.hurting == {ENGINE, other}
    one.update([says(NO), says(NO, "slow", other), says(YES, "note", TARGET, Severity.INFO)], 5, 5)
    assert one.last.hurting == frozenset()


subjects = st.sampled_from([TARGET, ENGINE, Subject("t", "m", "1"), Subject("t", "n", "0")])


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), subjects, st.sampled_from(Severity), st.booleans()),
        max_size=12,
        unique_by=lambda each: each[:2],
    )
)
def test_what_explains_what_is_as_if_each_was_held_against_all(
    told: list[tuple[str, Subject, Severity, bool]],
) -> None:
    rules = [
        rule("a", 0, explains="bc"),
        rule("b", 0, explains="c"),
        rule("c", 0),
        rule("d", 0, explains="a"),
    ]
    one = book(*rules)
    one.update([says(YES, name, subject, severity) for name, subject, severity, _ in told], 0, 0)
    one.update([says(YES, name, subject, severity) for name, subject, severity, seen in told if seen], 5, 5)
    firing = one.incidents()
    known = RuleSet(rules, "digest")
    for incident in related(firing, known):
        symptoms = {other.key.rule for other in firing if is_explained_by(known, other, incident)}
        causes = {other.key.rule for other in firing if is_explained_by(known, incident, other)}
        assert set(incident.symptoms) == symptoms
        assert set(incident.explained_by) == causes


def test_the_wake_of_a_cause_ends_after_a_minute() -> None:
    def state(later: float) -> State:
        one = book(rule("stall", 0, keep=0, explains=["slow"]), rule("slow", 0))
        one.update([says(YES, "stall")], 0, 0)
        one.update([says(NO, "stall")], 5, 5)
        one.update([says(YES, "slow")], 5 + later, 5 + later)
        return next(each.state for each in one.incidents() if each.key.rule == "slow")

    assert state(AFTERMATH_SECONDS) is State.PENDING
    assert state(AFTERMATH_SECONDS + 1) is State.FIRING


def test_only_what_a_cause_explains_is_in_its_wake() -> None:
    one = book(rule("stall", 0, keep=0, explains=["slow"]), rule("slow", 0), rule("other", 0))
    one.update([says(YES, "stall")], 0, 0)
    one.update([says(NO, "stall")], 5, 5)
    one.update([says(NO, "stall"), says(YES, "other"), says(YES, "slow")], 6, 6)
    assert {each.key.rule: each.state for each in one.incidents() if each.state is not State.RESOLVED} == {
        "other": State.FIRING,
        "slow": State.PENDING,
    }


def test_a_pending_one_that_ends_is_told_as_over_and_is_gone() -> None:
    one = book()
    one.update([says(YES)], 0, 100)
    [change] = one.update([says(NO)], 5, 105)
    assert (change.before, change.incident.state, change.at) == (State.PENDING, State.RESOLVED, 105)
    assert change.incident.resolved_at == 105
    assert one.incidents() == ()


def test_what_is_over_is_over_when_it_is_seen_to_be() -> None:
    one = book(rule(wait=0, keep=0))
    one.update([says(YES)], 0, 100)
    [change] = one.update([says(NO)], 50, 150)
    assert (change.incident.resolved_at, change.at) == (150, 150)


def test_the_end_of_an_engine_that_is_gone_is_told_once_and_that_of_a_pending_one_never() -> None:
    one = book(rule(wait=0), rule("slow", 60))
    one.update([says(YES), says(YES, "slow")], 0, 0)
    assert one.update([], GONE_SECONDS, 0) == ()
    [change] = one.update([], GONE_SECONDS + 1, 700)
    assert (change.incident.key.rule, change.before, change.at) == ("cause", State.FIRING, 700)
    assert [each.key.rule for each in one.incidents()] == ["cause"]
    assert one.update([], GONE_SECONDS + 2, 701) == ()


def test_quiet_time_begins_at_nothing_after_each_yes() -> None:
    states = play(book(rule(wait=0, keep=6)), [YES, NO, YES, NO, NO, NO])
    assert states == [State.FIRING] * 5 + [None]


@pytest.mark.parametrize(("gap", "state"), [(60, State.FIRING), (61, State.PENDING)])
def test_a_gap_of_more_than_a_minute_is_no_time_that_was_watched(gap: float, state: State) -> None:
    assert GAP_SECONDS == 60
    one = book(rule(wait=60))
    one.update([says(YES)], 0, 0)
    one.update([says(YES)], gap, gap)
    assert one.incidents()[0].state is state


def test_a_clock_that_runs_backwards_takes_no_time_away() -> None:
    one = book(rule(wait=10))
    for at in (0, 8, 2, 4):
        one.update([says(YES)], at, 0)
    assert one.incidents()[0].state is State.FIRING


def test_a_short_wait_is_a_wait() -> None:
    assert play(book(rule(wait=0.5)), [YES, YES]) == [State.PENDING, State.FIRING]


def test_a_cause_leads_even_where_what_it_explains_is_worse() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "pool"), says(YES, "slow", severity=Severity.CRITICAL)], 0, 0)
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "pool"


def test_the_older_of_two_equals_leads_and_then_the_first_by_name() -> None:
    one = book(rule("b", 0), rule("a", 0), rule("c", 0))
    one.update([says(YES, "c")], 0, 10)
    one.update([says(YES, "a"), says(YES, "b"), says(YES, "c")], 5, 15)
    assert [each.key.rule for each in one.incidents()] == ["c", "a", "b"]


def test_incidents_are_in_order_of_state_then_severity_then_age() -> None:
    names = ("over", "waits", "note", "young", "old", "bad")
    one = book(*(rule(name, 60 if name == "waits" else 0, keep=0) for name in names))
    said = {"old": Severity.WARNING, "over": Severity.WARNING}
    one.update([says(YES, name, severity=each) for name, each in said.items()], 0, 0)
    one.update([says(YES, "old"), says(NO, "over"), says(YES, "note", severity=Severity.INFO)], 5, 5)
    later = {
        "old": Severity.WARNING,
        "young": Severity.WARNING,
        "bad": Severity.CRITICAL,
        "waits": Severity.CRITICAL,
    }
    one.update(
        [says(YES, name, severity=each) for name, each in later.items()]
        + [says(YES, "note", severity=Severity.INFO)],
        10,
        10,
    )
    assert [each.key.rule for each in one.incidents()] == ["bad", "old", "young", "note", "waits", "over"]


def test_one_engine_explains_what_the_whole_target_feels_and_the_other_way_round() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "pool"), says(YES, "slow", TARGET)], 0, 0)
    assert {each.key.rule: each.explained_by for each in one.incidents()} == {"pool": (), "slow": ("pool",)}
    other = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    other.update([says(YES, "pool", TARGET), says(YES, "slow")], 0, 0)
    assert {each.key.rule: each.symptoms for each in other.incidents()} == {"pool": ("slow",), "slow": ()}


def test_what_cannot_be_seen_itself_explains_nothing_by_that() -> None:
    one = book(rule("down", 0, scope=Scope.TARGET), rule("pool", 0))
    one.update([says(YES, "down", TARGET), says(YES, "pool")], 0, 0)
    one.update([], 5, 5)
    assert all(each.unknown and not each.explained_by for each in one.incidents())
    one.update([says(YES, "pool")], 10, 10)
    assert all(not each.explained_by for each in one.incidents())


def test_a_rule_that_is_not_known_has_no_incidents() -> None:
    one = book()
    assert one.update([says(YES, "stranger")], 0, 0) == ()
    one.restore([], 0)
    assert one.incidents() == ()


def test_incidents_of_rules_that_are_gone_are_not_taken_up() -> None:
    before = book(rule("old", 0))
    before.update([says(YES, "old")], 0, 0)
    after = book(rule("new", 0))
    after.restore(before.incidents(), 100.0)
    assert after.incidents() == ()
    assert after.lead() is None


def test_what_ended_in_the_life_before_is_shown_for_the_rest_of_its_hour() -> None:
    before = book(rule("one", 0, 0), rule("two", 0, 0))
    before.update([says(YES, "one"), says(YES, "two")], 0, 100)
    before.update([says(NO, "one"), says(YES, "two")], 10, 110)
    before.update([says(NO, "one"), says(NO, "two")], 20, 120)
    ended = before.incidents()
    assert [each.state for each in ended] == [State.RESOLVED] * 2
    after = book(rule("one", 0, 0), rule("two", 0, 0))
    after.book.restore([], 5000.0, ended, wall=110 + RESOLVED_RETENTION_SECONDS)
    after.update([says(NO, "one"), says(NO, "two")], 5000.0, 110 + RESOLVED_RETENTION_SECONDS)
    assert set(after.incidents()) == set(ended)
    after.update([says(NO, "one"), says(NO, "two")], 5005.0, 115 + RESOLVED_RETENTION_SECONDS)
    assert [each.key.rule for each in after.incidents()] == ["two"]
    [began] = after.update([says(NO, "one"), says(YES, "two")], 5010.0, 4000)
    assert (began.before, began.incident.state) == (State.PENDING, State.FIRING)
    assert [each.firing_since for each in after.incidents()] == [4000]


def test_what_ended_in_the_life_before_and_holds_again_is_one_that_holds() -> None:
    before = book(rule(wait=0, keep=0))
    before.update([says(YES)], 0, 100)
    before.update([says(NO)], 5, 105)
    ended = before.incidents()
    before.update([says(YES)], 10, 110)
    after = book(rule(wait=0, keep=0))
    after.book.restore(before.incidents(), 1000.0, ended, wall=120)
    after.update([says(YES)], 1000.0, 120)
    assert [(each.state, each.firing_since) for each in after.incidents()] == [(State.FIRING, 110)]


def test_a_clock_that_was_set_back_makes_no_end_that_lasts() -> None:
    before = book(rule(wait=0, keep=0))
    before.update([says(YES)], 0, 9000)
    before.update([says(NO)], 5, 9005)
    after = book(rule(wait=0, keep=0))
    after.book.restore([], 100.0, before.incidents(), wall=120)
    after.update([says(NO)], 100.0 + RESOLVED_RETENTION_SECONDS, 120)
    assert len(after.incidents()) == 1
    after.update([says(NO)], 101.0 + RESOLVED_RETENTION_SECONDS, 121)
    assert after.incidents() == ()


def test_an_incident_taken_up_is_unknown_until_its_rule_speaks_and_goes_with_its_engine() -> None:
    before = book(rule(wait=0, keep=0))
    before.update([says(YES)], 0, 50)
    one = book(rule(wait=0, keep=0))
    one.restore(before.incidents(), 1000.0)
    assert [each.unknown for each in one.incidents()] == [True]
    one.update([], 1000.0 + GONE_SECONDS, 0)
    assert one.incidents()[0].state is State.FIRING
    one.update([says(YES)], 1601.0, 60)
    [incident] = one.incidents()
    assert (incident.unknown, incident.firing_since) == (False, 50)


def test_what_is_told_of_an_incident_is_what_was_found_last() -> None:
    one = book(rule(wait=0))
    one.update([says(YES)], 0, 0)
    told = Finding("cause", ENGINE, YES, Severity.WARNING, cause="now more", unhelpful=("nothing",))
    one.update([told], 5, 5)
    [incident] = one.incidents()
    assert (incident.cause, incident.unhelpful, incident.runbook) == (
        "now more",
        ("nothing",),
        "docs/causes.md#cause",
    )
    assert incident.held_seconds == 5.0


def test_time_in_which_nobody_knew_does_not_count_as_held_nor_as_quiet() -> None:
    one = book(rule(wait=20, keep=20))
    for at, truth in ((0, YES), (10, UNKNOWN), (20, YES), (30, YES)):
        one.update([says(truth)], at, at)
    assert one.incidents()[0].state is State.PENDING
    one.update([says(YES)], 40, 40)
    assert one.incidents()[0].state is State.FIRING
    for at, truth in ((50, NO), (60, UNKNOWN), (70, NO), (80, NO)):
        one.update([says(truth)], at, at)
    assert one.incidents()[0].state is State.FIRING
    one.update([says(NO)], 90, 90)
    assert one.incidents()[0].state is State.RESOLVED


def test_steps_of_less_than_a_second_count() -> None:
    assert play(book(rule(wait=1)), [YES, YES, YES], interval=0.5) == [
        State.PENDING,
        State.PENDING,
        State.FIRING,
    ]


def test_one_that_comes_again_takes_its_own_place_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "MOST_INCIDENTS", 2)
    one = book(rule(wait=0, keep=0))
    first, second = ENGINE, Subject("t", "m", "1")
    one.update([says(YES, subject=first), says(YES, subject=second)], 0, 0)
    one.update([says(NO, subject=first), says(YES, subject=second)], 5, 5)
    one.update([says(NO, subject=first), says(NO, subject=second)], 10, 10)
    one.update([says(NO, subject=first), says(YES, subject=second)], 15, 15)
    assert {each.key.engine: each.state for each in one.incidents()} == {
        "0": State.RESOLVED,
        "1": State.FIRING,
    }


def test_info_explains_info() -> None:
    info = Severity.INFO
    one = book(rule("note", 0, severity=info, explains=["detail"]), rule("detail", 0, severity=info))
    one.update([says(YES, "note", severity=info), says(YES, "detail", severity=info)], 0, 0)
    assert {each.key.rule: each.explained_by for each in one.incidents()} == {"note": (), "detail": ("note",)}


def test_what_is_wide_and_cannot_be_seen_is_not_explained_by_what_is_wide_and_can() -> None:
    one = book(rule("down", 0, scope=Scope.TARGET), rule("odd", 0, scope=Scope.TARGET), rule("pool", 0))
    one.update([says(YES, "odd", TARGET), says(YES, "pool")], 0, 0)
    one.update([says(YES, "down", TARGET)], 5, 5)
    assert {each.key.rule: each.explained_by for each in one.incidents()} == {
        "down": (),
        "odd": (),
        "pool": ("down",),
    }


@pytest.mark.parametrize(("wait", "state"), [(30, State.FIRING), (300, State.PENDING)])
def test_what_fired_before_a_restart_does_not_wait_again_for_a_reload(wait: float, state: State) -> None:
    before = book(rule(wait=0))
    before.update([says(YES)], 0, 0)
    one = book(rule(wait=30))
    one.restore(before.incidents(), 1000.0)
    one.replace_rules(rule(wait=wait))
    one.update([], 1005.0, 0)
    assert [each.state for each in one.incidents()] == [state]


def test_what_was_pending_before_a_restart_has_still_to_wait_for_the_rest() -> None:
    before = book(rule(wait=30))
    before.update([says(YES)], 0, 0)
    one = book(rule(wait=30))
    one.restore([replace(each, held_seconds=20.0) for each in before.incidents()], 1000.0)
    for at, state in ((1000, State.PENDING), (1005, State.PENDING), (1010, State.FIRING)):
        one.update([says(YES)], at, at)
        assert one.incidents()[0].state is state


def test_a_model_without_an_engine_is_no_whole_target() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "pool", Subject("t", "m")), says(YES, "slow", Subject("t", "n"))], 0, 0)
    assert all(not each.explained_by for each in one.incidents())
    other = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    other.update([says(YES, "pool", Subject("t", "", "0")), says(YES, "slow", Subject("t", "", "1"))], 0, 0)
    assert all(not each.explained_by for each in other.incidents())


def test_one_target_explains_nothing_of_another_and_an_unknown_rule_nothing_at_all() -> None:
    rules = RuleSet([rule("pool", explains=["slow"]), rule("slow")], "digest")
    assert explains(rules, Key("pool", "t", "m", "0"), Key("slow", "t", "m", "0"))
    assert not explains(rules, Key("pool", "t", "", ""), Key("slow", "u", "", ""))
    assert not explains(rules, Key("gone", "t", "m", "0"), Key("slow", "t", "m", "0"))
    assert not explains(rules, Key("slow", "t", "m", "0"), Key("pool", "t", "m", "0"))


def test_what_is_known_again_is_unknown_no_more() -> None:
    one = book(rule(wait=0, keep=60))
    for at, truth, unknown in (
        (0, YES, False),
        (5, UNKNOWN, True),
        (10, NO, False),
        (15, UNKNOWN, True),
        (20, YES, False),
    ):
        one.update([says(truth)], at, at)
        assert one.incidents()[0].unknown is unknown


def test_what_is_over_is_not_unknown() -> None:
    one = book(rule(wait=0))
    one.update([says(YES)], 0, 0)
    one.update([], GONE_SECONDS + 1, 0)
    assert [(each.state, each.unknown) for each in one.incidents()] == [(State.RESOLVED, False)]


def test_what_is_taken_up_leads_at_once() -> None:
    before = book(rule(wait=0))
    before.update([says(YES)], 0, 0)
    one = book(rule(wait=0))
    assert one.lead() is None
    one.restore(before.incidents(), 100.0)
    lead = one.lead()
    assert lead is not None
    assert lead.rule == "cause"


def test_a_change_leaves_with_what_its_step_knows_of_the_incident() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    changes = one.update([says(YES, "slow"), says(YES, "pool")], 0, 0)
    assert {
        each.incident.key.rule: (each.incident.symptoms, each.incident.explained_by) for each in changes
    } == {
        "slow": ((), ("pool",)),
        "pool": (("slow",), ()),
    }
    assert {each.incident for each in changes} == set(one.incidents())


def test_a_pending_one_begins_and_ends_as_the_symptom_it_was_going_to_be() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 60))
    changes = one.update([says(YES, "pool"), says(YES, "slow")], 0, 0)
    [begun] = [each.incident for each in changes if each.incident.key.rule == "slow"]
    assert (begun.state, begun.explained_by) == (State.PENDING, ("pool",))
    [over] = one.update([says(YES, "pool"), says(NO, "slow")], 5, 5)
    assert (over.incident.state, over.incident.explained_by) == (State.RESOLVED, ("pool",))


def test_what_resolves_keeps_the_tree_it_had_while_it_fired() -> None:
    one = book(
        rule("pool", 0, keep=20, explains=["slow", "queue"]),
        rule("slow", 0, keep=0),
        rule("queue", 0, keep=0),
    )
    one.update([says(YES, "pool"), says(YES, "slow"), says(YES, "queue")], 0, 0)
    # Its symptoms end before it, one after the other.
    [slow] = one.update([says(YES, "pool"), says(NO, "slow"), says(YES, "queue")], 5, 5)
    [queue] = one.update([says(NO, "pool"), says(NO, "queue")], 10, 10)
    assert [each.incident.explained_by for each in (slow, queue)] == [("pool",), ("pool",)]
    assert [each.symptoms for each in one.incidents() if each.state is State.FIRING] == [()]
    [pool] = one.update([says(NO, "pool")], 30, 30)
    assert (pool.incident.state, pool.incident.symptoms) == (State.RESOLVED, ("queue", "slow"))
    assert pool.incident in one.incidents()


def test_a_tree_begins_anew_with_each_time_it_fires() -> None:
    one = book(rule("pool", 0, keep=0, explains=["slow"]), rule("slow", 0, keep=0))
    one.update([says(YES, "pool"), says(YES, "slow")], 0, 0)
    one.update([says(NO, "pool"), says(NO, "slow")], 5, 5)
    one.update([says(YES, "pool")], 100, 100)
    [over] = one.update([says(NO, "pool")], 105, 105)
    assert over.incident.symptoms == ()


def test_what_was_taken_up_and_never_seen_again_ends_with_the_tree_it_came_with() -> None:
    before = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    before.update([says(YES, "pool"), says(YES, "slow")], 0, 0)
    one = book(rule("pool", 0, keep=0, explains=["slow"]), rule("slow", 0, keep=0))
    one.restore(before.incidents(), 100.0)
    changes = one.update([says(NO, "pool"), says(NO, "slow")], 105, 105)
    assert {
        each.incident.key.rule: (each.incident.symptoms, each.incident.explained_by) for each in changes
    } == {
        "pool": (("slow",), ()),
        "slow": ((), ("pool",)),
    }


def test_the_end_that_comes_with_other_rules_keeps_its_tree_too() -> None:
    one = book(rule("pool", 0, explains=["slow"]), rule("slow", 0))
    one.update([says(YES, "pool"), says(YES, "slow")], 0, 0)
    one.replace_rules(rule("slow", 0), wall=3)
    [over] = [each for each in one.update([says(YES, "slow")], 5, 5) if each.incident.state is State.RESOLVED]
    assert (over.incident.key.rule, over.incident.symptoms) == ("pool", ("slow",))


def test_changes_leave_without_remedies_that_contradict_those_of_the_lead() -> None:
    def asks(identity: str, truth: Truth, severity: Severity, direction: str) -> Finding:
        remedy = Remedy(direction, "--max-num-seqs", None, "why", "price", direction)
        return says(truth, identity, severity=severity)._replace(remedies=(remedy,) if truth is YES else ())

    one = book(rule("bad", 0, keep=0), rule("mild", 0, keep=0))

    def step(at: float, truth: Truth) -> dict[str, list[str | None]]:
        found = [
            asks("mild", truth, Severity.WARNING, "raise"),
            asks("bad", truth, Severity.CRITICAL, "lower"),
        ]
        changes = one.update(found, at, at)
        return {
            each.incident.key.rule: [every.direction for every in each.incident.remedies] for each in changes
        }

    assert step(0, YES) == {"mild": [], "bad": ["lower"]}
    assert step(5, NO) == {"mild": [], "bad": ["lower"]}


def test_held_time_is_what_was_watched_while_the_rule_said_yes() -> None:
    one = book(rule(wait=1000))
    moments = ((0, YES), (5, YES), (5 + GAP_SECONDS + 1, YES), (80, UNKNOWN), (90, YES), (95, YES))
    for at, truth in moments:
        one.update([says(truth)], at, at)
    assert [each.held_seconds for each in one.incidents()] == [10.0]


def test_the_lead_is_worth_a_page_unless_it_has_cleared() -> None:
    one = book(rule("stall", 0, keep=0, explains=["slow"]), rule("slow", 0))
    assert one.last.pageable == frozenset()
    one.update([says(YES, "stall"), says(YES, "slow")], 0, 0)
    assert {each.rule for each in one.last.pageable} == {"stall"}
    one.update([says(NO, "stall"), says(YES, "slow")], 5, 5)
    assert one.lead() == Key("stall", *ENGINE)
    assert one.last.pageable == frozenset()
    one.update([says(NO, "stall"), says(YES, "slow")], 30, 30)
    assert one.last.pageable == frozenset()
    one.update([says(NO, "stall"), says(YES, "slow")], 5 + AFTERMATH_SECONDS, 65)
    assert one.last.pageable == {Key("slow", *ENGINE)}


def test_what_a_step_ends_is_handed_on_also_where_it_is_not_shown_any_longer() -> None:
    one = book(rule("gone", 0), rule("waits", 60), rule("stays", 0))
    one.update([says(YES, "gone"), says(YES, "waits"), says(YES, "stays")], 0, 0)
    one.replace_rules(rule("waits", 60), rule("stays", 0), wall=3)
    one.update([says(NO, "waits"), says(YES, "stays")], 5, 5)
    handed_on = {each.key.rule: each.state for each in one.last.with_ended}
    assert handed_on == {"stays": State.FIRING, "gone": State.RESOLVED, "waits": State.RESOLVED}
    assert [each.key.rule for each in one.incidents()] == ["stays"]
