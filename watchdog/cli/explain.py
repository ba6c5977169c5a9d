"""An explanation of a rule as a person and as a program reads it: what held when, and what kept it silent."""

import textwrap
from collections.abc import Iterator, Sequence

from watchdog.history.number import Bound
from watchdog.model import Subject, Truth
from watchdog.replay.explanation import (
    UNLESS,
    WHEN,
    ClauseStory,
    Explanation,
    Range,
    SubjectStory,
    TruthSpan,
    longest_yes_seconds,
)
from watchdog.replay.replay import Episode
from watchdog.text import bound_mark, clock_text, number_text, seconds_text

WIDTH = 110
VALUES_COLUMN = 29
"""Where the values of a span stand: behind its times and its answer."""
MOST_SPANS = 12
"""A clause that changes more often is shown by its first and last spans."""


def explanation_json(found: Explanation) -> dict[str, object]:
    """Everything, as programs read it; times are unix seconds."""
    return {
        "rule": found.rule.id,
        "title": found.rule.title,
        "severity": found.rule.severity,
        "scope": found.rule.scope,
        "for_seconds": found.rule.for_seconds,
        "target": found.target.name,
        "scrapes": found.scrapes,
        "begin": found.begin,
        "end": found.end,
        "subjects": [_subject_json(each, found) for each in found.subjects],
    }


def _subject_json(story: SubjectStory, found: Explanation) -> dict[str, object]:
    return {
        "model_name": story.subject.model_name,
        "engine": story.subject.engine,
        "answer": _answer(story, found),
        "incidents": [_episode_json(each) for each in _episodes(story.subject, found)],
        "spans": [_span_json(span) for span in story.spans],
        "clauses": [
            {
                "kind": each.kind,
                "clause": _flat(each.clause.text),
                "parameters": dict(each.clause.parameters),
                "spans": [_span_json(span) for span in each.spans],
            }
            for each in story.clauses
        ],
    }


def _episode_json(episode: Episode) -> dict[str, object]:
    return {
        "pending_at": episode.pending_at,
        "firing_at": episode.firing_at,
        "resolved_at": episode.resolved_at,
        "lead_from": episode.lead_from,
        "explained_by": list(episode.explained_by),
    }


def _span_json(span: TruthSpan) -> dict[str, object]:
    found: dict[str, object] = {"truth": span.truth, "begin": span.begin, "end": span.end}
    if span.values:
        found["values"] = {name: _range_json(each) for name, each in span.values.items()}
    if span.unknown:
        found["unknown"] = dict(span.unknown)
    return found


def _range_json(values: Range) -> dict[str, object]:
    """A bound is written as text, as it is in a rule's own tests: ">= 20"."""
    return {
        name: number_text(value) if isinstance(value, Bound) else float(value)
        for name, value in (("least", values.least), ("most", values.most))
    }


def explanation_text(found: Explanation) -> list[str]:
    """The answer first, then the rule and each of its clauses over time; times from the first scrape."""
    rule = found.rule
    lines = [f"{rule.id}: {rule.title} ({rule.severity}, {rule.scope})"]
    if found.begin is None or found.end is None:
        return [*lines, f"{found.target.name}: no scrape in it"]
    over = clock_text(found.end - found.begin)
    lines.append(f"{found.target.name}: {found.scrapes} scrapes over {over}")
    if not found.subjects:
        lines.append("No vLLM metrics page was read, so the rule had nothing to judge.")
    for story in found.subjects:
        lines += ["", *_wrapped(f"{_name(story.subject)}: {_answer(story, found)}", 0)]
        lines += [f"  all of it{_waits(found)}", *_span_lines(story.spans, found.begin)]
        for each in story.clauses:
            lines += _wrapped(f"{each.kind} {_flat(each.clause.shown.whole(each.clause.parameters))}", 2)
            lines += _span_lines(each.spans, found.begin)
    return lines


def _name(subject: Subject) -> str:
    if not subject.model_name and not subject.engine:
        return "the whole server"
    return f"{subject.model_name or 'model'}, engine {subject.engine or '-'}"


def _waits(found: Explanation) -> str:
    return (
        f" (fires once it held for {seconds_text(found.rule.for_seconds)})" if found.rule.for_seconds else ""
    )


