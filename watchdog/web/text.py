"""The diagnosis as plain text for a terminal at night: the verdict first, then the cause, then what to do."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from watchdog.model import NO_LABELS, State, Verdict
from watchdog.signals.number import AtLeast
from watchdog.web.bodies import (
    WORST_FIRST,
    DiagnosisBody,
    IncidentBody,
    LatencyShareBody,
    RemedyBody,
    TargetBody,
)

WIDTH = 100
TOO_SHORT = "not enough history to judge yet"
_MARGIN = 13
_TIE = "~"
_ABBREVIATIONS = {"kv": "KV", "ttft": "TTFT", "itl": "ITL", "e2e": "end to end"}
_SHOWN_READINGS = (
    ("running_requests", "running"),
    ("waiting_requests", "waiting"),
    ("kv_usage_ratio", "KV"),
    ("prompt_tokens_per_second", "in"),
    ("generation_tokens_per_second", "out"),
    ("prefix_hit_ratio", "prefix hits"),
    ("ttft_p95_seconds", "TTFT p95"),
    ("itl_p99_seconds", "ITL p99"),
    ("requests_that_fit", "fit in the pool"),
)


def diagnosis_text(
    diagnosis: DiagnosisBody, width: int = WIDTH, starting: Mapping[str, str] = NO_LABELS
) -> str:
    """All targets, the worst first; ends with a line break. `starting` is as in `target_text`."""
    blocks = []
    if len(diagnosis.targets) != 1 or diagnosis.fleet:
        blocks.append(_summary(diagnosis, width))
    blocks += [_fleet_text(incident, diagnosis.generated_at, width) for incident in diagnosis.fleet]
    ordered = sorted(diagnosis.targets, key=lambda body: WORST_FIRST.index(body.verdict))
    blocks += [target_text(body, diagnosis.generated_at, width, starting) for body in ordered]
    return "\n".join(blocks)


def target_text(
    body: TargetBody, now: str | None, width: int = WIDTH, starting: Mapping[str, str] = NO_LABELS
) -> str:
    """One target: verdict and lead in the first line, then cause, evidence, remedies and readings.

    `now` is the diagnosis' own time as it is written there. `starting` says by target why one cannot be
    judged yet, where the caller knows more than that its history is short.
    """
    lead = next((each for each in body.incidents if each.key == body.lead_key), None)
    # Never wrapped: `head -1` and `grep` at night want the whole of it.
    lines = [one_line(_headline(body, lead, starting.get(body.name, TOO_SHORT)))]
    if body.failure:
        lines += _row("scrape", f"failed, {body.failure.reason}: {body.failure.detail}", width)
    if lead:
        lines += _incident_lines(lead, now, width)
    lines += _beside(body, lead, width)
    for readings in body.readings:
        lines += _engine_lines(body, readings.engine, readings.model_name, readings.values, width)
        lines += _row("time went", budget_text(readings.latency_budget), width)
        lines += _row("limit", _limit_text(readings.limit, readings.limit_share), width)
    lines += _row("seen", _seen(body), width)
    lines += _row("hints", _hint_text(len(body.hints)), width)
    return "\n".join(lines) + "\n"


def number_text(name: str, value: float | None) -> str:
    """A reading as people say it: the unit follows from its name."""
    if value is None or not math.isfinite(value):
        return "unknown"
    bound = ">= " if isinstance(value, AtLeast) else ""
    return bound + _with_unit(name, float(value))


def seconds_text(seconds: float) -> str:
    """A time as people say it: 38 ms, 4.2 s, 3m 20s, 2h 5m, 3d 4h."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 or seconds == 0 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if hours else f"{days}d"


def budget_text(budget: dict[str, LatencyShareBody]) -> str:
    """Where a mean request's time went, in one line; empty where that is not known."""
    parts = [
        f"{phase} {seconds_text(part.seconds)} ({part.share:.0%})"
        for phase, part in budget.items()
        if part.seconds is not None and part.share is not None
    ]
    return ", ".join(parts)


def remedy_flag(remedy: RemedyBody) -> str:
    """`--flag value`; `raise --flag` where the value is not known; empty for an action without a flag."""
    if not remedy.flag or remedy.value:
        return f"{remedy.flag or ''} {remedy.value or ''}".strip()
    return f"{remedy.direction} {remedy.flag}" if remedy.direction in {"raise", "lower"} else remedy.flag


