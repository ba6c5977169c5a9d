"""The page: one self-contained HTML document, no script or style from elsewhere, every value escaped."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from watchdog import __version__
from watchdog.model import Verdict
from watchdog.report import text
from watchdog.report.bodies import (
    WORST_FIRST,
    DiagnosisBody,
    IncidentBody,
    IncidentDetailBody,
    IncidentsBody,
    RuleBody,
    RulesBody,
    TargetsBody,
    time_text,
)
from watchdog.report.brief import recurrence_text
from watchdog.report.course import Course, Line
from watchdog.report.day_readings import DayReadings
from watchdog.report.episodes import Story
from watchdog.report.impact import impact_text
from watchdog.report.selection import Selection
from watchdog.text import number_text, quantity_text, seconds_text
from watchdog.web import wording
from watchdog.web.chart import story_strip, strip
from watchdog.web.fleet import choices, fleet
from watchdog.web.pictures import moment, pictures

REFRESH_SECONDS = 5
ALL = Selection()


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of servers beside their last look, by their names.

    `courses` are how the readings of each went, `signals` how what its lead's evidence needs beside them went,
    `verdicts` and `readings` the last 24 hours, `recurrences` how often its lead held in these.
    """

    courses: Mapping[str, Course] = field(default_factory=dict)
    verdicts: Mapping[str, Sequence[Verdict | None]] = field(default_factory=dict)
    readings: Mapping[str, DayReadings] = field(default_factory=dict)
    recurrences: Mapping[str, int] = field(default_factory=dict)
    signals: Mapping[str, Mapping[str, Line]] = field(default_factory=dict)


NOTHING = Memory()

_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "seconds": seconds_text,
    "reading": lambda value, name: quantity_text(name, value),
    "readings": text.readings_text,
    "words": text.words,
    "label": text.label,
    "reading_label": text.reading_label,
    "beside": text.beside,
    "standing": text.standing_text,
    "state": text.state_text,
    "maintenance": text.maintenance_text,
    "pod": text.pod_text,
    "proof": text.proof_text,
    "ended": text.ended,
    "urgency": text.by_urgency,
    "ended_time": text.ended_text,
    "ago": text.age_text,
    "advice": text.failure_advice,
    "budget": text.budget_text,
    "impact": impact_text,
    "recurrence": recurrence_text,
    "clock": wording.clock,
    "moment": time_text,
    "lasted": wording.lasted,
    "of_engine": wording.of_engine,
    "brief": wording.brief,
    "lead_title": wording.lead_title,
    "icon": wording.icon,
    "cost": wording.cost,
    "step": wording.step,
    "first_step": wording.first_step,
    "as_words": wording.as_words,
    "number": number_text,
    "narrowed": wording.narrowed,
}


def diagnosis_page(diagnosis: DiagnosisBody, memory: Memory = NOTHING, dashboard_url: str = "") -> Response:
    """The diagnosis of one target, or of none; `dashboard_url` is the template of a dashboard's address, if any."""
    ordered = sorted(diagnosis.targets, key=lambda body: WORST_FIRST.index(body.verdict))
    urgent, notices = text.fleet_by_urgency(diagnosis)
    return _page(
        "diagnosis.html",
        diagnosis=diagnosis,
        targets=ordered,
        urgent=urgent,
        notices=notices,
        recurrences=memory.recurrences,
        now=diagnosis.generated_at,
        asked=[("target", ordered[0].name)] if len(ordered) == 1 else (),
        strips={name: strip(verdicts) for name, verdicts in memory.verdicts.items()},
        seen={
            each.name: pictures(
                each,
                memory.courses.get(each.name),
                memory.readings.get(each.name),
                memory.signals.get(each.name, {}),
                moment(diagnosis.generated_at),
            )
            for each in ordered
        },
        dashboards={each.name: wording.dashboard(dashboard_url, each) for each in ordered},
    )


def fleet_page(diagnosis: DiagnosisBody, memory: Memory = NOTHING, selection: Selection = ALL) -> Response:
    """Many targets, a row for each that is not healthy; only those of the `selection`."""
    shown = selection.of(diagnosis)
    urgent, notices = text.fleet_by_urgency(shown)
    return _page(
        "fleet.html",
        diagnosis=shown,
        fleet=fleet(shown.targets, memory.courses),
        recurrences=memory.recurrences,
        choices=choices(diagnosis.targets),
        strips={name: strip(verdicts) for name, verdicts in memory.verdicts.items()},
        total=len(shown.targets),
        urgent=urgent,
        notices=notices,
        selection=selection,
        asked=selection.asked,
        now=diagnosis.generated_at,
    )


def incident_page(body: IncidentDetailBody, story: Story, wall: float) -> Response:
    """One incident: links in alerts lead here. `story` is what its picture shows, `wall` is now."""
    return _page(
        "incident.html",
        incident=body.incident,
        story=story,
        picture=story_strip(story, body.incident.severity),
        steps=[*wording.history(body.timeline, story.marks)][::-1],
        now=time_text(wall),
    )


def incidents_page(body: IncidentsBody, wall: float) -> Response:
    """The incidents that were asked for; `wall` is now."""
    return _page(
        "incidents.html",
        heading="Incidents",
        incidents=body.incidents,
        kept=body.kept,
        now=time_text(wall),
    )


def rules_page(body: RulesBody, firing: Mapping[str, int], wall: float) -> Response:
    """All rules; `firing` is how often each holds now."""
    return _page("rules.html", heading="Rules", rules=body.rules, firing=firing, now=time_text(wall))


def rule_page(
    rule: RuleBody,
    firing: Sequence[IncidentBody],
    meanings: Mapping[str, str],
    blind: Sequence[tuple[str, Sequence[str]]],
    wall: float,
) -> Response:
    """One rule: what it says with the numbers of now where it holds (`firing`), else what it would look at.

    `meanings` are its signals in words, `blind` the targets on which it is unavailable and what they lack.
    """
    return _page("rule.html", rule=rule, firing=firing, meanings=meanings, blind=blind, now=time_text(wall))


def targets_page(body: TargetsBody, wall: float) -> Response:
    """How the scrapes of all targets go."""
    return _page("targets.html", heading="Servers", targets=body.targets, now=time_text(wall))


def _page(template: str, asked: Sequence[tuple[str, str]] = (), **values: object) -> Response:
    """`asked` is what the same is asked for by as text and as JSON."""
    nonce = secrets.token_urlsafe(16)
    content = _TEMPLATES.get_template(template).render(
        **values, asked=asked, nonce=nonce, version=__version__, refresh_seconds=REFRESH_SECONDS
    )
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(content, headers={"content-security-policy": policy})
