"""How the engines of one data-parallel server share its work, and the targets of a fleet that of a model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from watchdog.facts.fact import Fact, Known
from watchdog.history.owners import Owners
from watchdog.model import Lookup, Subject

# fmt: off
ENGINES = Fact("engines", "engines", "Engines of one server.")
FIRST_TOKENS = Fact("engines_first_tokens", "requests", "Requests that got their first token on any engine.")
LEAST_SHARE = Fact(
    "least_engine_share_ratio", "ratio", "Share of the requests (or else tokens) that the least used engine did.")
GREATEST_SHARE = Fact("greatest_engine_share_ratio", "ratio", "Share that the most used engine did.")
RUNNING_GREATEST = Fact("engine_running_greatest", "requests", "Mean batch of the fullest engine.")
RUNNING_MEAN = Fact("engine_running_mean", "requests", "Mean batch over the engines.")
RUNNING_LEAST = Fact("engine_running_least", "requests", "Mean batch of the emptiest engine.")
WAITING_GREATEST = Fact("engine_waiting_greatest", "requests", "Longest standing queue among the engines.")
WAITING_LEAST = Fact("engine_waiting_least", "requests", "Shortest standing queue among the engines.")
KV_USAGE_LEAST = Fact(
    "engine_kv_usage_least_ratio", "ratio", "Mean KV usage of the engine whose pool is emptiest.")
TARGETS = Fact("targets", "targets", "Targets that serve one model and answer.")
HIT_RATIO_SPREAD = Fact(
    "hit_ratio_spread", "ratio", "Best less worst prefix hit ratio among the targets of a model.")
# fmt: on


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


def fleet_facts(loads: Sequence[Load], hit_ratios: Sequence[float]) -> Iterator[Known]:
    """The facts about the targets of one model, with the prefix hit ratios of those that have one."""
    yield from facts(loads)
    yield TARGETS, float(len(loads))
    if len(hit_ratios) >= 2:
        yield HIT_RATIO_SPREAD, max(hit_ratios) - min(hit_ratios)


def facts(loads: Sequence[Load]) -> Iterator[Known]:
    """The facts about the engines (or targets) of one model; figures that one of them lacks are left out."""
    yield ENGINES, float(len(loads))
    if len(loads) < 2:
        return
    requests = _all_known(load.first_tokens for load in loads)
    tokens = _all_known(load.generation_tokens_per_second for load in loads)
    if requests is not None:
        yield FIRST_TOKENS, sum(requests)
    shares = _shares(requests) or _shares(tokens)
    if shares is not None:
        yield LEAST_SHARE, min(shares)
        yield GREATEST_SHARE, max(shares)
    running = _all_known(load.running_mean for load in loads)
    if running is not None:
        yield RUNNING_GREATEST, max(running)
        yield RUNNING_MEAN, sum(running) / len(running)
        yield RUNNING_LEAST, min(running)
    pools = _all_known(load.kv_usage_mean_ratio for load in loads)
    if pools is not None:
        yield KV_USAGE_LEAST, min(pools)
    waiting = _all_known(load.waiting_recent_min for load in loads)
    if waiting is not None:
        yield WAITING_GREATEST, max(waiting)
        yield WAITING_LEAST, min(waiting)


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
