"""Log lines: one event a line, in logfmt or JSON, with whatever a server or file said escaped."""

import json
import logging
import sys
from collections.abc import Mapping
from typing import TextIO

from watchdog.text import MOST_CHARACTERS, one_line, timestamp

# What every record has; anything else came in by `extra` and is a field of the event.
_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "time": timestamp(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": record.getMessage(),
    }
    fields |= {name: value for name, value in vars(record).items() if name not in _OWN_ATTRIBUTES}
    if record.exc_info:
        # The end of a long trace is the part that says what went wrong.
        fields["error"] = logging.Formatter().formatException(record.exc_info)[-MOST_CHARACTERS:]
    return fields


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        # JSON has no word for infinity or not-a-number.
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, Mapping):
        return {one_line(str(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return one_line(str(value))


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        return json.dumps({name: _plain(value) for name, value in _fields(record).items()})


class LogfmtFormatter(logging.Formatter):
    """`key=value` pairs, quoted where a value has a space, a quote or an equals sign."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        return " ".join(f"{name}={_word(value)}" for name, value in _fields(record).items())


def _word(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return ""
    text = plain if isinstance(plain, str) else json.dumps(plain)
    if text and not any(character in ' "=\\' for character in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Sends every logger's events from `level` on to `stream` (standard error), as "logfmt" or "json"."""
    handler = _Handler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else LogfmtFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Libraries speak of each step; what matters of it is told by our own events.
    for name in ("apscheduler", "urllib3", "uvicorn", "asyncio"):
        logging.getLogger(name).setLevel(logging.ERROR)


class _Handler(logging.StreamHandler[TextIO]):
    """Never prints a stack trace of its own: a full disk or a closed pipe costs the line, no more."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Drops the line."""
