"""The diagnosis as plain text for a terminal at night: the verdict first, then the cause, then what to do."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from watchdog.facts.inflight import WITNESS_HOWTO
from watchdog.model import NO_LABELS, Severity, State, Verdict, failure_text
from watchdog.remedy.instruction import instruction
from watchdog.report.advice import advice
from watchdog.report.bodies import (
    WORST_FIRST,
    DiagnosisBody,
    IncidentBody,
    LatencyShareBody,
    RemedyBody,
    TargetBody,
)
from watchdog.text import comparison_words, quantity_text, seconds_text, without_comparison

WIDTH = 100
TOO_SHORT = "not enough history to judge yet"
PROOF_OF_IDLENESS = (
    f"Send one small request (max_tokens 1) and check again: a completed step is the proof. {WITNESS_HOWTO}."
)
MOST_ENDED = 5
MARGIN = 13
"""Columns before the text of a row."""
_TIE = "~"
_ABBREVIATIONS = {"api": "API", "kv": "KV", "ttft": "TTFT", "itl": "ITL", "e2e": "end to end"}
# Where the name that a metric wants says too little or too much beside a value with its unit.
_READING_WORDS = {
    "window_first_tokens": "first tokens in 30 s",
    "running_mean_requests": "average running",
    "standing_queue_requests": "shortest queue in 10 s",
    "running_requests": "running",
    "waiting_requests": "waiting",
    "seconds_since_progress": "since progress",
    "single_stream_tokens_per_second": "one stream",
    "decode_ceiling_tokens_per_second": "ceiling of one stream",
    "decode_ceiling_ratio": "one stream of ceiling",
    "requests_that_fit": "requests that fit",
    "prefix_hit_ratio": "prefix hits",
}
_SHOWN_READINGS = (
    ("running_requests", "running"),
    ("waiting_requests", "waiting"),
    ("kv_usage_ratio", "KV"),
    ("prompt_tokens_per_second", "in"),
    ("generation_tokens_per_second", "out"),
    ("prefix_hit_ratio", "prefix hits"),
    ("ttft_p95_seconds", "TTFT p95"),
    ("itl_p99_seconds", "ITL p99"),
    ("requests_that_fit", "requests that fit"),
)


def diagnosis_text(
    diagnosis: DiagnosisBody, width: int = WIDTH, starting: Mapping[str, str] = NO_LABELS
) -> str:
    """All targets, the worst first; ends with a line break. `starting` is as in `target_text`."""
    blocks = []
    if len(diagnosis.targets) != 1 or diagnosis.fleet:
        blocks.append(summary(diagnosis, width))
    urgent, notices = fleet_by_urgency(diagnosis)
    blocks += [_fleet_text(incident, diagnosis.generated_at, width) for incident in urgent]
    ordered = sorted(diagnosis.targets, key=lambda body: WORST_FIRST.index(body.verdict))
    blocks += [target_text(body, diagnosis.generated_at, width, starting) for body in ordered]
    blocks += [_fleet_text(incident, diagnosis.generated_at, width) for incident in notices]
    return "\n".join(blocks)


def fleet_by_urgency(diagnosis: DiagnosisBody) -> tuple[list[IncidentBody], list[IncidentBody]]:
    """The fleet's incidents that belong before the targets, and those of severity info, which come after.

    What another one of them names as its symptom is left out.
    """
    firing = [each for each in diagnosis.fleet if each.state is State.FIRING]
    symptoms = {(each.labels.get("model_name"), rule) for each in firing for rule in each.symptoms}
    shown = [each for each in diagnosis.fleet if (each.labels.get("model_name"), each.rule) not in symptoms]
    urgent = [each for each in shown if each.severity is not Severity.INFO]
    return urgent, [each for each in shown if each.severity is Severity.INFO]


def target_text(
    body: TargetBody, now: str | None, width: int = WIDTH, starting: Mapping[str, str] = NO_LABELS
) -> str:
    """One target: verdict and lead in the first line, then cause, evidence, remedies and readings.

    `now` is the diagnosis' own time as it is written there. `starting` says by target why one cannot be
    judged yet, where the caller knows more than that its history is short.
    """
    lead = next((each for each in body.incidents if each.key == body.lead_key), None)
    # Never wrapped: `head -1` and `grep` at night want the whole of it.
    lines = [headline(body, lead, starting.get(body.name, TOO_SHORT))]
    lines += row("held", maintenance_text(body), width)
    lines += row("pod", pod_text(body, now), width)
    if body.failure:
        why = failure_text(body.failure.reason, body.failure.detail)
        lines += row("scrape", f"{body.url} failed: {why}", width)
        lines += row("try", failure_advice(body, lead), width)
    if lead:
        lines += _incident_lines(lead, now, width)
    lines += row("prove it", proof_text(body), width)
    lines += _beside_lines(body, width)
    lines += _ended_lines(body, width)
    for readings in body.readings:
        lines += _engine_lines(body, readings.engine, readings.model_name, readings.values, width)
        lines += row("latency", budget_text(readings.latency_budget), width)
        # Where a cause leads, it is the answer: several limits can bind at once, and only one is to be moved.
        limit = "" if lead else _limit_text(readings.limit, readings.limit_share)
        lines += row("limit", limit, width)
    for note in body.notes:
        lines += row("note", note, width)
    lines += row("seen", _seen(body), width)
    if not body.readings:
        return "\n".join(lines) + "\n"
    has_flags = lead is not None and any(remedy.flag for remedy in lead.remedies)
    lines += row("hints", _hint_text(body.hints, has_flags), width)
    return "\n".join(lines) + "\n"


def maintenance_text(body: TargetBody) -> str:
    """That notifications are held, and until when; empty where they are not."""
    held = body.maintenance
    if held is None:
        return ""
    until = f" until {since_text(held.until, None)}" if held.until else ""
    return f"maintenance{until}{f' ({held.name})' if held.name else ''}: no new notifications"


def pod_text(body: TargetBody, now: str | None) -> str:
    """The pod and its node, how often and why it restarted, and what a roll-out changed; empty for no pod."""
    pod = body.pod
    if pod is None:
        return ""
    parts = [f"{pod.name} in {pod.namespace}" + (f" on {pod.node}" if pod.node else "")]
    if not pod.ready:
        parts.append("not ready")
    if pod.restarts:
        parts.append(f"{pod.restarts} restart{'s' * (pod.restarts != 1)}")
    if pod.ended:
        at = f" {since_text(pod.ended_at, now)}" if pod.ended_at else ""
        parts.append(f"last ended: {pod.ended}{at}")
    if pod.image_before:
        at = f" {since_text(pod.image_changed_at, now)}" if pod.image_changed_at else ""
        parts.append(f"image changed to {pod.image} from {pod.image_before}{at}")
    return "; ".join(parts)


def failure_advice(body: TargetBody, lead: IncidentBody | None) -> str:
    """What to try after a failed scrape; empty where a cause says more, of a server that has answered before."""
    if body.failure is None or (lead is not None and body.scrape_age_seconds is not None):
        return ""
    return advice(body.failure.reason, body.failure.detail)


def budget_text(budget: dict[str, LatencyShareBody]) -> str:
    """Where the average request spent its time, in one line; empty where that is not known."""
    parts = [
        f"{phase.replace('_', ' ')} {seconds_text(part.seconds)} ({part.share:.0%})"
        for phase, part in budget.items()
        if part.seconds is not None and part.share is not None
    ]
    return ", ".join(parts)


def readings_text(values: dict[str, float | None], most: int | None = None) -> str:
    """The readings a person looks at first (`most` of them), in one line; those that are unknown are left out."""
    return ", ".join(_readings_in_words(values)[:most])


def _readings_in_words(values: dict[str, float | None]) -> list[str]:
    return [
        f"{label} {quantity_text(name, values[name])}"
        for name, label in _SHOWN_READINGS
        if values.get(name) is not None
    ]


def words(name: str) -> str:
    """A name of ours as words: `kv_usage` is "KV usage"."""
    return " ".join(_ABBREVIATIONS.get(part, part) for part in name.split("_"))


def label(name: str) -> str:
    """A signal's or reading's name as words, without the unit that its value carries."""
    bare = without_comparison(name)
    for unit in ("_per_second", "_seconds", "_ratio"):
        bare = bare.removesuffix(unit)
    return words(bare) + comparison_words(name)


def reading_label(name: str) -> str:
    """A reading's name as words, for a reader who sees nothing but it and its value."""
    return _READING_WORDS.get(name) or label(name)


