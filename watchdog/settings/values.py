"""Single values of the settings: numbers, durations, one line of text, launch flags."""

import re
import shlex
from collections.abc import Sequence
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from watchdog.http.url import HIDDEN
from watchdog.strict_yaml import Word
from watchdog.text import nearest

_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-(?:([01][0-9]|2[0-3]):([0-5][0-9])|24:00)")
_SECRET_FLAG = re.compile(r"(api-key|password|secret|-token)$")


def plain_number(value: Any) -> Any:
    """Refuses true and false, which Python would take for 1 and 0."""
    if isinstance(value, bool) or (isinstance(value, Word) and value.lower() in {"true", "false"}):
        raise ValueError("must be a number, not yes or no")
    return value


def on_one_line(text: str) -> str:
    """Refuses text of more than one line and control characters."""
    if not text.isprintable():
        raise ValueError("must not contain control characters or line breaks")
    return text


def point_of_calendar(value: Any) -> Any:
    """A moment from `2026-12-05T22:00`, with or without its offset; the fault says what is one."""
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("must be a date and time such as 2026-12-05T22:00") from None


def instants(moment: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """The first and the last unix second that a clock in that zone may have meant; one and the same but for a change.

    An hour that the clocks go through twice has two; of one that they skip, as it was before the change and after.
    A moment with an offset of its own means one.
    """
    if moment.tzinfo is not None:
        return moment.timestamp(), moment.timestamp()
    meant = [moment.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)]
    return min(meant), max(meant)


def zone_name(name: str) -> str:
    """The name of a time zone that this system knows; the fault names the nearest one."""
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):  # not found, a folder, no name at all
        hint = nearest(name, available_timezones()) or "it needs the system's tzdata"
        raise ValueError(f"must be a time zone such as Europe/Berlin or UTC; {hint}") from None
    return name


def hours_of_day(text: str) -> str:
    """Two times of day, `22:00-06:00`; the second may be 24:00, and lies on the next day where it is not later."""
    match = _HOURS.fullmatch(text)
    if match is None:
        raise ValueError("must be two times of day such as 22:00-06:00, or 00:00-24:00")
    if text[:5] == text[6:]:
        raise ValueError("begins and ends at once; the whole day is 00:00-24:00")
    return text


def bounds_of_day(hours: str) -> tuple[time, time, bool]:
    """The two times of `hours_of_day`, and whether the second lies on the next day."""
    first, _, second = hours.partition("-")
    begin, end = time.fromisoformat(first), time.fromisoformat(second.replace("24:00", "00:00"))
    return begin, end, end <= begin


def parse_vllm_args(value: Any) -> Any:
    """Launch flags as a mapping flag -> value ("" for a bare flag), from a string, a list or a mapping.

    `vllm serve MODEL` before the flags is skipped; underscores in a flag become dashes, as vLLM does.
    Raises ValueError for quotes that do not close. Anything else is handed back for the model to refuse.
    """
    if isinstance(value, dict):
        named = {_flag(str(key)): "" if each is None else _word(each) for key, each in value.items()}
        return _without_secrets(named)
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, Sequence):
        return words
    return _without_secrets(_flag_values(list(map(_word, words))))


def _flag_values(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    last = ""
    for word in words:
        if re.match(r"--?[a-zA-Z]", word):
            name, given, text = word.partition("=")
            last = _flag(name)
            flags[last] = text
            last = "" if given else last
        elif last:
            flags[last] = f"{flags[last]} {word}".strip()
    return flags


def _without_secrets(flags: dict[str, str]) -> dict[str, str]:
    """Nothing needs a server's own keys, so they are dropped before they can be printed."""
    return {name: HIDDEN if _SECRET_FLAG.search(name) and text else text for name, text in flags.items()}


def _flag(name: str) -> str:
    dashes = name[: len(name) - len(name.lstrip("-"))] or "--"
    return dashes + name.lstrip("-").replace("_", "-")


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
