"""Raw samples, as a Prometheus keeps them, back into the scrapes that they came from: a page a server and a time.

All samples of one scrape carry its time to the millisecond, and the labels that the Prometheus gave their target. The
series `up` has just these labels, and a sample for each scrape, also for one that failed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from watchdog.model import Failure, Reason, Scrape
from watchdog.text import one_line, printable_labels

NAME = "__name__"
UP = "up"
DURATION = "scrape_duration_seconds"
# What every engine shows, without a prefix; its labels tell the target's where no `up` was kept.
_GAUGE = "num_requests_running"
_ENGINES_OWN = frozenset({NAME, "model_name", "engine"})
# Labels by which two servers of a pair that scrape the same targets differ, as their manuals name them.
REPLICA_LABELS = frozenset(
    {
        "prometheus_replica",
        "prometheus",
        "replica",
        "__replica__",
        "receive",
        "rule_replica",
        "thanos_replica",
    }
)
# In this order names are tried: a pod is what people look for, an address changes.
_NAMINGS = (
    *(("pod",), ("pod", "namespace"), ("pod", "namespace", "cluster")),
    *(("instance",), ("instance", "job"), ("instance", "job", "cluster")),
)
NOT_SCRAPED = Failure(Reason.NOT_SCRAPED, "the Prometheus could not scrape it (`up` is 0)")

Labels = Mapping[str, str]
Sample = Sequence[Any]
"""As the API gives it: unix seconds, and the value as text."""


@dataclass(frozen=True, slots=True)
class Row:
    """One series: its labels, its name among them, and its samples in the order of their times."""

    labels: Labels
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class _Line:
    """A series as it stood on the page, without its value."""

    head: str
    samples: Sequence[Sample]


class ScrapedServer:
    """One target of a Prometheus, by its target labels, and what was scraped of it."""

    def __init__(self, labels: Labels, up: Sequence[Sample] | None) -> None:
        self.labels = labels
        self.has_vllm = False
        """Whether a series of vLLM was on a page."""
        self._up = up
        self._lines: list[_Line] = []
        self._durations: Mapping[float, str] = {}

    def take(self, row: Row) -> None:
        """Adds a series of its pages."""
        name = row.labels[NAME]
        if name == DURATION:
            self._durations = {float(at): value for at, value in row.samples}
            return
        self.has_vllm = self.has_vllm or "vllm" in name
        self._lines.append(_Line(_head(name, row.labels, self.labels), row.samples))

    @property
    def times(self) -> list[float]:
        """When it was scraped, or scraped in vain, in unix seconds."""
        if self._up is None:
            return sorted({float(sample[0]) for line in self._lines for sample in line.samples})
        return [float(at) for at, value in self._up if isfinite(float(value))]

    @property
    def pace_seconds(self) -> float | None:
        """The usual time between two scrapes; None for under two."""
        gaps = sorted(after - before for before, after in pairwise(self.times))
        return gaps[len(gaps) // 2] if gaps else None

    @property
    def is_up(self) -> bool:
        """Whether its last scrape gave a page."""
        return not self._up or not _is_zero(self._up[-1])

    def scrapes(self) -> Iterator[Scrape]:
        """Its scrapes in order; a page is put together as it is asked for."""
        failed = {float(each[0]) for each in self._up or () if _is_zero(each)}
        cursors = [0] * len(self._lines)
        for at in self.times:
            texts = list(self._texts(at, cursors))
            took_seconds = float(self._durations.get(at, 0.0))
            if at in failed:
                yield Scrape(at, at, took_seconds, 0, b"", NOT_SCRAPED)
            else:
                # A page without any series that we asked for is a page.
                body = "\n".join(texts or [f"{UP} 1"]) + "\n"
                yield Scrape(at, at, took_seconds, 200, body.encode())

    def _texts(self, at: float, cursors: list[int]) -> Iterator[str]:
        """The lines of the page of a time; `cursors` are moved up to it."""
        for number, line in enumerate(self._lines):
            samples, cursor = line.samples, cursors[number]
            while cursor < len(samples) and samples[cursor][0] < at:
                cursor += 1
            cursors[number] = cursor
            if cursor < len(samples) and samples[cursor][0] == at:
                yield f"{line.head} {samples[cursor][1]}"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The servers that samples speak of, by name, and what people should know of how they were told apart."""

    servers: Mapping[str, ScrapedServer]
    notes: tuple[str, ...] = ()


