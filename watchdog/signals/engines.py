"""How the engines of one data-parallel server share its work."""

from collections.abc import Callable, Iterator, Mapping

from watchdog.model import Subject
from watchdog.signals.owners import Owners

Lookup = Callable[[str], float | None]


def of_one_server(engines: Mapping[Subject, Lookup], owners: Owners) -> dict[Subject, Lookup]:
    """The engines of the model, and on a page of several servers of the server, that has most.

    Two models on one port share no work, and of two servers some router decides: neither are compared.
    """
    groups: dict[tuple[str, str], dict[Subject, Lookup]] = {}
    for subject, lookup in engines.items():
        server = owners.parted(subject.engine)[1]
        groups.setdefault((subject.model_name, server), {})[subject] = lookup
    return max(groups.values(), key=len, default={})


def facts(engines: Mapping[Subject, Lookup]) -> Iterator[tuple[str, float]]:
    """The facts about the engines (or targets) of one model; figures that one of them lacks are left out."""
    yield "engines", float(len(engines))
    if len(engines) < 2:
        return
    lookups = list(engines.values())
    requests = _all(lookups, "first_tokens")
    tokens = _all(lookups, "generation_tokens_per_second")
    if requests is not None:
        yield "engines_first_tokens", sum(requests)
    shares = _shares(requests) or _shares(tokens)
    if shares is not None:
        yield "least_engine_share_ratio", min(shares)
        yield "greatest_engine_share_ratio", max(shares)
    running = _all(lookups, "running_mean")
    if running is not None:
        yield "engine_running_greatest", max(running)
        yield "engine_running_mean", sum(running) / len(running)
        yield "engine_running_least", min(running)
    pools = _all(lookups, "kv_usage_mean_ratio")
    if pools is not None:
        yield "engine_kv_usage_least_ratio", min(pools)
    waiting = _all(lookups, "waiting_recent_min")
    if waiting is not None:
        yield "engine_waiting_greatest", max(waiting)
        yield "engine_waiting_least", min(waiting)


def _all(lookups: list[Lookup], name: str) -> list[float] | None:
    values = [lookup(name) for lookup in lookups]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _shares(amounts: list[float] | None) -> list[float] | None:
    total = sum(amounts) if amounts else 0.0
    return [amount / total for amount in amounts] if amounts and total > 0 else None
