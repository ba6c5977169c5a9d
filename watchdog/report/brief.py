"""The diagnosis in a few lines a server: what is wrong, since when, where it is going, two steps to take."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from watchdog.model import Severity, State, Verdict
from watchdog.remedy.instruction import instruction
from watchdog.report.bodies import WORST_FIRST, DiagnosisBody, IncidentBody, TargetBody
from watchdog.report.impact import impact_text
from watchdog.report.overall import glance
from watchdog.report.text import (
    WIDTH,
    by_urgency,
    cleared_text,
    ended,
    ended_text,
    fleet_by_urgency,
    headline,
    maintenance_text,
    pod_text,
    proof_text,
    row,
    since_text,
    summary,
)
from watchdog.report.trend import Trend

MOST_IN_FULL = 5
"""Servers with a cause that get their lines; of the others the first line is enough to choose one."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a server beside its last look: where its lead is going, and how often it led in 24 hours."""

    trend: Trend | None = None
    times: int = 1


NOTHING_SEEN = Seen()


def brief_text(diagnosis: DiagnosisBody, seen: Mapping[str, Seen], width: int = WIDTH) -> str:
    """All targets, the worst first, one line for a healthy one; ends with a line break. `seen` is by target."""
    lines: list[str] = []
    if len(diagnosis.targets) != 1 or diagnosis.fleet:
        lines += summary(diagnosis, width).splitlines()
    urgent, notices = fleet_by_urgency(diagnosis)
    for incident in urgent:
        lines += _fleet_lines(incident, diagnosis.generated_at, width)
    ordered = sorted(diagnosis.targets, key=lambda body: WORST_FIRST.index(body.verdict))
    for place, body in enumerate(ordered):
        lines += _server_lines(body, diagnosis.generated_at, seen.get(body.name, NOTHING_SEEN), place, width)
    lines += [f"INFO  fleet {each.labels.get('model_name', '')}: {each.title}" for each in notices]
    return "\n".join(lines) + "\n"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def recurrence_text(times: int) -> str:
    """`4th time in 24 h`; empty for the first."""
    return f"{ordinal(times)} time in 24 h" if times > 1 else ""


def _fleet_lines(incident: IncidentBody, now: str | None, width: int) -> Iterable[str]:
    word = incident.severity.upper() if incident.state is State.FIRING else "PENDING"
    yield f"{word}  fleet {incident.labels.get('model_name', '')}: {incident.title}"
    yield from row("cause", incident.cause, width)
    yield from row("since", since_text(incident.since, now) if incident.since else "", width)
    yield from _steps(incident, width)


def _server_lines(body: TargetBody, now: str | None, seen: Seen, place: int, width: int) -> Iterable[str]:
    lead = next((each for each in body.incidents if each.key == body.lead_key), None)
    held = row("held", maintenance_text(body), width)
    if lead is None and body.verdict not in {Verdict.HEALTHY, Verdict.STARTING} and not body.failure:
        return [headline(body, None), *held, *_open_lines(body, width)]
    if lead is None:
        known = glance(body)
        first = headline(body, None)
        return [f"{first}; {known}" if known else first, *held, *_ended_lines(body, width)]
    if place >= MOST_IN_FULL:
        return [headline(body, lead), *held]
    return [headline(body, lead), *held, *_lead_lines(body, lead, now, seen, width)]


def _open_lines(body: TargetBody, width: int) -> Iterator[str]:
    """What is open of a server that no cause leads: how to prove its health, what is pending, what was."""
    yield from row("prove it", proof_text(body), width)
    for incident in body.incidents:
        if incident.state is State.PENDING and incident.severity is not Severity.INFO:
            yield from row("pending", f"{incident.rule}: {incident.cause or incident.title}", width)
    yield from row("readings", glance(body), width)
    yield from _ended_lines(body, width)


def _lead_lines(
    body: TargetBody, lead: IncidentBody, now: str | None, seen: Seen, width: int
) -> Iterator[str]:
    yield from row("cause was" if lead.cleared else "cause", lead.cause, width)
    told = [
        since_text(lead.since, now) if lead.since else "",
        cleared_text(lead, now),
        recurrence_text(seen.times),
    ]
    yield from row("since", "; ".join(filter(None, told)), width)
    yield from row("trend", seen.trend.text if seen.trend else "", width)
    yield from row("felt", impact_text(body), width)
    yield from row("pod", pod_text(body, now), width)
    yield from _steps(lead, width)
    yield from _ended_lines(body, width)
    yield from row("more", f"/diagnose?target={body.name}&format=text&verbose=true", width)


def _steps(incident: IncidentBody, width: int) -> Iterator[str]:
    """The first of what helps right now, and the first of what lasts."""
    for label, remedies in by_urgency(incident):
        yield from row(label, instruction(remedies[0]), width)


def _ended_lines(body: TargetBody, width: int) -> Iterator[str]:
    over = ended(body)
    if over:
        more = f" and {len(over) - 1} more within the hour" if len(over) > 1 else ""
        yield from row("ended", f"{over[0].rule}: {ended_text(over[0])}{more}", width)