def summary(diagnosis: DiagnosisBody, width: int) -> str:
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


def headline(body: TargetBody, lead: IncidentBody | None, starting: str = TOO_SHORT) -> str:
    """The first line of a target: verdict, name, and what leads or why nothing does."""
    words = f"{body.verdict.upper()}  {body.name}"
    if lead:
        return f"{words}: {lead.title} ({lead.rule}{_of_engine(lead)})"
    state = state_text(body, starting)
    return f"{words}: {state}" if state else words


def state_text(body: TargetBody, starting: str = TOO_SHORT) -> str:
    """What there is to say of a target that no cause leads; `starting` is why one cannot be judged yet."""
    return {
        Verdict.HEALTHY: f"nothing {'above info ' * _has_info(body)}is firing{_shadow(body)}",
        Verdict.STARTING: starting,
        Verdict.UNKNOWN: _why_unknown(body),
    }.get(body.verdict, body.why)


def proof_text(body: TargetBody) -> str:
    """How to prove what the verdict leaves open; empty where it leaves nothing open."""
    return PROOF_OF_IDLENESS if body.verdict is Verdict.IDLE else ""


def _shadow(body: TargetBody) -> str:
    """What there is to say of a healthy server all the same: that it is idle, or a queue that comes and goes."""
    if body.why:
        return f"; {body.why}"
    waiting = sum(readings.values.get("waiting_requests") or 0.0 for readings in body.readings)
    return f" ({waiting:.0f} waiting)" if waiting else ""