def _answer(story: SubjectStory, found: Explanation) -> str:
    """Why it spoke or stayed silent, in a sentence or two."""
    begin = found.begin or 0.0
    episodes = _episodes(story.subject, found)
    if episodes:
        return " ".join(_fired(each, begin) for each in episodes)
    held = longest_yes_seconds(story.spans)
    if held is not None:
        return (
            f"stayed silent: it held for {seconds_text(held)} at a stretch at most, "
            f"and fires once it held for {seconds_text(found.rule.for_seconds)}."
        )
    return f"stayed silent. {_nearest(story, begin)}"


def _fired(episode: Episode, begin: float) -> str:
    until = "to the end" if episode.resolved_at is None else f"to {clock_text(episode.resolved_at - begin)}"
    text = f"fired from {clock_text(episode.firing_at - begin)} {until}"
    if episode.lead_from is not None:
        return f"{text} and led from {clock_text(episode.lead_from - begin)}."
    if episode.explained_by:
        return f"{text}, as a symptom of {', '.join(episode.explained_by)}."
    return f"{text}, without the lead."


def _nearest(story: SubjectStory, begin: float) -> str:
    if story.nearest is None:
        return ""
    against = story.nearest.against
    asked = sum(each.kind in {WHEN, UNLESS} for each in story.clauses)
    at = clock_text(story.nearest.wall - begin)
    told = "; ".join(_against(each, story.nearest.wall) for each in against)
    return (
        f"It came closest at {at}, with {asked - len(against)} of {asked} clauses for it. Against it: {told}."
    )


def _against(each: ClauseStory, wall: float) -> str:
    span = next(span for span in each.spans if span.begin <= wall <= span.end)
    clause = f"`{each.kind} {_flat(each.clause.text)}`"
    if span.truth is not Truth.UNKNOWN:
        return f"{clause} is {span.truth}"
    return f"{clause} cannot be judged ({reasons(span)})"


def reasons(span: TruthSpan) -> str:
    """Why a span is unknown."""
    if span.unknown:
        names: dict[str, list[str]] = {}
        for name, reason in span.unknown.items():
            names.setdefault(reason, []).append(name)
        return "; ".join(f"{', '.join(those)} unknown: {reason}" for reason, those in names.items())
    bounds = [name for name, each in span.values.items() if bound_mark(each.least) or bound_mark(each.most)]
    return f"{', '.join(bounds)} is known only as a bound" if bounds else "it divides by zero"


def _episodes(subject: Subject, found: Explanation) -> list[Episode]:
    names = (subject.model_name, subject.engine)
    return [each for each in found.episodes if (each.key.model_name, each.key.engine) == names]


def _span_lines(spans: Sequence[TruthSpan], begin: float) -> Iterator[str]:
    shown = list(spans)
    hidden = len(shown) - MOST_SPANS
    half = MOST_SPANS // 2
    for position, span in enumerate(shown):
        if hidden > 0 and position == half:
            yield f"      ... {hidden} more changes; --format json has them all"
        if hidden > 0 and half <= position < half + hidden:
            continue
        yield from _span_text(span, begin)


def _span_text(span: TruthSpan, begin: float) -> list[str]:
    time = f"{clock_text(span.begin - begin):>5} to {clock_text(span.end - begin):<5}"
    parts = [_range_text(name, each) for name, each in span.values.items() if name not in span.unknown]
    if span.truth is Truth.UNKNOWN and (span.values or span.unknown):
        parts.append(reasons(span))
    return _wrapped(f"{time}  {span.truth:7}  {'; '.join(parts)}".rstrip(), 4, VALUES_COLUMN)


def _range_text(name: str, values: Range) -> str:
    least, most = number_text(values.least), number_text(values.most)
    return f"{name} {least}" if least == most else f"{name} {least} to {most}"


def _wrapped(text: str, indent: int, rest: int = 4) -> list[str]:
    """The text in lines: the first begins at column `indent`, the others at `rest`."""
    before, below = " " * indent, " " * rest
    return textwrap.wrap(text, WIDTH, initial_indent=before, subsequent_indent=below, break_on_hyphens=False)


def _flat(text: str) -> str:
    return " ".join(text.split())
