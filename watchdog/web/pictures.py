"""The pictures of one server: what is drawn of its course, chosen by what is wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from types import MappingProxyType

from markupsafe import Markup

from watchdog.model import Subject
from watchdog.report.bodies import IncidentBody, TargetBody
from watchdog.report.clause_line import ClauseLine, clause_line
from watchdog.report.course import BUDGET, LINES, Course, Engine, Line, Mark
from watchdog.report.day_readings import LINES as DAY_LINES
from watchdog.report.day_readings import DayReadings
from watchdog.report.text import reading_label
from watchdog.report.trend import Trend, trend
from watchdog.text import quantity_text, seconds_text
from watchdog.web.chart import line_chart, sparkline, stacked

MOST_CHARTS = 4
_ALWAYS = ("waiting_requests", "kv_usage_ratio", "ttft_p95_seconds", "running_requests")
BEFORE_SECONDS = 60.0
"""What was so long before the onset is what was usual: at the onset itself it had begun to rise."""
_SHORTEST_SECONDS = 15.0
NO_SIGNALS: Mapping[str, Line] = MappingProxyType({})
_LEAST_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with what it is of, its newest value, and how far back it goes."""

    label: str
    now: str
    span: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class Pictures:
    """What there is to see of one server; all empty where nothing was remembered yet.

    `clauses` are by the text of the evidence, `sparks` by engine and reading, `budgets` by engine, `day` the readings
    over 24 hours. `before` is the time
    to first token (p95, seconds) before the lead began; None where that is not known.
    """

    charts: tuple[Chart, ...] = ()
    clauses: dict[str, Chart] = field(default_factory=dict)
    sparks: dict[Engine, dict[str, Markup]] = field(default_factory=dict)
    budgets: dict[Engine, Markup] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    day: tuple[Chart, ...] = ()
    trend: Trend | None = None
    before: float | None = None


def pictures(
    target: TargetBody,
    course: Course | None,
    day: DayReadings | None = None,
    signals: Mapping[str, Line] = NO_SIGNALS,
    wall: float = 0.0,
) -> Pictures:
    """The pictures of a server as its body stands; None where nothing is remembered of it.

    `signals` are those of the lead's evidence that are no readings (`signals_wanted`), `wall` is now, for `day`.
    """
    of_day = tuple(_day_charts(day, wall)) if day is not None else ()
    changes = day.marks(wall) if day is not None else course.marks() if course is not None else []
    if course is None or not target.readings:
        return Pictures(day=of_day, marks=tuple(changes))
    lead = next((each for each in target.incidents if each.key == target.lead_key), None)
    engine = _engine_of(target, lead)
    onset = moment(lead.since) if lead is not None and lead.since else None
    draw = partial(_chart, course, signals, engine, onset)
    clauses = _clauses(lead)
    first_token = course.line(engine, "ttft_p95_seconds")
    engines = [(each.model_name, each.engine) for each in target.readings]
    return Pictures(
        charts=tuple(_charts(list(clauses.values()), draw)),
        clauses={text: chart for text, each in clauses.items() if (chart := draw(each)) is not None},
        sparks={each: dict(_sparks(course, each)) for each in engines},
        budgets={each: drawn for each in engines if (drawn := _budget(course, each, onset))},
        marks=tuple(changes),
        day=of_day,
        trend=lead_trend(target, course),
        before=first_token.at(onset - BEFORE_SECONDS)
        if first_token is not None and onset is not None
        else None,
    )


def lead_trend(target: TargetBody, course: Course | None) -> Trend | None:
    """Where a lead that holds is going; of one that has cleared the end is shown already."""
    lead = next((each for each in target.incidents if each.key == target.lead_key), None)
    if course is None or lead is None or lead.cleared or not target.readings:
        return None
    engine = _engine_of(target, lead)
    return trend(course.line(engine, "waiting_requests"), course.line(engine, "ttft_p95_seconds"))


def signals_wanted(target: TargetBody) -> tuple[Subject, Sequence[str]] | None:
    """The engine that leads, and what of its evidence is no reading; None where there is nothing of the kind."""
    lead = next((each for each in target.incidents if each.key == target.lead_key), None)
    names = [each.name for each in _clauses(lead).values() if not each.is_reading]
    return (Subject(target.name, *_engine_of(target, lead)), names) if names and target.readings else None


def _engine_of(target: TargetBody, lead: IncidentBody | None) -> Engine:
    """The engine that the lead is about, else the first."""
    first = target.readings[0]
    if lead is None or "model_name" not in lead.labels:
        return (first.model_name, first.engine)
    return (lead.labels["model_name"], lead.labels.get("engine", ""))


def _clauses(lead: IncidentBody | None) -> dict[str, ClauseLine]:
    rows = lead.evidence if lead is not None else []
    return {row.text: found for row in rows if (found := clause_line(row.text)) is not None}


def _charts(clauses: list[ClauseLine], draw: "partial[Chart | None]") -> Iterator[Chart]:
    """What people look at first, with the thresholds of the clauses; then the first that only a clause is about."""
    with_threshold = {each.name: each for each in reversed(clauses)}
    own = [each for each in clauses if each.name not in _ALWAYS][:1]
    always = [with_threshold.get(name, ClauseLine(name, None)) for name in _ALWAYS]
    chosen = [*always[: MOST_CHARTS - len(own)], *own]
    return (chart for each in chosen if (chart := draw(each)) is not None)


def _chart(
    course: Course, signals: Mapping[str, Line], engine: Engine, onset: float | None, clause: ClauseLine
) -> Chart | None:
    line = course.line(engine, clause.name) if clause.is_reading else signals.get(clause.name)
    if line is None or line.times[-1] - line.times[0] < _SHORTEST_SECONDS:
        return None
    shown = partial(quantity_text, clause.name)
    label = reading_label(clause.name)
    newest = line.values[-1]
    return Chart(
        label=label[:1].upper() + label[1:],
        now=shown(newest) if newest is not None else "not known",
        span=seconds_text(float(round(line.times[-1] - line.times[0]))),
        picture=line_chart(line, shown, clause.threshold, onset),
    )


def _day_charts(day: DayReadings, wall: float) -> Iterator[Chart]:
    """The greatest of each ten minutes over 24 hours, of readings of which more than a moment is known."""
    for name in DAY_LINES:
        line = day.line(name, wall)
        if line is None or len(line.known) < _LEAST_SLOTS:
            continue
        shown = partial(quantity_text, name)
        label = reading_label(name)
        yield Chart(
            label=label[:1].upper() + label[1:],
            now=f"highest {shown(max(line.known))}",
            span="24 h",
            picture=line_chart(line, shown),
        )


def _sparks(course: Course, engine: Engine) -> Iterator[tuple[str, Markup]]:
    for name in LINES:
        if name in BUDGET.values():
            continue
        line = course.line(engine, name)
        if line is not None and len(line.known) > 1:
            yield name, sparkline(line)


def _budget(course: Course, engine: Engine, onset: float | None) -> Markup:
    lines = {phase: line for phase, name in BUDGET.items() if (line := course.line(engine, name)) is not None}
    is_whole = len(lines) == len(BUDGET) and all(len(line.known) > 1 for line in lines.values())
    return stacked(lines, seconds_text, onset) if is_whole else Markup()


def moment(text: str | None) -> float:
    """Unix seconds of a moment as bodies write it; 0 where it is not known."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