def _has_info(body: TargetBody) -> bool:
    return any(each.state is State.FIRING for each in body.incidents)


def _is_looming(incident: IncidentBody) -> bool:
    """Whether it may soon fire and be news: no notice, and no symptom of what fires already."""
    if incident.severity is Severity.INFO or incident.explained_by:
        return False
    return incident.state is State.PENDING


def _why_unknown(body: TargetBody) -> str:
    if body.failure:
        return "its page could not be read"
    if body.scrape_age_seconds is not None and not body.readings:
        return "it answers, but has no vLLM metrics: still loading, or wrong port or path"
    return body.why or "it cannot be judged now"


def _of_engine(incident: IncidentBody) -> str:
    parts = [incident.labels.get("model_name", ""), incident.labels.get("engine", "")]
    return ", " + " engine ".join(filter(None, parts)) if any(parts) else ""


def _incident_lines(incident: IncidentBody, now: str | None, width: int) -> Iterator[str]:
    yield from row("cause was" if incident.cleared else "cause", incident.cause, width)
    yield from row("cleared", cleared_text(incident, now).removeprefix("cleared "), width)
    for index, evidence in enumerate(incident.evidence):
        # A value is never parted from its name.
        yield from _tied(row("" if index else "evidence", evidence.text.replace(" (", f"{_TIE}("), width))
    for label, remedies in by_urgency(incident):
        for index, remedy in enumerate(remedies):
            yield from _remedy_lines("" if index else label, index + 1, remedy, width)
    if any(remedy.flag for remedy in incident.remedies):
        yield from row("", "Flag changes need a vLLM restart.", width)
    for index, text in enumerate(incident.unhelpful):
        yield from row("" if index else "won't help", text, width)
    yield from row("symptoms", ", ".join(incident.symptoms), width)
    if incident.since:
        since = since_text(incident.since, now)
        yield from row("since", f"{since}; it cannot be judged now" if incident.unknown else since, width)
    yield from row("runbook", _runbook(incident), width)


