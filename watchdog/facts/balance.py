"""How the engines of one data-parallel server share its work, and the targets of a fleet that of a model."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from heapq import nsmallest
from math import exp, log

from watchdog.facts.fact import Fact, Known
from watchdog.history.owners import Owners
from watchdog.model import Lookup, Subject

# fmt: off
ENGINES = Fact("engines", "engines", "Engines of one server.")
FIRST_TOKENS = Fact("engines_first_tokens", "requests", "Requests that got their first token on any engine.")
LEAST_SHARE = Fact(
    "least_engine_share_ratio", "ratio",
    "Share of the tokens, prompts and output (or else of the requests), that the least used engine did.")
GREATEST_SHARE = Fact("greatest_engine_share_ratio", "ratio", "Share that the most used engine did.")
FEWEST_CHANCE = Fact(
    "fewest_chance_ratio", "ratio",
    "At most this is the chance that requests placed at random leave any engine as few as the least used one got.")
FULLEST_CHANCE = Fact(
    "fullest_chance_ratio", "ratio",
    "At most this is the chance that requests placed at random give any engine as many, running and waiting, as the "
    "fullest one has.")
RUNNING_GREATEST = Fact("engine_running_greatest", "requests", "Mean batch of the fullest engine.")
RUNNING_MEAN = Fact("engine_running_mean", "requests", "Mean batch over the engines.")
RUNNING_LEAST = Fact("engine_running_least", "requests", "Mean batch of the emptiest engine.")
WAITING_GREATEST = Fact("engine_waiting_greatest", "requests", "Longest standing queue among the engines.")
WAITING_LEAST = Fact("engine_waiting_least", "requests", "Shortest standing queue among the engines.")
STRANDED = Fact(
    "stranded_requests", "requests", "Longest standing queue while another engine has none; 0 where all have one.")
PRESSED_POOL = Fact(
    "pressed_pool_ratio", "ratio",
    "Of the engines on which requests wait, KV usage of the fullest, lowest of the last 10 s; 0 where none wait.")
KV_USAGE_LEAST = Fact(
    "engine_kv_usage_least_ratio", "ratio", "Mean KV usage of the engine whose pool is emptiest.")
PREEMPTED_GREATEST = Fact(
    "preempted_greatest_ratio", "ratio",
    "Preemptions over the requests that were in the batch, on the engine where they weigh most.")
SISTER_POOL = Fact(
    "sister_kv_usage_least_ratio", "ratio",
    "Mean KV usage of the emptiest pool among the server's other engines on which no request waits; unknown where each "
    "has a queue, and for an only engine.")
TARGETS = Fact("targets", "targets", "Targets that serve one model and answer.")
CONNECTED = Fact(
    "connected_targets", "targets", "Of these, targets whose connector takes KV from other servers (NIXL, Mooncake).")
FLEET_TRANSFERS = Fact(
    "fleet_kv_transfers_per_second", "1/s",
    "KV transfers per second among the targets of a model, 0 where none has such a connector.")
HIT_RATIO_SPREAD = Fact(
    "hit_ratio_spread", "ratio", "Best less worst prefix hit ratio among the targets of a model.")
# fmt: on


@dataclass(frozen=True, slots=True)
class Load:
    """What one engine, or one target of a fleet, did in the window; None is unknown.

    Each field is the signal of that name.
    """

    first_tokens: float | None = None
    generation_tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    running_mean: float | None = None
    running_last: float | None = None
    kv_usage_mean_ratio: float | None = None
    kv_usage_recent_min_ratio: float | None = None
    waiting_recent_min: float | None = None
    preemptions: float | None = None
    finished_requests: float | None = None
    kv_transfers_per_second: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """What it processed: prompts where they are known, and output."""
        output, prompts = self.generation_tokens_per_second, self.prompt_tokens_per_second
        return None if output is None else output + (prompts or 0.0)

    @property
    def preempted_ratio(self) -> float | None:
        """Preemptions over the requests that were in the batch; 0 for none of none."""
        thrown, finished, running = self.preemptions, self.finished_requests, self.running_last
        if thrown is None or finished is None or running is None:
            return None
        return thrown / (finished + running) if finished + running > 0 else 0.0

    @classmethod
    def of(cls, lookup: Lookup) -> "Load":
        """The load of an engine, read from its signals."""
        return cls(**{field.name: lookup(field.name) for field in fields(cls)})


_SUMMED = (
    *("first_tokens", "generation_tokens_per_second", "prompt_tokens_per_second"),
    *("running_mean", "waiting_recent_min"),
)


def of_one_server(engines: Mapping[Subject, Lookup], owners: Owners) -> dict[Subject, Lookup]:
    """The engines of the model, and on a page of several servers of the server, that has most.

    Two models on one port share no work, and of two servers some router decides: neither are compared.
    """
    return max(of_each_server(engines, owners), key=len, default={})


def of_each_server(engines: Mapping[Subject, Lookup], owners: Owners) -> list[dict[Subject, Lookup]]:
    """The engines on a page by the server and the model that they share the work of."""
    groups: dict[tuple[str, str], dict[Subject, Lookup]] = {}
    for subject, lookup in engines.items():
        server = owners.parted(subject.engine)[1]
        groups.setdefault((subject.model_name, server), {})[subject] = lookup
    return list(groups.values())


def of_servers(engines: Mapping[Subject, Lookup], owners: Owners) -> dict[str, list["Load"]]:
    """By model the load of each of several servers that one page shows; a model of one server is left out."""
    models: dict[str, dict[str, list[Load]]] = {}
    for subject, lookup in engines.items():
        server = owners.parted(subject.engine)[1]
        if server:
            models.setdefault(subject.model_name, {}).setdefault(server, []).append(Load.of(lookup))
    return {
        model: [together(loads) for loads in servers.values()]
        for model, servers in models.items()
        if len(servers) > 1
    }


def together(engines: Sequence["Load"]) -> "Load":
    """What the engines of one server did, each figure known where it is of all of them."""

    def total(name: str) -> float | None:
        known = _all_known(getattr(one, name) for one in engines)
        return None if known is None else sum(known)

    return Load(**{name: total(name) for name in _SUMMED})


def fleet_facts(loads: Sequence[Load], hit_ratios: Sequence[float]) -> Iterator[Known]:
    """The facts about the targets of one model, with the prefix hit ratios of those that have one."""
    yield from facts(loads)
    yield TARGETS, float(len(loads))
    transfers = _known(load.kv_transfers_per_second for load in loads)
    yield CONNECTED, float(len(transfers))
    yield FLEET_TRANSFERS, sum(transfers)
    if len(hit_ratios) >= 2:
        yield HIT_RATIO_SPREAD, max(hit_ratios) - min(hit_ratios)


def facts(loads: Sequence[Load]) -> Iterator[Known]:
    """The facts about the engines (or targets) of one model; figures that one of them lacks are left out."""
    yield ENGINES, float(len(loads))
    if len(loads) < 2:
        return
    yield from _of_work(loads)
    yield from _of_batches(loads)
    pools = _all_known(load.kv_usage_mean_ratio for load in loads)
    if pools is not None:
        yield KV_USAGE_LEAST, min(pools)
    # One that is pressed is enough: what another one does not tell takes nothing from it.
    preempted = _known(load.preempted_ratio for load in loads)
    if preempted:
        yield PREEMPTED_GREATEST, max(preempted)


def sister_facts(engines: Mapping[Subject, Load]) -> Iterator[tuple[Subject, Known]]:
    """What the rules of each engine of a server know of its others: the room that one of them has."""
    pools = {
        subject: load.kv_usage_mean_ratio
        for subject, load in engines.items()
        if load.waiting_recent_min == 0 and load.kv_usage_mean_ratio is not None
    }
    # An engine is no sister of its own, and one of two is another one.
    emptiest = nsmallest(2, pools, key=pools.__getitem__)
    for subject in engines:
        sister = next((one for one in emptiest if one != subject), None)
        if sister is not None:
            yield subject, (SISTER_POOL, pools[sister])


def _of_work(loads: Sequence[Load]) -> Iterator[Known]:
    """How what came in the window fell on them."""
    requests = _all_known(load.first_tokens for load in loads)
    if requests is not None:
        yield FIRST_TOKENS, sum(requests)
        yield FEWEST_CHANCE, chance_of_share(min(requests), requests)
    shares = _shares(_all_known(load.tokens_per_second for load in loads)) or _shares(requests)
    if shares is not None:
        yield LEAST_SHARE, min(shares)
        yield GREATEST_SHARE, max(shares)


def _of_batches(loads: Sequence[Load]) -> Iterator[Known]:
    """What runs and waits on them."""
    running = _all_known(load.running_mean for load in loads)
    waiting = _all_known(load.waiting_recent_min for load in loads)
    if running is not None:
        yield RUNNING_GREATEST, max(running)
        yield RUNNING_MEAN, sum(running) / len(running)
        yield RUNNING_LEAST, min(running)
        held = running if waiting is None else [sum(both) for both in zip(running, waiting, strict=True)]
        yield FULLEST_CHANCE, chance_of_share(max(held), held)
    if waiting is not None:
        yield WAITING_GREATEST, max(waiting)
        yield WAITING_LEAST, min(waiting)
        yield STRANDED, max(waiting) if min(waiting) == 0 else 0.0
        held_back = [load.kv_usage_recent_min_ratio for load in loads if load.waiting_recent_min]
        pressed = _known(held_back)
        if pressed or not held_back:
            yield PRESSED_POOL, max(pressed, default=0.0)


def chance_of_share(part: float, parts: Sequence[float]) -> float:
    """At most this is the chance, 0 to 1, that random placement makes any of the parts so much or so little of all.

    Chernoff's bound of the binomial distribution, times the number of parts (Hoeffding, Probability Inequalities for
    Sums of Bounded Random Variables, 1963, theorem 1): what is rare on one engine is common among sixty.
    """
    whole, even = sum(parts), 1.0 / len(parts)
    if whole <= 0:
        return 1.0
    share = min(1.0, part / whole)
    divergence = _divergence(share, even) + _divergence(1.0 - share, 1.0 - even)
    return min(1.0, len(parts) * exp(-whole * max(0.0, divergence)))


def _divergence(share: float, even: float) -> float:
    return share * log(share / even) if share > 0 and even > 0 else 0.0


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _all_known(values: Iterable[float | None]) -> list[float] | None:
    """The values; None where one of them is unknown."""
    found = list(values)
    known = _known(found)
    return known if len(known) == len(found) else None


def _shares(amounts: list[float] | None) -> list[float] | None:
    total = sum(amounts) if amounts else 0.0
    return [amount / total for amount in amounts] if amounts and total > 0 else None
