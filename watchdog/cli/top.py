"""`vllm-watchdog top`: the servers of a fleet on a terminal, the cause first, and one of them in full."""

import os
import select
import sys
import termios
import threading
import tty
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Protocol

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watchdog.cli.console import ConfigOption, IntervalOption, RulesOption
from watchdog.cli.live import settings_for, ticks, watch
from watchdog.cli.namesake import refuse_namesake
from watchdog.cli.prometheus import follow, with_source
from watchdog.errors import ConfigError, SourceError
from watchdog.model import Verdict
from watchdog.replay.together import Together
from watchdog.report.bodies import WORST_FIRST, DiagnosisBody, TargetBody, diagnosis_body
from watchdog.report.overall import COLUMNS, UNKNOWN, overall, overall_text
from watchdog.report.sparkline import sparkline
from watchdog.report.text import MARGIN, row, since_seconds, state_text, target_text
from watchdog.rule.in_force import load_rules, with_directories
from watchdog.settings.prometheus import PrometheusSettings
from watchdog.text import seconds_text

# Ten minutes at the usual pace, of which a line shows the newest.
KEPT_SAMPLES = 120
LINE_COLUMNS = 20
# The keys' own names in a terminal's stream.
UP, DOWN, ESCAPE = "\x1b[A", "\x1b[B", "\x1b"
_STYLES = {
    Verdict.CRITICAL: "bold red",
    Verdict.DEGRADED: "bold yellow",
    Verdict.RECOVERING: "cyan",
    Verdict.UNSETTLED: "yellow",
    Verdict.HEALTHY: "green",
}
_HELP = "j/k or arrows: choose   Enter: the server alone   Esc: back   q: quit"

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples:\n\n  vllm-watchdog top http://gpu-1:8000 http://gpu-2:8000\n\n"
    "  vllm-watchdog top --config watchdog.yaml\n\n"
    "  vllm-watchdog top --prometheus http://prometheus:9090"
)
@with_source
def top(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL...", help="Servers to watch; the configured targets if not given."),
    ] = None,
    interval: IntervalOption = 5.0,
    config: ConfigOption = None,
    rules: RulesOption = None,
    prometheus: PrometheusSettings | None = None,
) -> None:
    """Watches servers on a terminal: a row each, the worst first, and the cause of the chosen one."""
    refuse_namesake()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(["top needs a terminal; for a script or a pipe use `vllm-watchdog diagnose`"])
    settings = settings_for(urls or (), config, interval)
    if prometheus is not None and urls:
        raise ConfigError(["give URLs, or a --prometheus that scrapes the servers, not both"])
    if prometheus is None and not settings.targets:
        raise ConfigError(["nothing to watch: give a URL, or set targets in the settings"])
    rule_set = load_rules(with_directories(settings.rules, rules or ()))
    screen = Screen()
    source = watch(settings, rule_set) if prometheus is None else follow(prometheus, rule_set)
    with source as watched:
        if prometheus is not None:
            # What is wrong with the URL or the access is told before the screen is taken.
            screen.add(watched.step())
        with _sampled(watched, interval, screen), _keys() as next_key:
            _run(screen, next_key)


class Watching(Protocol):
    """Servers that can be looked at."""

    def step(self) -> Together:
        """What is known now; may raise SourceError."""
        ...


