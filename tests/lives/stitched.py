"""Recordings of servers with the same flags joined into one life: what came before becomes the server's past.

Counters go on where they stood, gauges and labels stay as they are, the process is the first one's. Requests that ran
at the end of a recording vanish in the pause between two, so a further one is judged only some time after it began.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from watchdog.model import Scrape
from watchdog.scrape.recording import Phase, read

PAUSE_SECONDS = 15.0
# A window of half a minute, as long a hold, and a little: until then a new part is not judged.
SETTLE_SECONDS = 75.0
_GROWING = frozenset({"counter", "histogram", "summary"})
_STARTED = ("process_start_time_seconds", "_created")


@dataclass
class _Counters:
    """What each growing series had at the end of the parts before, and where the present part began to count."""

    ended: dict[str, float] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    now: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)

    def next_part(self) -> None:
        """Another recording follows."""
        self.ended, self.began, self.seen = dict(self.now), {}, {}

    def carried_on(self, body: str) -> str:
        """A page of the present part as a page of the life."""
        rows = list(_rows(body))
        if any(float(value) < self.seen.get(series, 0.0) for series, value, grows in rows if grows):
            # The server restarted within this part: from here on it counts from nothing, as it did.
            self.ended, self.began, self.started = {}, {}, {}
        return "\n".join(self._row(*row) for row in rows) + "\n"

    def _row(self, series: str, value: str, grows: bool) -> str:
        if not value:
            return series
        if series.split("{", maxsplit=1)[0].endswith(_STARTED):
            return f"{series} {self.started.setdefault(series, value)}"
        if not grows:
            return f"{series} {value}"
        self.seen[series] = float(value)
        first = self.began.setdefault(series, float(value) if self.ended else 0.0)
        self.now[series] = self.ended.get(series, 0.0) + float(value) - first
        return f"{series} {self.now[series]!r}"


def _rows(body: str) -> Iterator[tuple[str, str, bool]]:
    """Each line as a series, its value and whether it grows; comments have no value."""
    grows = False
    for line in body.splitlines():
        if line.startswith("# TYPE "):
            grows = line.rpartition(" ")[2] in _GROWING
        if not line or line.startswith("#"):
            yield line, "", False
        else:
            series, _, value = line.rpartition(" ")
            yield series, value, grows


def stitched(paths: Sequence[Path]) -> tuple[tuple[Phase, ...], list[Scrape]]:
    """The phases and scrapes of one life made of these recordings, in their order."""
    counters, phases, scrapes = _Counters(), list[Phase](), list[Scrape]()
    clock: float | None = None
    for path in paths:
        recording, part = read(path)
        counters.next_part()
        late, shift = (0.0 if clock is None else SETTLE_SECONDS), 0.0
        for scrape in part:
            if not scrapes or clock is not None:
                shift = 0.0 if clock is None else clock - scrape.at
                clock = None
            at = scrape.at + shift
            body = counters.carried_on(scrape.body.decode()).encode() if scrape.body else b""
            scrapes.append(replace(scrape, at=at, wall=at, body=body))
        begins = recording.phases[0].start + shift + late
        phases += [
            Phase(one.label, max(one.start + shift, begins), one.end + shift, recording.name)
            for one in recording.phases
            if one.end + shift > begins
        ]
        clock = scrapes[-1].at + PAUSE_SECONDS
    return tuple(phases), scrapes
