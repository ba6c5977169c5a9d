"""Raw samples, as a Prometheus keeps them, back into the scrapes that they came from: a page a server and a time.

All samples of one scrape carry its time to the millisecond, and the labels that the Prometheus gave their target. The
series `up` has just these labels, and a sample for each scrape, also for one that failed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

from watchdog.model import NO_LABELS, Failure, Reason, Scrape
from watchdog.scrape.answer import Row, Sample, labels_of
from watchdog.settings.prometheus import REPLICA_LABELS
from watchdog.text import one_line, printable_labels

NAME = "__name__"
UP = "up"
DURATION = "scrape_duration_seconds"
# What the Prometheus itself says of a scrape has the target's labels and no others.
_UP, _DURATION = f"{UP}{{}}".encode(), f"{DURATION}{{}}".encode()
# What every engine shows, without a prefix; its labels tell the target's where no `up` was kept.
_GAUGE = "num_requests_running"
ADDRESS = "instance"
_ENGINES_OWN = frozenset({NAME, "model_name", "engine"})
# In this order names are tried: a pod is what people look for, an address changes.
_NAMINGS = (
    *(("pod",), ("pod", "namespace"), ("pod", "namespace", "cluster")),
    *(("instance",), ("instance", "job"), ("instance", "job", "cluster")),
)
# The other of a pair is taken once this one has missed so many scrapes that the other has.
_MISSED = 3
NOT_SCRAPED = Failure(Reason.NOT_SCRAPED, "the Prometheus could not scrape it (`up` is 0)")

Labels = Mapping[str, str]


class _Line(NamedTuple):
    """A series as it stood on the page, without its value."""

    head: bytes
    samples: Sequence[Sample]


class _Target:
    """A target of a Prometheus; `is_inferred` where no `up` was kept, and an engine's gauge told its labels."""

    def __init__(self, labels: Labels, is_inferred: bool = False) -> None:
        self.labels = labels
        self.is_inferred = is_inferred
        self.has_vllm = False


class _Place(NamedTuple):
    """Whose a series is, and how it stood on its page."""

    target: _Target
    head: bytes


