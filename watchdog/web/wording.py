"""How the page words what bodies hold, where the terminal words it otherwise: times, lists in a line, prices."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup, escape

from watchdog.model import State
from watchdog.notify.alert import dashboard_of
from watchdog.remedy.instruction import Advice, instruction, is_told, setting_text
from watchdog.report.bodies import IncidentBody, TargetBody, TransitionBody, time_text
from watchdog.report.course import Mark
from watchdog.report.selection import Selection
from watchdog.report.text import by_urgency, label
from watchdog.text import seconds_text

_BRIEF_CHARACTERS = 90
_ICON_COLOURS = {
    "critical": "d93025",
    "degraded": "e08600",
    "warning": "e08600",
    "unsettled": "c9a800",
    "recovering": "2f6feb",
    "starting": "2f6feb",
    "healthy": "1f9d5b",
}
_PLACEHOLDER = re.compile(r"\{(\w+)[^{}]*\}")
_FLAG = re.compile(r"(?<![\w-])--[a-z0-9][a-z0-9-]*[a-z0-9]")


def clock(moment: str | None, now: str | None) -> str:
    """A moment of a body as `14:10:00 UTC`, with its date where that is not today's (`now` None: without)."""
    if moment is None:
        return ""
    day, _, time = moment.partition("T")
    of_day = f"{time.partition('.')[0].removesuffix('Z')} UTC"
    return of_day if now is None or now.startswith(day) else f"{day} {of_day}"


def lasted(moment: str | None, now: str | None) -> str:
    """How long ago a moment of a body was, in words; empty where one of both is not known."""
    if moment is None or now is None:
        return ""
    passed = (datetime.fromisoformat(now) - datetime.fromisoformat(moment)).total_seconds()
    return seconds_text(float(round(max(0.0, passed))))


def of_engine(incident: IncidentBody) -> str:
    """What follows a server's name where the incident is about one engine of it."""
    engine = incident.labels.get("engine", "")
    return f", engine {engine}" if engine else ""


def lead_title(target: TargetBody) -> str:
    """The title of what leads; empty where nothing does."""
    return next((each.title for each in target.incidents if each.key == target.lead_key), "")


def icon(mood: str) -> str:
    """The page's icon as a data URL: a disc in the colour of the verdict or severity."""
    colour = _ICON_COLOURS.get(mood.strip(), "737d8c")
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
        f"%3Ccircle cx='8' cy='8' r='7' fill='%23{colour}'/%3E%3C/svg%3E"
    )


def brief(items: Sequence[str]) -> str:
    """The beginnings of sentences, in one line; what is cut ends with dots."""
    heads = ", ".join(item.partition(":")[0].partition(". ")[0].rstrip(".") for item in items)
    return heads if len(heads) <= _BRIEF_CHARACTERS else f"{heads[:_BRIEF_CHARACTERS].rstrip(' ,')}..."


def cost(price: str) -> str:
    """The price of a remedy; empty where it has none."""
    return "" if price.strip().rstrip(".").lower() in {"", "none"} else price


def as_words(template: str) -> Markup:
    """What a rule says before values are put in: each placeholder as the words of its signal, in italics."""
    plain = str(escape(template)).replace("[", "").replace("]", "")
    return Markup(_PLACEHOLDER.sub(lambda match: f"<i>{label(match[1])}</i>", plain))  # noqa: S704 - escaped


def with_flags(text: str) -> Markup:
    """A sentence as markup, each launch flag in it set as code."""
    return Markup(_FLAG.sub(r"<code>\g<0></code>", str(escape(text))))  # noqa: S704 - escaped


def step(remedy: Advice) -> Markup:
    """What a remedy says to do, its flag and value set as one piece of code to copy, where the sentence has them."""
    if not remedy.flag:
        return with_flags(remedy.action)
    setting = " ".join(filter(None, (remedy.flag, remedy.value)))
    if is_told(remedy):
        said = rf"{re.escape(remedy.flag)}" + (
            rf"(?: to |=| ){re.escape(remedy.value)}" if remedy.value else ""
        )
        found = re.search(rf"(?<![\w-]){said}(?![\w-])", remedy.action)
        if found is not None:
            before, after = remedy.action[: found.start()], remedy.action[found.end() :]
            # A button to copy follows the code, and no full stop after that.
            return with_flags(before) + _to_copy(setting) + with_flags("" if after == "." else after)
    direction = setting_text(remedy).partition("--")[0] if not remedy.value else ""
    return escape(direction) + _to_copy(setting) + Markup(" ") + with_flags(remedy.action)


class Step(NamedTuple):
    """A moment of an incident's past, as bodies write moments, what happened, and what was said then (or nothing)."""

    at: str
    text: str
    cause: str


def history(timeline: Sequence[TransitionBody], marks: Sequence[Mark]) -> Iterator[Step]:
    """The changes of an incident and of its server, the oldest first; what an end says again is left out."""
    steps = [Step(time_text(mark.wall) or "", mark.text, "") for mark in marks]
    began: str | None = None
    for each in timeline:
        at = each.at or ""
        if each.state is State.RESOLVED:
            steps.append(Step(at, f"resolved after {lasted(began, at)}" if began else "resolved", ""))
            began = None
        else:
            steps.append(Step(at, each.state, each.cause))
            began = began or at
    return iter(sorted(steps, key=lambda each: each.at))


def dashboard(template: str, target: TargetBody) -> str:
    """The address of a server's dashboard, of the engine that its lead is about; empty without a template."""
    lead = next((each for each in target.incidents if each.key == target.lead_key), None)
    first = target.readings[:1]
    labels = {"model_name": first[0].model_name, "engine": first[0].engine} if first else {}
    return dashboard_of(template, {**labels, "target": target.name, **(lead.labels if lead else {})})


def narrowed(selection: Selection, name: str, value: str) -> str:
    """The address of the fleet's page with one more thing asked for: a `state`, a `model`, else a label."""
    is_label = name not in {"state", "model"}
    added = ("label", f"{name}={value}") if is_label else (name, value)
    kept = [
        (one, of)
        for one, of in selection.asked
        if not (of.startswith(f"{name}=") if is_label and one == "label" else one == name)
    ]
    return f"/?{urlencode([*kept, added])}"


def first_step(incident: IncidentBody) -> str:
    """What to do first, in one sentence; empty where nothing is proposed."""
    lists = by_urgency(incident)
    return instruction(lists[0][1][0]) if lists else ""


def _to_copy(setting: str) -> Markup:
    return Markup('<code class="flag">{}</code>').format(setting)