def by_urgency(incident: IncidentBody) -> list[tuple[str, list[RemedyBody]]]:
    """What to do right now, and what keeps it from coming back; a list that is empty is left out."""
    now = [each for each in incident.remedies if not each.lasting]
    lasting = [each for each in incident.remedies if each.lasting]
    return [(label, each) for label, each in (("right now", now), ("to last", lasting)) if each]


def standing_text(incident: IncidentBody, now: str | None) -> str:
    """What a reader must know of a cause that was found at an earlier scrape; empty while it holds."""
    if incident.unknown:
        return "; it cannot be judged now"
    cleared = cleared_text(incident, now)
    return f"; {cleared}" if cleared else ""


def cleared_text(incident: IncidentBody, now: str | None) -> str:
    """Since when the condition of what fires is gone, and when it closes; empty while it holds."""
    if incident.cleared is None:
        return ""
    if now is None:
        return "cleared, closes unless it returns"
    since = age_text(_seconds_between(incident.cleared, now))
    if incident.closes is None:
        return f"cleared {since}, closes when its symptoms are gone"
    left = _seconds_between(now, incident.closes)
    closes = f"in {seconds_text(left)}" if left > 0 else "with the next scrape"
    return f"cleared {since}, closes {closes} unless it returns"


def _seconds_between(earlier: str, later: str) -> float:
    """Between two moments as bodies write them; never below zero."""
    return max(0.0, (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds())


def _runbook(incident: IncidentBody) -> str:
    """A path in our own documents is seldom at hand at night; the command that prints the same is."""
    is_link = incident.runbook.startswith(("http://", "https://"))
    return incident.runbook if is_link else f"vllm-watchdog rules show {incident.rule}"


def _remedy_lines(label: str, number: int, remedy: RemedyBody, width: int) -> Iterator[str]:
    yield from row(label, f"{number}. {instruction(remedy)}", width, hang=3)
    yield from row("", f"   why: {remedy.why}" if remedy.why else "", width, hang=8)
    yield from row("", f"   trade-off: {remedy.price}" if remedy.price else "", width, hang=14)


def beside(body: TargetBody) -> list[IncidentBody]:
    """What fires beside the lead, then what is about to, then notices; nothing that is explained already."""
    firing = [each for each in body.incidents if each.state is State.FIRING and not each.explained_by]
    others = [each for each in firing if each.key != body.lead_key]
    grave = [each for each in others if each.severity is not Severity.INFO]
    looming = [each for each in body.incidents if _is_looming(each)]
    return [*grave, *looming, *(each for each in others if each.severity is Severity.INFO)]


def ended(body: TargetBody) -> list[IncidentBody]:
    """The causes of warning and above that ended within the hour, the last first; what they explained is theirs."""
    over = [
        each
        for each in body.incidents
        if each.resolved_at and each.severity is not Severity.INFO and not each.explained_by
    ]
    return sorted(over, key=lambda each: each.resolved_at or "", reverse=True)


def ended_text(incident: IncidentBody) -> str:
    """From when to when it lasted, and for how long: `14:10:00 to 14:12:30 UTC (2m 30s)`."""
    begin, end = incident.since, incident.resolved_at
    if begin is None or end is None:
        return ""
    lasted = seconds_text(_seconds_between(begin, end))
    return f"{_time_of_day(begin)} to {_time_of_day(end)} UTC ({lasted})"


def _time_of_day(moment: str) -> str:
    return moment.partition("T")[2].partition(".")[0]


def _ended_lines(body: TargetBody, width: int) -> Iterator[str]:
    over = ended(body)
    for index, each in enumerate(over[:MOST_ENDED]):
        text = f"{each.rule}{_of_engine(each)}: {ended_text(each)}"
        yield from row("" if index else "ended", text, width)
    if len(over) > MOST_ENDED:
        yield from row(
            "", f"and {len(over) - MOST_ENDED} more within the hour: `incidents` in the JSON", width
        )


def _beside_lines(body: TargetBody, width: int) -> Iterator[str]:
    for incident in beside(body):
        kind = "info" if incident.severity is Severity.INFO else "also"
        text = f"{incident.rule}{_of_engine(incident)}: {incident.cause or incident.title}"
        yield from row("pending" if incident.state is State.PENDING else kind, text, width)


def _engine_lines(
    body: TargetBody, engine: str, model: str, values: dict[str, float | None], width: int
) -> Iterator[str]:
    shown = _readings_in_words(values)
    if not shown:
        return
    if len(body.readings) > 1:
        yield from row("engine", " engine ".join(filter(None, (model, engine))), width)
    # A reading is never parted from its name.
    joined = ", ".join(each.replace(" ", _TIE) for each in shown)
    yield from _tied(row("readings", joined, width))


def _tied(lines: Iterable[str]) -> Iterator[str]:
    return (line.replace(_TIE, " ") for line in lines)


def _limit_text(limit: str, share: float | None) -> str:
    if limit in {"unknown", "none"}:
        return ""
    held = f", {share:.0%} of the time" if share is not None else ""
    return words(limit) + held


def _seen(body: TargetBody) -> str:
    age = body.scrape_age_seconds
    parts = ["never scraped successfully" if age is None else f"scraped {age_text(age)}"]
    version = body.vllm.version or body.vllm.bracket
    if version:
        parts.append(f"vLLM {version}")
    if body.vllm.models:
        parts.append(", ".join(body.vllm.models))
    if body.watchdog:
        parts.append(f"watched by {body.watchdog}")
    blind = sorted({each.rule for each in body.blind})
    if blind and body.readings:
        parts.append(
            f"{len(blind)} rule{'s' * (len(blind) != 1)} unavailable (metrics missing): {_few(blind)}"
        )
    return "; ".join(parts)


def age_text(seconds: float) -> str:
    """How long ago, in words."""
    return "just now" if seconds < 1 else f"{seconds_text(seconds)} ago"


def _hint_text(hints: list[str], first: bool) -> str:
    """Prints the first hint in full when a remedy changes a flag (`first`), else only how many there are."""
    if not hints:
        return ""
    where = "`vllm-watchdog hints`"
    if first:
        return hints[0] + (f" {len(hints) - 1} more: {where}" if len(hints) > 1 else "")
    return f"{len(hints)} settings would sharpen this: {where}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def since_seconds(incident: IncidentBody | None, now: str | None) -> float | None:
    """How long an incident has lasted; None without one, or where its beginning is not known."""
    if incident is None or not incident.since or now is None:
        return None
    return _seconds_between(incident.since, now)


def since_text(text: str, now: str | None) -> str:
    """When it began and how long ago: `2026-09-21 14:10:00 UTC (3m 20s)`."""
    moment = text.replace("T", " ").partition(".")[0] + " UTC"
    if now is None:
        return moment
    return f"{moment} ({seconds_text(_seconds_between(text, now))})"


def row(label: str, text: str, width: int, hang: int = 0) -> Iterable[str]:
    """A labelled paragraph of lines; nothing for empty text."""
    if not text.strip():
        return ()
    first = f"  {label:<{MARGIN - 2}}"
    return _wrapped(text, width, first, " " * (MARGIN + hang))


def _wrapped(text: str, width: int, first: str = "", rest: str = "  ") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
