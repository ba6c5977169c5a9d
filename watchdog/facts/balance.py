"""How the engines of one data-parallel server share its work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from watchdog.history.owners import Owners
from watchdog.model import Lookup, Subject


@dataclass(frozen=True, slots=True)
class Load:
    """What one engine, or one target of a fleet, did in the window; None is unknown.

    Each field is the signal of that name.
    """

    first_tokens: float | None
    generation_tokens_per_second: float | None
    running_mean: float | None
    kv_usage_mean_ratio: float | None
    waiting_recent_min: float | None

    @classmethod
    def of(cls, lookup: Lookup) -> "Load":
        """The load of an engine, read from its signals."""
        return cls(**{field.name: lookup(field.name) for field in fields(cls)})


def of_one_server(engines: Mapping[Subject, Lookup], owners: Owners) -> dict[Subject, Lookup]:
    """The engines of the model, and on a page of several servers of the server, that has most.

    Two models on one port share no work, and of two servers some router decides: neither are compared.
    """
    groups: dict[tuple[str, str], dict[Subject, Lookup]] = {}
    for subject, lookup in engines.items():
        server = owners.parted(subject.engine)[1]
        groups.setdefault((subject.model_name, server), {})[subject] = lookup
    return max(groups.values(), key=len, default={})


def facts(loads: Sequence[Load]) -> Iterator[tuple[str, float]]:
    """The facts about the engines (or targets) of one model; figures that one of them lacks are left out."""
    yield "engines", float(len(loads))
    if len(loads) < 2:
        return
    requests = _all_known(load.first_tokens for load in loads)
    tokens = _all_known(load.generation_tokens_per_second for load in loads)
    if requests is not None:
        yield "engines_first_tokens", sum(requests)
    shares = _shares(requests) or _shares(tokens)
    if shares is not None:
        yield "least_engine_share_ratio", min(shares)
        yield "greatest_engine_share_ratio", max(shares)
    running = _all_known(load.running_mean for load in loads)
    if running is not None:
        yield "engine_running_greatest", max(running)
        yield "engine_running_mean", sum(running) / len(running)
        yield "engine_running_least", min(running)
    pools = _all_known(load.kv_usage_mean_ratio for load in loads)
    if pools is not None:
        yield "engine_kv_usage_least_ratio", min(pools)
    waiting = _all_known(load.waiting_recent_min for load in loads)
    if waiting is not None:
        yield "engine_waiting_greatest", max(waiting)
        yield "engine_waiting_least", min(waiting)


def _all_known(values: Iterable[float | None]) -> list[float] | None:
    """The values; None where one of them is unknown."""
    known = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return known


def _shares(amounts: list[float] | None) -> list[float] | None:
    total = sum(amounts) if amounts else 0.0
    return [amount / total for amount in amounts] if amounts and total > 0 else None
