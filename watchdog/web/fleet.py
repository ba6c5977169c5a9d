"""A fleet at a glance: the servers that are not healthy as rows, the worst first, the others as a grid."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from watchdog.model import Verdict
from watchdog.report.bodies import WORST_FIRST, IncidentBody, TargetBody
from watchdog.report.course import Course
from watchdog.report.overall import COLUMNS, overall, overall_text
from watchdog.report.text import ended, state_text
from watchdog.text import quantity_text
from watchdog.web.chart import sparkline

CALM = frozenset({Verdict.HEALTHY})
NEEDY = frozenset({Verdict.CRITICAL, Verdict.DEGRADED, Verdict.UNKNOWN})
"""What wants a person; the other rows are to be seen, no more: an idle server is no trouble, a pending one not yet."""
MOST_ROWS = 20
"""More rows than fit on a screen are folded, without pictures: what is wrong with so many is seldom theirs alone."""
MODEL = "model"
"""The name of the choice among models; labels have their own names."""
MOST_CHOICES = 30
IDLE = "Idle; a hang would not show"
_CAUSE_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One server: its body, the cause in a few words, since when (as bodies write it), and its readings in words."""

    body: TargetBody
    cause: str
    since: str | None
    waiting: str
    kv: str
    ttft: str
    picture: Markup


@dataclass(frozen=True, slots=True)
class Fleet:
    """All servers that are shown. `rows` are the first of those that are not healthy, `more` the others of them."""

    rows: Sequence[Row]
    more: Sequence[Row]
    calm: Sequence[TargetBody]
    counts: Mapping[Verdict, int]
    average: str
    ended: Sequence[tuple[TargetBody, IncidentBody]]

    @property
    def in_need(self) -> int:
        """How many servers need somebody."""
        return sum(self.counts.get(each, 0) for each in NEEDY)


def choices(targets: Sequence[TargetBody]) -> Mapping[str, Mapping[str, int]]:
    """What a fleet can be narrowed down to: how many servers there are of each model and of each value of each label.

    A model, or a label, that parts nothing is left out; of very many values those with the most servers are there.
    """
    counts: dict[str, Counter[str]] = {MODEL: Counter()}
    for body in targets:
        counts[MODEL].update(set(body.vllm.models))
        for name, value in body.labels.items():
            counts.setdefault(name, Counter())[value] += 1
    return {
        name: dict(sorted(of.most_common(MOST_CHOICES)))
        for name, of in counts.items()
        if len(of) > 1 or 0 < sum(of.values()) < len(targets)
    }


def fleet(targets: Iterable[TargetBody], courses: Mapping[str, Course]) -> Fleet:
    """The fleet as its bodies stand; `courses` are how the readings of each went."""
    ordered = sorted(targets, key=lambda body: WORST_FIRST.index(body.verdict))
    listed = [body for body in ordered if body.verdict not in CALM]
    calm = [body for body in ordered if body.verdict in CALM]
    over = [(body, each) for body in ordered for each in ended(body)]
    return Fleet(
        rows=[_row(body, _picture(courses.get(body.name), body)) for body in listed[:MOST_ROWS]],
        more=[_row(body, Markup()) for body in listed[MOST_ROWS:]],
        calm=calm,
        counts={
            each: count for each in WORST_FIRST if (count := sum(one.verdict is each for one in ordered))
        },
        average=_average(calm),
        ended=sorted(over, key=lambda pair: pair[1].resolved_at or "", reverse=True),
    )


def _row(body: TargetBody, picture: Markup) -> Row:
    lead = next((each for each in body.incidents if each.key == body.lead_key), None)
    told = lead.title if lead is not None else _without_lead(body)
    cause = told if len(told) <= _CAUSE_CHARACTERS else f"{told[: _CAUSE_CHARACTERS - 3]}..."
    waiting, kv, ttft = (overall_text(body, name) for name, _ in COLUMNS)
    since = lead.since if lead is not None else None
    return Row(body, cause[:1].upper() + cause[1:], since, waiting, kv, ttft, picture)


def _without_lead(body: TargetBody) -> str:
    return IDLE if body.verdict is Verdict.IDLE else re.split("[,;] ", state_text(body), maxsplit=1)[0]


def _picture(course: Course | None, body: TargetBody) -> Markup:
    if course is None or not body.readings:
        return Markup()
    first = body.readings[0]
    line = course.line((first.model_name, first.engine), "waiting_requests")
    return sparkline(line) if line is not None and len(line.known) > 1 else Markup()


def _average(calm: Sequence[TargetBody]) -> str:
    told = []
    for name, label in COLUMNS:
        known = [value for body in calm if (value := overall(body, name)) is not None]
        if known:
            told.append(f"{label} {quantity_text(name, sum(known) / len(known))}")
    return f"average: {', '.join(told)}" if told else ""