@dataclass
class Screen:
    """What is shown: the last diagnosis, what is chosen, and lines of samples for each server, by reading.

    One thread adds samples, another draws and takes keys; `changed` wakes the drawing one.
    """

    body: DiagnosisBody | None = None
    chosen: str = ""
    is_alone: bool = False
    is_over: bool = False
    trouble: str = ""
    courses: dict[str, dict[str, deque[float | None]]] = field(default_factory=dict)
    changed: threading.Event = field(default_factory=threading.Event)

    def add(self, seen: Together) -> None:
        """One more look at the servers."""
        if not seen.last:
            return
        snapshots = {each.target.name: each for each in seen.last}
        wall = max(each.wall for each in seen.last)
        self.trouble = ""
        self.body = diagnosis_body([each.target for each in seen.last], snapshots, seen.fleet, wall)
        for target in self.body.targets:
            lines = self.courses.setdefault(target.name, {})
            for name, _ in COLUMNS:
                lines.setdefault(name, deque(maxlen=KEPT_SAMPLES)).append(overall(target, name))
        self.changed.set()

    def note(self, trouble: str) -> None:
        """Why there is nothing new."""
        self.trouble = trouble
        self.changed.set()

    @property
    def rows(self) -> list[TargetBody]:
        """The servers, the worst first."""
        targets = self.body.targets if self.body else []
        return sorted(targets, key=lambda each: (WORST_FIRST.index(each.verdict), each.name))

    @property
    def selected(self) -> TargetBody | None:
        """The chosen server, else the first."""
        rows = self.rows
        return next((each for each in rows if each.name == self.chosen), rows[0] if rows else None)

    def press(self, key: str) -> None:
        """What a key does."""
        names = [each.name for each in self.rows]
        at = names.index(self.selected.name) if self.selected else 0
        if key in {"q", "Q"}:
            self.is_over = True
        elif key in {"j", DOWN} and names:
            self.chosen = names[min(at + 1, len(names) - 1)]
        elif key in {"k", UP} and names:
            self.chosen = names[max(at - 1, 0)]
        elif key in {"\r", "\n"}:
            self.is_alone = True
        elif key == ESCAPE:
            self.is_alone = False
        self.changed.set()

    def drawn(self, columns: int, lines: int) -> Group:
        """The whole screen; what does not fit is left out from below."""
        if self.body is None:
            return Group(Text("waiting for the first answer"))
        parts: list[Text | Table] = [_title(self.body, self.trouble)]
        if not self.is_alone:
            most = max(3, min(len(self.rows), lines // 2 - 3))
            parts.append(self._table(columns, most))
        room = lines - 3 - (0 if self.is_alone else min(len(self.rows), lines // 2 - 3) + 2)
        parts.append(self._detail(columns, max(0, room)))
        parts.append(Text(_HELP[:columns], style="dim", no_wrap=True))
        return Group(*parts)

    def _table(self, columns: int, most: int) -> Table:
        table = Table(box=None, expand=False, pad_edge=False, width=columns, header_style="dim")
        for name, justify in (
            ("server", "left"),
            ("state", "left"),
            ("cause", "left"),
            ("for", "right"),
            *((label, "right") for _, label in COLUMNS),
        ):
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
        if columns >= 100:
            table.add_column("waiting, to now", no_wrap=True)
        rows, selected = self.rows, self.selected
        begin = max(0, rows.index(selected) - most + 1) if selected else 0
        for body in rows[begin : begin + most]:
            table.add_row(*self._row(body, columns), style="reverse" if body is selected else "")
        return table

    def _row(self, body: TargetBody, columns: int) -> Iterator[Text | str]:
        lead = next((each for each in body.incidents if each.key == body.lead_key), None)
        yield body.name
        yield Text(body.verdict.upper(), style=_STYLES.get(body.verdict, "dim"))
        yield lead.title if lead else state_text(body)
        seconds = since_seconds(lead, self.body.generated_at if self.body else None)
        yield "" if seconds is None else seconds_text(seconds)
        for name, _ in COLUMNS:
            yield overall_text(body, name)
        if columns >= 100:
            yield self._line(body, "waiting_requests")

    def _detail(self, columns: int, room: int) -> Text:
        body = self.selected
        if body is None or self.body is None:
            return Text("")
        first, *rest = target_text(body, self.body.generated_at, columns).splitlines()
        return Text("\n".join(["", first, *self._courses(body, columns), *rest][:room]))

    def _courses(self, body: TargetBody, columns: int) -> Iterator[str]:
        """Where the readings have gone, beside each other where there is room."""
        shown = [
            f"{label} {self._line(body, name)} {told}"
            for name, label in COLUMNS
            if (told := overall_text(body, name)) != UNKNOWN
        ]
        joined = "   ".join(shown)
        lines = [joined] if len(joined) + MARGIN <= columns else shown
        for index, line in enumerate(lines):
            yield from row("" if index else "course", line, columns)

    def _line(self, body: TargetBody, name: str) -> str:
        return sparkline(list(self.courses.get(body.name, {}).get(name, ())), LINE_COLUMNS)


def _title(body: DiagnosisBody, trouble: str) -> Text:
    counts = Counter(each.verdict for each in body.targets)
    parts = [f"{counts[verdict]} {verdict}" for verdict in WORST_FIRST if counts[verdict]]
    fleet = [each.title for each in body.fleet]
    clock = (
        datetime.fromisoformat(body.generated_at).astimezone().strftime("%H:%M:%S")
        if body.generated_at
        else ""
    )
    text = f"vllm-watchdog  {clock}  {len(body.targets)} server{'s' * (len(body.targets) != 1)}: {', '.join(parts)}"
    if trouble:
        told = f"vllm-watchdog  what is shown is of {clock}: {trouble}"
        return Text(told, style="bold yellow", no_wrap=True, overflow="ellipsis")
    return Text(" | ".join([text, *fleet]), style="bold", no_wrap=True, overflow="ellipsis")


# The terminal.


@contextmanager
def _sampled(watched: Watching, interval_seconds: float, screen: Screen) -> Iterator[None]:
    """Looks at the servers in a thread of its own, so that a slow one never holds the keys."""

    def look() -> None:
        for _ in ticks(interval_seconds, None):
            if screen.is_over:
                return
            try:
                screen.add(watched.step())
            except SourceError as error:
                screen.note(str(error))

    thread = threading.Thread(target=look, name="looks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        screen.is_over = True


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """What gives the next key within so many seconds, empty for none; the terminal is as before afterwards."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def next_key(seconds: float) -> str:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        # An arrow comes as three bytes at once.
        return os.read(descriptor, 16).decode(errors="replace") if ready else ""

    try:
        yield next_key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _run(screen: Screen, next_key: Callable[[float], str]) -> None:
    """Draws when something changed, until q or Ctrl-C."""
    console = Console()
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not screen.is_over:
                if screen.changed.is_set() or screen.body is None:
                    screen.changed.clear()
                    live.update(screen.drawn(console.width, console.height), refresh=True)
                key = next_key(0.25)
                if key:
                    screen.press(key)
    except KeyboardInterrupt:
        return
