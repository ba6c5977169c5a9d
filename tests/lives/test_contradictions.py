"""What is said of one moment agrees with itself: a share is a share, a part is no more than its whole."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import CASES, RECORDINGS
from tests.watching import diagnosis, shipped_rules
from watchdog.model import Incident, Readings, Snapshot, State, Verdict
from watchdog.rule.rule import Rule
from watchdog.scrape.recording import read, thin

FILES = sorted((*RECORDINGS.glob("*.jsonl.xz"), *CASES.glob("*.jsonl.xz")))
INTERVAL_SECONDS = 15.0
STILL_SECONDS = 15.0
NUMBER = r"(-?\d[\d,]*(?:\.\d+)?)"
SHARE = re.compile(NUMBER + "%")
PART = re.compile(NUMBER + r"(?: run| wait)?(?: of (?:the |at most )?|; at most )" + NUMBER)
PACE = re.compile(NUMBER + r" (?:tokens a second|finish)\b")
HOLE = re.compile(r"\{|\bnan\b|\binf\b|\bunknown (?:full|of|tokens|requests|wait|run|s|ms)\b")
# They name a gauge that is wrong by what it shows.
ON_WHAT_CANNOT_BE = ("impossible", "counted or freed twice", "metric is wrong")
PACES = ("prompt_tokens_per_second", "generation_tokens_per_second", "finished_requests_per_second")


def number(text: str) -> float:
    return float(text.replace(",", ""))


def texts(incident: Incident) -> Iterator[str]:
    """All that a person reads of an incident but the clauses, which are printed as the rule has them."""
    yield from (incident.title, incident.cause, *incident.unhelpful)
    for remedy in incident.remedies:
        yield from (remedy.action, remedy.why, remedy.price)


def faults_of_text(text: str) -> Iterator[str]:
    is_of_a_fault = any(words in text for words in ON_WHAT_CANNOT_BE)
    if not is_of_a_fault and any(not 0 <= number(share) <= 100 for share in SHARE.findall(text)):
        yield f"no share: {text}"
    if any(number(part) > number(whole) for part, whole in PART.findall(text)):
        yield f"a part larger than its whole: {text}"
    if HOLE.search(text):
        yield f"a hole: {text}"


def faults_of_readings(readings: Readings) -> Iterator[str]:
    values = readings.values
    for name, value in values.items():
        if value is not None and (value < 0 or (name.endswith("ratio") and value > 1)):
            yield f"the reading {name} is {value}"
    still = values["seconds_since_progress"]
    if still is not None and still >= STILL_SECONDS:
        yield from (f"{name} is {values[name]} after {still} s" for name in PACES if values[name])
    budget = readings.latency_budget
    if budget and abs(sum(part.share for part in budget.values()) - 1) > 1e-6:
        yield f"the budget's shares are no whole: {budget}"


def faults_together(snapshot: Snapshot) -> Iterator[str]:
    """Of the parts of one answer: verdict, lead, limit and readings."""
    lead = snapshot.lead_incident
    if lead is not None and snapshot.verdict in (Verdict.HEALTHY, Verdict.IDLE):
        yield f"{snapshot.verdict} with the lead {lead.key.rule}"
    for readings in snapshot.readings:
        yield from faults_of_limit(lead, readings)
        still = readings.values["seconds_since_progress"]
        if still is not None and still >= STILL_SECONDS:
            paced = (one for one in of_engine(snapshot, readings) if paces(one.cause))
            yield from (f"still for {still:.0f} s, {one.key.rule}: {one.cause}" for one in paced)


def faults_of_limit(lead: Incident | None, readings: Readings) -> Iterator[str]:
    rule = shipped_rules().find(lead.key.rule) if lead is not None else None
    if lead is None or rule is None or rule.limit is None or lead.key[2:] != readings.subject[1:]:
        return
    if readings.limit != rule.limit:
        yield f"the lead {rule.id} is {rule.limit}, the reading {readings.limit}"


def of_engine(snapshot: Snapshot, readings: Readings) -> Iterator[Incident]:
    """What holds of the readings' engine now."""
    for one in snapshot.incidents:
        if (
            one.state is State.FIRING
            and not one.is_cleared
            and not one.unknown
            and one.key[2:] == readings.subject[1:]
        ):
            yield one


def paces(text: str) -> list[str]:
    return [pace for pace in PACE.findall(text) if number(pace) > 0]


def faults(snapshot: Snapshot) -> Iterator[str]:
    for incident in snapshot.incidents:
        if incident.state is not State.RESOLVED:
            where = f"{incident.key.rule}: "
            yield from (where + fault for text in texts(incident) for fault in faults_of_text(text))
    for readings in snapshot.readings:
        yield from faults_of_readings(readings)
    yield from faults_together(snapshot)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_nothing_that_is_said_of_a_recording_contradicts_itself(path: Path) -> None:
    recording, scrapes = read(path)
    one = diagnosis(recording.name)
    found = {fault for scrape in thin(scrapes, INTERVAL_SECONDS) for fault in faults(one.observe(scrape))}
    assert sorted(found) == []


def test_each_kind_of_contradiction_is_found() -> None:
    for text in (
        "102% of it",
        "264 of the 217 requests",
        "7.7 run; at most 4 ever ran at once",
        "{waiting_last:.0f} wait",
    ):
        assert list(faults_of_text(text))
    for text in (
        "100% of it",
        "26 of the 49 requests",
        "3.9 run; at most 4 ever ran at once",
        "--stream-interval 4",
    ):
        assert list(faults_of_text(text)) == []


@pytest.mark.parametrize("rule", shipped_rules().rules, ids=lambda rule: rule.id)
def test_no_plain_text_of_a_rule_has_a_field_that_nothing_fills(rule: Rule) -> None:
    told = (*rule.unhelpful, *rule.false_positives, *rule.references, rule.title)
    assert [text for text in told if "{" in text] == []