def fleet_of(rows: Iterable[Row]) -> Fleet:
    """Sorts samples into the vLLM servers they came from.

    Of two that only differ in which Prometheus of a pair scraped them the one with more scrapes is taken. What answers
    and shows nothing of vLLM is another program; so is what is down, where its job has others of that kind.
    """
    rows = list(rows)
    servers = _anchors(rows)
    by_names = _by_names(servers)
    for row in rows:
        if row.labels[NAME] != UP:
            server = _owner(row.labels, by_names)
            if server is not None:
                server.take(row)
    others = {server.labels.get("job") for server in servers if not server.has_vllm and server.is_up}
    ours = [each for each in servers if each.has_vllm or (each.labels.get("job") not in others)]
    once, notes = _without_pairs([each for each in ours if each.times])
    return Fleet(_named(once), tuple(notes))


def _anchors(rows: Iterable[Row]) -> list[ScrapedServer]:
    """The targets: one for each `up`, and where none was kept one for each set of labels of an engine's gauge."""
    rows = list(rows)
    found = [
        ScrapedServer(_without(row.labels, {NAME}), row.samples) for row in rows if row.labels[NAME] == UP
    ]
    by_names = _by_names(found)
    for row in rows:
        if row.labels[NAME].endswith(_GAUGE) and _owner(row.labels, by_names) is None:
            labels = _without(row.labels, _ENGINES_OWN)
            if not any(each.labels == labels for each in found):
                found.append(ScrapedServer(labels, None))
    return found


_ByNames = dict[tuple[str, ...], dict[tuple[str, ...], ScrapedServer]]


def _by_names(servers: Iterable[ScrapedServer]) -> _ByNames:
    """The servers by the names of their labels, then by the values; the longest names first."""
    found: _ByNames = {}
    for server in servers:
        names = tuple(sorted(server.labels))
        found.setdefault(names, {})[tuple(server.labels[name] for name in names)] = server
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _owner(labels: Labels, by_names: _ByNames) -> ScrapedServer | None:
    for names, servers in by_names.items():
        server = servers.get(tuple(labels.get(name, "") for name in names))
        if server is not None:
            return server
    return None


def _without_pairs(servers: Sequence[ScrapedServer]) -> tuple[list[ScrapedServer], list[str]]:
    groups: dict[tuple[tuple[str, str], ...], list[ScrapedServer]] = {}
    for server in servers:
        key = tuple(sorted(_without(server.labels, REPLICA_LABELS).items()))
        # Without an address nothing says that both are the same server.
        if "instance" not in server.labels:
            key = tuple(sorted(server.labels.items()))
        groups.setdefault(key, []).append(server)
    kept = [max(group, key=lambda each: len(each.times)) for group in groups.values()]
    twice = sum(len(group) > 1 for group in groups.values())
    note = f"{twice} servers were scraped by more than one Prometheus: the one with more scrapes was taken for each"
    return kept, [note] if twice else []


def _named(servers: Sequence[ScrapedServer]) -> dict[str, ScrapedServer]:
    """Each server by the first of our ways to name them that tells all of them apart."""
    everywhere = sorted({name for server in servers for name in server.labels})
    for names in (*_NAMINGS, everywhere):
        told = [_name(each.labels, names) for each in servers]
        if all(told) and len(set(told)) == len(servers):
            return dict(sorted(zip(told, servers, strict=True)))
    return {f"server {number}": server for number, server in enumerate(servers, 1)}


def _name(labels: Labels, names: Sequence[str]) -> str:
    """The values of these labels; empty where the first is not among them."""
    if not names or not labels.get(names[0]):
        return ""
    text = " ".join(labels[name] for name in names if labels.get(name))
    # A slash parts the words of a key.
    return one_line(text.replace("/", "_"), 128).strip()


def _head(name: str, labels: Labels, of_target: Labels) -> str:
    """A series as it stood on the page, with the labels that it had there."""
    told = []
    for label, value in labels.items():
        if label != NAME and label not in of_target:
            # What a target's label had displaced gets its name back.
            bare = label.removeprefix("exported_")
            told.append(f'{bare if bare in of_target else label}="{_escaped(value)}"')
    return f"{name}{{{','.join(told)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _without(labels: Labels, names: Iterable[str]) -> dict[str, str]:
    left_out = frozenset(names)
    return {name: value for name, value in labels.items() if name not in left_out}


def _is_zero(sample: Sample) -> bool:
    return float(sample[1]) == 0


def labels_text(labels: Labels) -> str:
    """Target labels as a selector that finds them."""
    shown = sorted(printable_labels(labels).items())
    return "{" + ", ".join(f'{name}="{value}"' for name, value in shown) + "}"
