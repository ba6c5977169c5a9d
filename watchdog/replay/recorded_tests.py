"""The tests of rules that point at a phase of a recording: windows, holds and formulas, not only clauses."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Incident, Scrape, Snapshot, Target
from watchdog.rule.own_tests import RuleTestResult
from watchdog.rule.rule import Expectation, Rule, RuleTest
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.recording import Phase, Recording

LAG_SECONDS = 5.0
"""An answer counts for a phase up to so long after its end: a scrape is that much later."""


class RecordedTest(NamedTuple):
    """A rule and one of its tests."""

    rule: Rule
    test: RuleTest


def recorded_tests(rules: Iterable[Rule]) -> Iterator[RecordedTest]:
    """The tests of these rules that point at a recording."""
    return (RecordedTest(rule, test) for rule in rules for test in rule.tests if test.recording is not None)


def run(
    tests: Sequence[RecordedTest], recording: Recording, scrapes: Iterable[Scrape], rules: RuleSet
) -> list[RuleTestResult]:
    """Runs the tests on one recording, in one replay with all of the rules in force."""
    diagnosis = TargetDiagnosis(Target(recording.name, recording.name), rules)
    snapshots = [diagnosis.observe(scrape) for scrape in scrapes]
    return [
        RuleTestResult(one.rule.id, one.test.name, tuple(_problems(one, recording.phases, snapshots)))
        for one in tests
    ]


def _problems(one: RecordedTest, phases: Sequence[Phase], snapshots: Sequence[Snapshot]) -> Iterator[str]:
    test = one.test
    number = test.phase or 0
    if number > len(phases):
        yield f"the recording {test.recording} has {len(phases)} phases"
        return
    phase = phases[number - 1]
    until = phase.end if test.expect is Expectation.SILENT else phase.end + LAG_SECONDS
    seen = [each for each in snapshots if phase.start <= each.wall < until]
    if not seen:
        yield f"no scrape of {test.recording} is in its phase {number} ({phase.label})"
        return
    firing = [incident for each in seen for incident in each.firing if incident.key.rule == one.rule.id]
    led = any(each.lead is not None and each.lead.rule == one.rule.id for each in seen)
    said = Expectation.LEADS if led else Expectation.FIRES if firing else Expectation.SILENT
    if said is not test.expect and not (test.expect is Expectation.FIRES and led):
        leads = sorted({each.lead.rule for each in seen if each.lead is not None})
        instead = f"; the lead is {', '.join(leads)}" if leads and not led else ""
        yield f"expected {test.expect}, in phase {number} ({phase.label}) of {test.recording} it {_says(said)}{instead}"
    elif firing:
        yield from _differences(test, firing[-1])


def _says(said: Expectation) -> str:
    return "is silent" if said is Expectation.SILENT else str(said)


def _differences(test: RuleTest, incident: Incident) -> Iterator[str]:
    """How the incident, as it was last in the phase, is not what the test wants."""
    if test.severity and incident.severity is not test.severity:
        yield f"expected severity {test.severity}, it is {incident.severity}"
    if test.cause_contains and test.cause_contains not in incident.cause:
        yield f"the cause does not contain {test.cause_contains!r}: {incident.cause}"
    for flag, value in test.remedy.items():
        values = [remedy.value or "" for remedy in incident.remedies if remedy.flag == flag]
        if not values:
            yield f"{flag} is not offered"
        elif value not in values:
            yield f"expected {flag} {value}, it is {' or '.join(values)}"
    for flag in test.not_offered:
        if any(remedy.flag == flag for remedy in incident.remedies):
            yield f"{flag} is offered"