class ScrapedServer:
    """One target of a Prometheus, by its target labels, and what was scraped of it.

    `scraped_by` are labels that say which of a pair of Prometheus scraped it, `has_vllm` is whether a series of vLLM
    was ever on a page. `before` is the same pod at an address that it had until then: its scrapes come first.
    """

    def __init__(self, labels: Labels, scraped_by: Labels = NO_LABELS, has_vllm: bool = False) -> None:
        self.labels = labels
        self.scraped_by = scraped_by
        self.has_vllm = has_vllm
        self.before: ScrapedServer | None = None
        self._up: Sequence[Sample] | None = None
        self._lines: list[_Line] = []
        self._durations: Mapping[float, bytes] = {}

    def take(self, head: bytes, samples: Sequence[Sample]) -> None:
        """Adds a series of its pages, as it stood there, or one that the Prometheus made of its scrapes."""
        if head == _UP:
            self._up = samples
        elif head == _DURATION:
            self._durations = dict(samples)
        else:
            self._lines.append(_Line(head, samples))

    @property
    def times(self) -> list[float]:
        """When it was scraped, or scraped in vain, in unix seconds."""
        if self._up is None:
            return sorted({at for line in self._lines for at, _ in line.samples})
        return [at for at, value in self._up if isfinite(float(value))]

    @property
    def pace_seconds(self) -> float | None:
        """The usual time between two scrapes; None for under two."""
        gaps = sorted(after - before for before, after in pairwise(self.times))
        return gaps[len(gaps) // 2] if gaps else None

    @property
    def is_up(self) -> bool:
        """Whether its last scrape gave a page."""
        return not self._up or not _is_zero(self._up[-1])

    def scrapes(self, after: float = -inf) -> Iterator[Scrape]:
        """Its scrapes later than `after` (unix seconds) in order; a page is put together as it is asked for."""
        if self.before is not None:
            yield from self.before.scrapes(after)
        failed = {at for at, value in self._up or () if float(value) == 0}
        cursors = [0] * len(self._lines)
        for at in self.times:
            if at <= after:
                continue
            took_seconds = float(self._durations.get(at, 0.0))
            if at in failed:
                yield Scrape(at, at, took_seconds, 0, b"", NOT_SCRAPED)
            else:
                # A page without any series that we asked for is a page.
                texts = list(self._texts(at, cursors)) or [UP.encode() + b" 1"]
                yield Scrape(at, at, took_seconds, 200, b"\n".join(texts) + b"\n")

    def _texts(self, at: float, cursors: list[int]) -> Iterator[bytes]:
        """The lines of the page of a time; `cursors` are moved up to it."""
        for number, line in enumerate(self._lines):
            samples, cursor = line.samples, cursors[number]
            while cursor < len(samples) and samples[cursor][0] < at:
                cursor += 1
            cursors[number] = cursor
            if cursor < len(samples) and samples[cursor][0] == at:
                yield line.head + b" " + samples[cursor][1]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The servers that samples speak of, by name, and what people should know of how they were told apart."""

    servers: Mapping[str, ScrapedServer]
    notes: tuple[str, ...] = ()


def fleet_of(rows: Iterable[Row]) -> Fleet:
    """Sorts the samples of one look into the vLLM servers they came from; as `Looks` does."""
    return Looks().fleet(rows)


class Looks:
    """Sorts samples into the vLLM servers they came from, one look after the other; what was sorted once is known.

    Of two servers that only differ in `replica_labels` (which of a pair of Prometheus scraped them) the one with more
    scrapes is taken. What answers and never showed anything of vLLM is another program; so is what is down, where its
    job has others of that kind.
    """

    def __init__(self, replica_labels: Collection[str] = REPLICA_LABELS) -> None:
        self._replica_labels = frozenset(replica_labels)
        self._places: dict[bytes, _Place] = {}
        self._heads: dict[bytes, bytes] = {}
        # Which of a pair was taken the last time, by the labels of the server.
        self._scraped_by: dict[frozenset[tuple[str, str]], Labels] = {}

    def fleet(self, rows: Iterable[Row]) -> Fleet:
        """The servers of a look; raises ValueError for a row whose labels cannot be read."""
        rows = list(rows)
        new = {row.metric: labels_of(row.metric) for row in rows if row.metric not in self._places}
        if new and not self._sort(new):
            self._places.clear()
            self._sort({row.metric: labels_of(row.metric) for row in rows})
        places = self._places
        # What is on no page any more is forgotten.
        self._places = {row.metric: places[row.metric] for row in rows if row.metric in places}
        return self._fleet(rows)

    def _sort(self, new: Mapping[bytes, Labels]) -> bool:
        """Finds whose these are; False where a new target changes whose the others are."""
        known = list(dict.fromkeys(place.target for place in self._places.values()))
        by_names = _by_names(known)
        found = {
            metric: _Target(_without(labels, {NAME})) for metric, labels in new.items() if labels[NAME] == UP
        }
        is_told_now = any(target.is_inferred for target in known)
        if found and (is_told_now or any(_owner(each.labels, by_names) for each in found.values())):
            return False
        by_names = _by_names([*known, *found.values()])
        inferred = _inferred([each for each in new.values() if _owner(each, by_names) is None])
        by_names = _by_names([*known, *found.values(), *inferred])
        for metric, labels in new.items():
            target = found.get(metric) or _owner(labels, by_names)
            if target is not None:
                target.has_vllm = target.has_vllm or "vllm" in labels[NAME]
                self._places[metric] = _Place(target, self._head(labels, target.labels))
        return True

    def _head(self, labels: Labels, of_target: Labels) -> bytes:
        """As the series stood on its page; the same for all servers of a kind, hence kept once."""
        head = _head(labels, of_target)
        return self._heads.setdefault(head, head)

    def _fleet(self, rows: Iterable[Row]) -> Fleet:
        servers: dict[_Target, ScrapedServer] = {}
        places = self._places
        for metric, samples in rows:
            place = places.get(metric)
            if place is not None:
                target = place.target
                server = servers.get(target)
                if server is None:
                    server = servers[target] = self._server(target)
                server.take(place.head, samples)
        scraped = [server for server in servers.values() if server.times]
        others = {server.labels.get("job") for server in scraped if not server.has_vllm and server.is_up}
        ours = [each for each in scraped if each.has_vllm or each.labels.get("job") not in others]
        once, notes = self._without_pairs(ours)
        return Fleet(_named(_joined(once)), tuple(notes))

    def _server(self, target: _Target) -> ScrapedServer:
        """A server without scrapes yet; without an address nothing would say that two of a pair scrape the same."""
        of_pair = self._replica_labels if ADDRESS in target.labels else frozenset[str]()
        scraped_by = {name: value for name, value in target.labels.items() if name in of_pair}
        return ScrapedServer(_without(target.labels, of_pair), scraped_by, target.has_vllm)

    def _without_pairs(self, servers: Sequence[ScrapedServer]) -> tuple[list[ScrapedServer], list[str]]:
        groups: dict[frozenset[tuple[str, str]], list[ScrapedServer]] = {}
        for server in servers:
            groups.setdefault(frozenset(server.labels.items()), []).append(server)
        kept = [
            group[0] if len(group) == 1 else _best(group, self._scraped_by.get(key))
            for key, group in groups.items()
        ]
        self._scraped_by = {
            key: server.scraped_by for key, server in zip(groups, kept, strict=True) if server.scraped_by
        }
        twice = sum(len(group) > 1 for group in groups.values())
        note = f"{twice} servers were scraped by more than one Prometheus: the one with more scrapes was taken for each"
        return kept, [note] if twice else []


def _inferred(unowned: Iterable[Labels]) -> list[_Target]:
    """Targets of which no `up` was kept: one for each set of labels of an engine's gauge."""
    found: list[_Target] = []
    for labels in unowned:
        own = _without(labels, _ENGINES_OWN)
        if labels[NAME].endswith(_GAUGE) and not any(each.labels == own for each in found):
            found.append(_Target(own, is_inferred=True))
    return found


_ByNames = dict[tuple[str, ...], dict[tuple[str, ...], _Target]]


def _by_names(targets: Iterable[_Target]) -> _ByNames:
    """The targets by the names of their labels, then by the values; the longest names first."""
    found: _ByNames = {}
    for target in targets:
        names = tuple(sorted(target.labels))
        found.setdefault(names, {})[tuple(target.labels[name] for name in names)] = target
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _owner(labels: Labels, by_names: _ByNames) -> _Target | None:
    for names, targets in by_names.items():
        target = targets.get(tuple(labels.get(name, "") for name in names))
        if target is not None:
            return target
    return None


def _best(group: Sequence[ScrapedServer], before: Labels | None) -> ScrapedServer:
    """The one of a pair with more scrapes; that of the look before as long as it sees what the others see."""
    best = max(group, key=lambda each: (each.is_up, len(each.times)))
    last = next((each for each in group if each.scraped_by == before), best)
    missed = sum(at > last.times[-1] for at in best.times)
    return last if missed < _MISSED and last.is_up >= best.is_up else best


def _joined(servers: Sequence[ScrapedServer]) -> list[ScrapedServer]:
    """The servers, of which a pod that went on at another address is one."""
    kept: list[ScrapedServer] = []
    last: dict[frozenset[tuple[str, str]], ScrapedServer] = {}
    for server in sorted(servers, key=lambda each: each.times[0]):
        key = frozenset(_without(server.labels, {ADDRESS}).items())
        before = last.get(key)
        if "pod" in server.labels and before is not None and before.times[-1] < server.times[0]:
            server.before = before
            kept.remove(before)
        last[key] = server
        kept.append(server)
    return kept


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


def _head(labels: Labels, of_target: Labels) -> bytes:
    """A series as it stood on the page, with the labels that it had there."""
    told = []
    for label, value in labels.items():
        if label != NAME and label not in of_target:
            # What a target's label had displaced gets its name back.
            bare = label.removeprefix("exported_")
            told.append(f'{bare if bare in of_target else label}="{_escaped(value)}"')
    return f"{labels[NAME]}{{{','.join(told)}}}".encode()


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
