"""Whose series a page shows: the model, the engine and, where several servers share the page, the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watchdog.history.names import CORE, spellings
from watchdog.model import Series
from watchdog.text import printable

Owner = tuple[str | None, str | None]
"""The model's and the engine's name; None for one that a series does not tell."""

_MODEL_LABELS = ("model_name", "model")
_WHO = frozenset({*_MODEL_LABELS, "engine"})
# vLLM shows one series of each for an engine, so that a second one is another server's.
_ONCE = frozenset(
    spelling for core in CORE if core != "vllm:request_success_total" for spelling in spellings(core)
)


@dataclass(frozen=True, slots=True)
class Owners:
    """To whom the series of a page belong.

    Ray's node agents, federating servers and gateways show several vLLM servers on one page, distinguished by labels of
    their own (`marks`, such as ReplicaId or pod). The engine of such a series is `engine@server`: a sum over servers
    would be no one's batch and no one's pool. Names are made printable here: from here they go everywhere.
    """

    each: tuple[Owner, ...]
    """By position on the page."""
    marks: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, str]] | None = None
    """The vLLM engine and the server in each engine name that holds a server."""

    def parted(self, engine: str) -> tuple[str, str]:
        """The vLLM engine and the server in an engine's name; the server is empty on a page of one."""
        return self.parts.get(engine, (engine, "")) if self.parts else (engine, "")


def owners_of(series: Sequence[Series]) -> Owners:
    """To whom each series belongs."""
    marks = _marks(series)
    parts: dict[str, tuple[str, str]] = {}
    each: list[Owner] = []
    for one in series:
        engine, model = _printable(one.labels.get("engine")), _printable(_model_of(one.labels))
        server = printable(",".join(one.labels[mark] for mark in marks if mark in one.labels))
        if server:
            named = f"{engine}@{server}" if engine else server
            parts[named] = (engine or "", server)
            engine = named
        each.append((model, engine))
    return Owners(tuple(each), marks, parts)


def _printable(name: str | None) -> str | None:
    return None if name is None else printable(name)


def _model_of(labels: Mapping[str, str]) -> str | None:
    # Triton's vLLM backend and others say `model`.
    return next((labels[name] for name in _MODEL_LABELS if name in labels), None)


def _marks(series: Sequence[Series]) -> tuple[str, ...]:
    """The labels that tell the servers of a page apart; none for a page of one server.

    They are on all series of engines, counters as well: a label of some gauges only (`pid` of several processes that
    write one server's metrics) is no server.
    """
    groups: dict[tuple[str, str | None, str | None], list[Mapping[str, str]]] = {}
    for one in series:
        if one.name in _ONCE:
            key = (one.name, _model_of(one.labels), one.labels.get("engine"))
            groups.setdefault(key, []).append(one.labels)
    crowded = [group for group in groups.values() if len(group) > 1]
    if not crowded:
        return ()
    everywhere = set.intersection(*(set(labels) for group in groups.values() for labels in group)) - _WHO
    for mark in sorted(everywhere):
        if all(len({labels[mark] for labels in group}) == len(group) for group in crowded):
            return (mark,)
    return tuple(
        mark
        for mark in sorted(everywhere)
        if any(len({labels[mark] for labels in group}) > 1 for group in crowded)
    )
