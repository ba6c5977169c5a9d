"""What commands share: results on standard output, everything else on standard error."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Protocol

import typer

from watchdog.model import Verdict
from watchdog.text import duration_seconds, one_line, point_in_time

# What a shell reports for a program whose reader left: 128 + SIGPIPE.
GONE = 141
LEAST_INTERVAL_SECONDS, MOST_INTERVAL_SECONDS = 0.05, 20.0
_USUAL_COLUMNS, _LEAST_COLUMNS, _MOST_COLUMNS = 100, 60, 140
# What stands at the beginning of a line: a verdict, or the severity of what is wrong among servers.
_COLOURS = {
    "CRITICAL": 31,
    "DEGRADED": 33,
    "WARNING": 33,
    "RECOVERING": 36,
    "UNSETTLED": 33,
    "HEALTHY": 32,
    "IDLE": 90,
    "UNKNOWN": 90,
    "STARTING": 90,
}
_VERDICT = re.compile(rf"^({'|'.join(_COLOURS)})\b", re.MULTILINE)


class Done(Protocol):
    """Says how far something is: seconds done, and a few words beside the bar."""

    def __call__(self, seconds: float, note: str = "", /) -> None:
        """Moves the bar."""


class Form(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings; the file in WATCHDOG_CONFIG if not given."),
]
RulesOption = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="DIR", help="A folder with rules of your own; may be given again."),
]


def parse_form(text: str) -> Form:
    """The form of that name, for an option."""
    try:
        return Form(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither text nor json") from None


def parse_duration(text: str | float) -> float:
    """Seconds from `30s`, `1m30s` or `2h`, for an option; its default comes as seconds already."""
    if not isinstance(text, str):
        return text
    try:
        return duration_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


def parse_interval(text: str | float) -> float:
    """Seconds between two scrapes, for an option: a duration from 0.05 to 20 s."""
    seconds = parse_duration(text)
    if not LEAST_INTERVAL_SECONDS <= seconds <= MOST_INTERVAL_SECONDS:
        raise typer.BadParameter(
            f"{text!r} is not between {LEAST_INTERVAL_SECONDS:g}s and {MOST_INTERVAL_SECONDS:g}s"
        )
    return seconds


def parse_time(text: str | float) -> float:
    """Unix seconds from `02:10`, an ISO 8601 time, `now`, `now-2h` or unix seconds, for an option.

    What names no zone is local time; a time of day is the last time that the clock showed it.
    """
    if not isinstance(text, str):
        return text
    try:
        return point_in_time(text, datetime.now().astimezone())
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


ForOption = Annotated[
    float,
    typer.Option(
        "--for",
        parser=parse_duration,
        metavar="DURATION",
        help="How long to watch a server; 30s if not given.",
        show_default=False,
    ),
]
IntervalOption = Annotated[
    float,
    typer.Option(
        "--interval", parser=parse_interval, metavar="DURATION", help="Pause between scrapes, such as 2s."
    ),
]
FormOption = Annotated[
    Form,
    typer.Option(
        "--format", parser=parse_form, metavar="text|json", help="text for people, json for programs."
    ),
]


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """0 healthy, 1 where something fires, 2 where health is not proven; firing outweighs that."""
    seen = set(verdicts)
    if seen & {Verdict.RECOVERING, Verdict.DEGRADED, Verdict.CRITICAL}:
        return 1
    return 0 if seen == {Verdict.HEALTHY} else 2


def say(text: str) -> None:
    """A result, whole and at once, so that a reader in a pipe sees each line when it is ready.

    Ends the program when nobody reads any more, as `head` does after its lines.
    """
    # A server's text may hold what the terminal's encoding has no letter for.
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(GONE)


def say_json(value: object) -> None:
    """One JSON object on one line; refuses what is no JSON (NaN)."""
    say(json.dumps(value, allow_nan=False, separators=(",", ":")))


def complain(text: str) -> None:
    """An error for a person, on standard error, without control characters.

    A line that begins with a space belongs to the one before it, as an excerpt of a file does.
    """
    for line in text.splitlines() or [""]:
        prefix = "" if line.startswith(" ") else "vllm-watchdog: "
        typer.echo(prefix + one_line(line), err=True)


def screen_width() -> int:
    """The columns to write in: those of the terminal within what reads well, 100 where none is known."""
    columns = shutil.get_terminal_size((_USUAL_COLUMNS, 24)).columns
    return min(max(columns, _LEAST_COLUMNS), _MOST_COLUMNS)


def coloured(text: str) -> str:
    """A diagnosis with the verdicts that begin its lines in colour, on a terminal where NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return _VERDICT.sub(lambda found: f"\x1b[1;{_COLOURS[found[0]]}m{found[0]}\x1b[0m", text)


@contextmanager
def progress(what: str, total_seconds: float | None) -> Iterator["Done"]:
    """A bar on a terminal (total None: a clock that runs), nothing in a pipe.

    Yields what is to be called with the seconds done and a note that stands below the bar.
    """
    if not sys.stderr.isatty():
        yield lambda _seconds, _note="": None
        return
    from rich.console import Console  # noqa: PLC0415 - costs 50 ms that a pipe need not pay
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(one_line(what), total=total_seconds, note="")

        def done(seconds: float, note: str = "") -> None:
            bar.update(task, completed=seconds, note=one_line(note))

        yield done
