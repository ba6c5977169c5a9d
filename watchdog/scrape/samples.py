"""Raw samples, as a Prometheus keeps them, back into the scrapes that they came from: a page a server and a time.

All samples of one scrape carry its time to the millisecond, and the labels that the Prometheus gave their target. The
series `up` has just these labels, and a sample for each scrape, also for one that failed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

from watchdog.model import NO_LABELS, Failure, Reason, Scrape
from watchdog.scrape.answer import Row, labels_of, samples_of
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
# What was sorted once is known until so many times as much is known as is seen.
MOST_TIMES = 2
SPARE_PLACES = 1000
# The other of a pair is taken once this one has missed so many scrapes that the other has.
_MISSED = 3
NOT_SCRAPED = Failure(Reason.NOT_SCRAPED, "the Prometheus could not scrape it (`up` is 0)")

Labels = Mapping[str, str]


class _Target:
    """A target of a Prometheus; `is_inferred` where no `up` was kept, and its labels are from an engine's gauge."""

    def __init__(self, labels: Labels, is_inferred: bool = False) -> None:
        self.labels = labels
        self.is_inferred = is_inferred
        self.has_vllm = False


_Place = tuple[_Target, bytes]
"""Whose a series is, and how it stood on its page."""
_Line = tuple[bytes, bytes]
"""A series as it stood on its page, without a value, and its samples."""


class _Moment(NamedTuple):
    """When a server was scraped: in unix seconds, and as its samples have it written."""

    at: float
    written: bytes


class ScrapedServer:
    """One target of a Prometheus, by its target labels, and what was scraped of it.

    `scraped_by` are labels that say which of a pair of Prometheus scraped it, `has_vllm` is whether a series of vLLM
    was ever on a page. `before` is the same pod at an address that it had until then: its scrapes come first.
    """

    def __init__(
        self,
        labels: Labels,
        lines: Iterable[_Line],
        scraped_by: Labels = NO_LABELS,
        has_vllm: bool = False,
    ) -> None:
        self.labels = labels
        self.scraped_by = scraped_by
        self.has_vllm = has_vllm
        self.before: ScrapedServer | None = None
        # In an order of their own: some answer in another one each time, and a page that keeps its shape is read fast.
        self._lines = sorted(line for line in lines if line[0] not in {_UP, _DURATION})
        of_prometheus = {head: values for head, values in lines if head in {_UP, _DURATION}}
        up = of_prometheus.get(_UP)
        self._up = None if up is None else dict(samples_of(up))
        self._durations = dict(samples_of(of_prometheus.get(_DURATION, b"")))
        self._moments = self._when()

    def _when(self) -> Sequence[_Moment]:
        if self._up is None:
            written = {at for _, values in self._lines for at, _ in samples_of(values)}
            return sorted(_Moment(float(at), at) for at in written)
        return [_Moment(float(at), at) for at, value in self._up.items() if isfinite(float(value))]

    @property
    def times(self) -> list[float]:
        """When it was scraped, or scraped in vain, in unix seconds."""
        return [moment.at for moment in self._moments]

    @property
    def pace_seconds(self) -> float | None:
        """The usual time between two scrapes; None for under two."""
        gaps = sorted(after - before for before, after in pairwise(self.times))
        return gaps[len(gaps) // 2] if gaps else None

    @property
    def is_up(self) -> bool:
        """Whether its last scrape gave a page."""
        return not self._up or float(next(reversed(self._up.values()))) != 0

    def scrapes(self, after: float = -inf) -> Iterator[Scrape]:
        """Its scrapes later than `after` (unix seconds) in order; a page is put together as it is asked for."""
        if self.before is not None:
            yield from self.before.scrapes(after)
        for at, written in self._moments:
            if at <= after:
                continue
            took_seconds = float(self._durations.get(written, 0.0))
            if self._up is not None and float(self._up[written]) == 0:
                yield Scrape(at, at, took_seconds, 0, b"", NOT_SCRAPED)
            else:
                # A page without any series that we asked for is a page.
                texts = list(self._texts(written)) or [UP.encode() + b" 1"]
                yield Scrape(at, at, took_seconds, 200, b"\n".join(texts) + b"\n")

    def _texts(self, written: bytes) -> Iterator[bytes]:
        """The lines of the page of a time."""
        mark = b"[" + written + b',"'
        length = len(mark)
        for head, values in self._lines:
            begin = values.find(mark)
            if begin >= 0:
                begin += length
                yield head + b" " + values[begin : values.index(b'"', begin)]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The servers that samples speak of, by name, and what people should know of how they were distinguished."""

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
        places = self._places
        new = {metric: labels_of(metric) for metric, _ in rows if metric not in places}
        if new and not self._sort(new):
            places.clear()
            self._sort({metric: labels_of(metric) for metric, _ in rows})
        if len(places) > MOST_TIMES * len(rows) + SPARE_PLACES:
            # Of what was on no page lately nothing is kept.
            now = {metric for metric, _ in rows}
            self._places = {metric: place for metric, place in places.items() if metric in now}
        return self._fleet(rows)

    def _sort(self, new: Mapping[bytes, Labels]) -> bool:
        """Finds whose these are; False where a new target changes whose the others are."""
        known = list(dict.fromkeys(target for target, _ in self._places.values()))
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
                self._places[metric] = (target, self._head(labels, target.labels))
        return True

    def _head(self, labels: Labels, of_target: Labels) -> bytes:
        """As the series stood on its page; the same for all servers of a kind, hence kept once."""
        head = _head(labels, of_target)
        return self._heads.setdefault(head, head)

    def _fleet(self, rows: Iterable[Row]) -> Fleet:
        lines: defaultdict[_Target, list[_Line]] = defaultdict(list)
        places = self._places
        for metric, values in rows:
            place = places.get(metric)
            if place is not None:
                lines[place[0]].append((place[1], values))
        servers = [self._server(target, own) for target, own in lines.items()]
        scraped = [server for server in servers if server.times]
        others = {server.labels.get("job") for server in scraped if not server.has_vllm and server.is_up}
        ours = [each for each in scraped if each.has_vllm or each.labels.get("job") not in others]
        once, notes = self._without_pairs(ours)
        return Fleet(_named(_joined(once)), tuple(notes))

    def _server(self, target: _Target, lines: Iterable[_Line]) -> ScrapedServer:
        """A server; without an address nothing would say that two of a pair scrape the same."""
        of_pair = self._replica_labels if ADDRESS in target.labels else frozenset[str]()
        scraped_by = {name: value for name, value in target.labels.items() if name in of_pair}
        return ScrapedServer(_without(target.labels, of_pair), lines, scraped_by, target.has_vllm)

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
    """Each server by the first way of naming that is unique for all of them."""
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
    return f"{labels[NAME]}{{{','.join(told)}}}".encode(errors="replace")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _without(labels: Labels, names: Iterable[str]) -> dict[str, str]:
    left_out = frozenset(names)
    return {name: value for name, value in labels.items() if name not in left_out}


def labels_text(labels: Labels) -> str:
    """Target labels as a selector that finds them."""
    shown = sorted(printable_labels(labels).items())
    return "{" + ", ".join(f'{name}="{value}"' for name, value in shown) + "}"
