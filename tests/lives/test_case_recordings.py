"""Recordings made after public reports: the product names the cause in time, says what matters, and is quiet before."""

from dataclasses import dataclass
from functools import cache

import pytest

from tests.places import CASES
from tests.watching import diagnosis, firing, lead
from watchdog.model import Incident, Severity, Snapshot
from watchdog.scrape.recording import read, thin

INTERVAL_SECONDS = 5.0


@dataclass(frozen=True)
class Answer:
    """The cause that leads by then, the words of it that matter, and until when nothing may lead (seconds).

    `led_before` is what is true as well and may be known first.
    """

    recording: str
    rule: str
    quiet_until_seconds: float
    by_seconds: float
    says: tuple[str, ...]
    severity: Severity = Severity.WARNING
    led_before: tuple[str, ...] = ()


ANSWERS = (
    Answer(
        "68-decode-latched",
        "decode-slowed",
        150,
        215,
        ("clocks", "other processes on the GPU", "driver", "restart"),
    ),
    Answer(
        "69b-kv-usage-negative-pool-full",
        "kv-pool-exhausted",
        90,
        120,
        ("impossible", "preemptions"),
        Severity.CRITICAL,
    ),
    Answer(
        "70b-decode-first-8rps", "seqs-limited", 90, 130, ("room for more",), led_before=("traffic-surge",)
    ),
    Answer(
        "73-open-files-limit",
        "open-files-exhausted",
        80,
        100,
        ("ulimit -n", "LimitNOFILE"),
        Severity.CRITICAL,
    ),
    Answer("75a-mm-preprocess-single-worker", "api-server-cpu-bound", 60, 85, ("images",)),
    Answer("89-host-memory-leak-killed", "host-memory-grows", 240, 320, ("GB of host memory",)),
    Answer("92b-two-streams-crawl-no-before", "streams-crawl", 0, 40, ("0.2 tokens/s",)),
)


@cache
def watched(name: str) -> tuple[tuple[float, Snapshot], ...]:
    """What is known after each scrape of a recording, by the seconds since its first."""
    _, scrapes = read(CASES / f"{name}.jsonl.xz")
    one = diagnosis(name)
    seen = list(thin(scrapes, INTERVAL_SECONDS))
    return tuple((scrape.at - seen[0].at, one.observe(scrape)) for scrape in seen)


def told(incident: Incident) -> str:
    """All that a person reads of an incident."""
    remedies = " ".join(f"{one.action} {one.why} {one.price}" for one in incident.remedies)
    return " ".join([incident.title, incident.cause, remedies, *incident.unhelpful])


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.recording)
def test_the_cause_leads_in_time_and_says_what_matters(answer: Answer) -> None:
    leads = [(at, one.lead_incident) for at, one in watched(answer.recording) if lead(one) == answer.rule]
    assert leads
    assert leads[0][0] <= answer.by_seconds
    incident = leads[-1][1]
    assert incident is not None
    assert incident.severity is answer.severity
    assert [words for words in answer.says if words not in told(incident)] == []


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.recording)
def test_nothing_leads_while_all_is_well(answer: Answer) -> None:
    early = {lead(one) for at, one in watched(answer.recording) if at < answer.quiet_until_seconds}
    assert early <= {None}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.recording)
def test_no_other_cause_leads_before_it(answer: Answer) -> None:
    leads = [found for _, one in watched(answer.recording) if (found := lead(one)) is not None]
    assert next(rule for rule in leads if rule not in answer.led_before) == answer.rule


def test_89_what_came_after_says_how_large_the_process_had_become() -> None:
    seen = watched("89-host-memory-leak-killed")
    for rule in ("target-down", "engine-restarted"):
        incidents = [one for _, snapshot in seen for one in snapshot.incidents if one.key.rule == rule]
        assert "used 102.0 GB of host memory" in incidents[-1].cause
    assert "host-memory-grows" not in firing(seen[-1][1])


def test_74_nobody_is_told_to_let_fewer_requests_run() -> None:
    last = watched("74-structured-output-cpu")[-1][1]
    actions = [remedy.action for incident in last.incidents for remedy in incident.remedies]
    assert [action for action in actions if "fewer" in action.lower() or "replica" in action] == []


def test_75a_time_before_the_engine_is_told_from_its_queue() -> None:
    (engine,) = watched("75a-mm-preprocess-single-worker")[-1][1].readings
    budget = engine.latency_budget
    assert budget["before_engine"].share > 0.9
    assert budget["queue"].seconds < 0.01


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_79a_both_sides_of_a_pair_that_works_are_quiet(side: str) -> None:
    seen = watched(f"79a-pd-works-{side}")
    assert {rule for _, snapshot in seen for rule in firing(snapshot)} == set()