def readings_text(values: dict[str, float | None]) -> str:
    """The readings a person looks at first, in one line; those that are unknown are left out."""
    return ", ".join(_readings(values))


def _readings(values: dict[str, float | None]) -> list[str]:
    return [
        f"{label} {number_text(name, values[name])}"
        for name, label in _SHOWN_READINGS
        if values.get(name) is not None
    ]


def words(name: str) -> str:
    """A name of ours as words: `kv_usage` is "KV usage"."""
    return " ".join(_ABBREVIATIONS.get(part, part) for part in name.split("_"))


def one_line(text: str) -> str:
    """`text` without line breaks, terminal escapes and other control characters a server may send."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _with_unit(name: str, value: float) -> str:
    if name.endswith("_tokens_per_second"):
        return f"{_rounded(value)} tokens/s"
    if name.endswith("_per_second"):
        return f"{_rounded(value)}/s"
    if name.endswith("_seconds") or name.startswith("seconds_"):
        return seconds_text(value)
    if name.endswith("_ratio"):
        return f"{value:.0%}" if value == 0 or abs(value) >= 0.01 else f"{value:.2%}"
    return _rounded(value)


def _rounded(value: float) -> str:
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _summary(diagnosis: DiagnosisBody, width: int) -> str:
    """The first line for many targets: the worst verdict, where it is, and how the others do."""
    counts = [
        f"{count} {verdict}"
        for verdict in WORST_FIRST
        if (count := sum(body.verdict is verdict for body in diagnosis.targets))
    ]
    worst = next(
        (body for body in diagnosis.targets if body.verdict is diagnosis.verdict and body.lead), None
    )
    about = f"{worst.lead} on {worst.name}{_more(diagnosis)}" if worst else ""
    total = f"{len(diagnosis.targets)} targets" + (f": {', '.join(counts)}" if counts else " are configured")
    text = f"{diagnosis.verdict.upper()}  " + "; ".join(part for part in (about, total) if part)
    return "\n".join(_wrapped(text, width)) + "\n"


def _more(diagnosis: DiagnosisBody) -> str:
    """How many targets have the worst verdict beside the one that is named."""
    more = sum(body.verdict is diagnosis.verdict for body in diagnosis.targets) - 1
    return f" and {more} more" if more else ""


def _fleet_text(incident: IncidentBody, now: str | None, width: int) -> str:
    title = f"{incident.severity.upper()}  fleet {incident.labels.get('model_name', '')}: {incident.title}"
    return "\n".join([*_wrapped(title, width), *_incident_lines(incident, now, width)]) + "\n"


def _headline(body: TargetBody, lead: IncidentBody | None, starting: str) -> str:
    words = f"{body.verdict.upper()}  {body.name}"
    if lead:
        return f"{words}: {lead.title} ({lead.rule}{_of_engine(lead)})"
    explained = {
        Verdict.HEALTHY: f"nothing fires{_shadows(body)}",
        Verdict.STARTING: starting,
        Verdict.UNKNOWN: _why_unknown(body),
    }.get(body.verdict, "")
    return f"{words}: {explained}" if explained else words


def _shadows(body: TargetBody) -> str:
    """What a healthy server shows all the same: a queue, and what may fire soon."""
    waiting = sum(readings.values.get("waiting_requests") or 0.0 for readings in body.readings)
    pending = dict.fromkeys(each.rule for each in body.incidents if each.state is State.PENDING)
    parts = [f"{waiting:.0f} waiting"] if waiting else []
    parts += [f"pending: {', '.join(pending)}"] if pending else []
    return f" ({'; '.join(parts)})" if parts else ""


def _why_unknown(body: TargetBody) -> str:
    if body.failure:
        return "its page could not be read"
    if body.scrape_age_seconds is not None and not body.readings:
        return "it answers, but shows no series of vLLM: still loading, or the wrong port or path"
    return "it cannot be judged now"


def _of_engine(incident: IncidentBody) -> str:
    parts = [incident.labels.get("model_name", ""), incident.labels.get("engine", "")]
    return ", " + " engine ".join(filter(None, parts)) if any(parts) else ""


def _incident_lines(incident: IncidentBody, now: str | None, width: int) -> Iterator[str]:
    yield from _row("cause", incident.cause, width)
    for index, evidence in enumerate(incident.evidence):
        yield from _row("" if index else "evidence", evidence.text, width)
    for index, remedy in enumerate(incident.remedies):
        yield from _remedy_lines("" if index else "do this", index + 1, remedy, width)
    for index, text in enumerate(incident.unhelpful):
        yield from _row("" if index else "won't help", text, width)
    yield from _row("symptoms", ", ".join(incident.symptoms), width)
    if incident.firing_since:
        yield from _row("since", _since(incident.firing_since, now), width)
    yield from _row("runbook", incident.runbook, width)


def _remedy_lines(label: str, number: int, remedy: RemedyBody, width: int) -> Iterator[str]:
    flag = remedy_flag(remedy)
    told = remedy.value is None and (remedy.flag or "") in remedy.action
    action = remedy.action if told else f"{flag} - {remedy.action}"
    yield from _row(label, f"{number}. {action}", width, hang=3)
    yield from _row("", f"   why: {remedy.why}" if remedy.why else "", width, hang=8)
    yield from _row("", f"   price: {remedy.price}" if remedy.price else "", width, hang=10)


def _beside(body: TargetBody, lead: IncidentBody | None, width: int) -> Iterator[str]:
    """What else fires, and what is about to, but for the lead and its symptoms."""
    shown = {lead.key} if lead else set()
    hidden = set(lead.symptoms) if lead else set()
    for state, label in ((State.FIRING, "also"), (State.PENDING, "pending")):
        for incident in body.incidents:
            if incident.state is state and incident.key not in shown and incident.rule not in hidden:
                text = f"{incident.rule}{_of_engine(incident)}: {incident.cause or incident.title}"
                yield from _row(label, text, width)


def _engine_lines(
    body: TargetBody, engine: str, model: str, values: dict[str, float | None], width: int
) -> Iterator[str]:
    shown = _readings(values)
    if not shown:
        return
    if len(body.readings) > 1:
        yield from _row("engine", " engine ".join(filter(None, (model, engine))), width)
    # A reading is never parted from its name.
    joined = ", ".join(each.replace(" ", _TIE) for each in shown)
    yield from (line.replace(_TIE, " ") for line in _row("readings", joined, width))


def _limit_text(limit: str, share: float | None) -> str:
    if limit in {"unknown", "none"}:
        return ""
    held = f", {share:.0%} of the time" if share is not None else ""
    return words(limit) + held


def _seen(body: TargetBody) -> str:
    age = body.scrape_age_seconds
    parts = ["never scraped with success" if age is None else f"scraped {seconds_text(age)} ago"]
    version = body.vllm.version or body.vllm.bracket
    if version:
        parts.append(f"vLLM {version}")
    if body.vllm.models:
        parts.append(", ".join(body.vllm.models))
    blind = sorted({each.rule for each in body.blind})
    if blind and age is not None:
        parts.append(f"{len(blind)} rule{'s' * (len(blind) != 1)} blind: {_few(blind)}")
    return "; ".join(parts)


def _hint_text(count: int) -> str:
    if not count:
        return ""
    thing = "thing" if count == 1 else "things"
    return f"{count} {thing} it could tell if it knew more: `hints` in the JSON, or the notes of the page"


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _since(text: str, now: str | None) -> str:
    """When it began and how long ago: `2026-09-21 14:10:00 UTC (3m 20s)`."""
    moment = text.replace("T", " ").partition(".")[0] + " UTC"
    if now is None:
        return moment
    age = (datetime.fromisoformat(now) - datetime.fromisoformat(text)).total_seconds()
    return f"{moment} ({seconds_text(max(0.0, age))})"


def _row(label: str, text: str, width: int, hang: int = 0) -> Iterable[str]:
    """A labelled paragraph; nothing for empty text."""
    if not text.strip():
        return ()
    first = f"  {label:<{_MARGIN - 2}}"
    return _wrapped(text, width, first, " " * (_MARGIN + hang))


def _wrapped(text: str, width: int, first: str = "", rest: str = "  ") -> list[str]:
    return textwrap.wrap(
        one_line(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
