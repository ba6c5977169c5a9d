"""How much the KV cache holds where no label says so: live tokens over the share of the pool that they take."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import quantiles
from typing import NamedTuple

from watchdog.facts.fact import Fact, Known
from watchdog.facts.server import POOL_TOKENS
from watchdog.model import Lookup, Subject

INFERRED_POOL_TOKENS = Fact(
    "inferred_pool_tokens",
    "tokens",
    "`pool_tokens` where no label gives it: tokens of live requests over the share of the pool they take, "
    "to two figures.",
)

# Pages that must agree before they are believed, and how many are kept.
_FEWEST_PAGES, _MOST_PAGES = 5, 60
# Their quartiles lie within this factor, or requests held what is not counted (a drifting gauge, a long prefill).
_MOST_SPREAD = 1.3
# Below it the share is a few blocks, and one half-filled block more or less moves the figure.
_LEAST_USAGE = 0.01
# Live requests hold a shared prefix once and count it each: with more than this share of hits the figure is too high.
_MOST_HITS = 0.1


class _Totals(NamedTuple):
    """What an engine has counted since its start: tokens and requests neither ended nor left, look-ups and hits."""

    live_tokens: float = 0.0
    live_requests: float = 0.0
    queries: float = 0.0
    hits: float = 0.0

    def since(self, start: "_Totals") -> "_Totals":
        """What came on top of an earlier total."""
        return _Totals(*(now - then for now, then in zip(self, start, strict=True)))


@dataclass(slots=True)
class _Pool:
    """What is known of one engine's pool; `empty` are the totals when no request was alive, None where unknown."""

    empty: _Totals | None = None
    is_new: bool = True
    sizes: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST_PAGES))

    def note(self, totals: _Totals, running: float, waiting: float, usage: float) -> None:
        """Takes one page's figures."""
        if running == 0 and waiting == 0:
            self.empty = totals
        elif self.is_new and totals.live_requests <= running:
            self.empty = _Totals()  # nobody ever left, so the counters began at an empty engine
        self.is_new = False
        if self.empty is None:
            return
        live = totals.since(self.empty)
        if live.live_requests > running + waiting:
            self.empty = None  # clients left: their tokens stay in the totals
        elif waiting == 0 and usage >= _LEAST_USAGE and live.live_tokens > 0 and _shares_little(live):
            # With a queue some may be preempted: they count, and hold nothing.
            self.sizes.append(live.live_tokens / usage)

    def tokens(self) -> float | None:
        """Its tokens; None before enough pages agree."""
        if len(self.sizes) < _FEWEST_PAGES:
            return None
        low, middle, high = quantiles(self.sizes, n=4)
        return float(f"{middle:.2g}") if high <= _MOST_SPREAD * low else None


def _shares_little(live: _Totals) -> bool:
    return live.hits <= _MOST_HITS * max(live.queries, 1.0)


@dataclass(slots=True)
class InferredPools:
    """Learns the pool of each engine from its pages, until the engine's next life."""

    _pools: dict[Subject, _Pool] = field(default_factory=dict)

    def note(self, subject: Subject, signals: Lookup) -> None:
        """Takes a page's signals; does nothing where a label shows the pool's size, or one of them is unknown."""
        if signals(POOL_TOKENS.name) is not None and signals(INFERRED_POOL_TOKENS.name) is None:
            return
        totals = [
            signals(name)
            for name in (
                "unfinished_tokens",
                "unfinished_requests",
                "prefix_queries_tokens_ever",
                "prefix_hit_tokens_ever",
            )
        ]
        now = [signals(name) for name in ("running_last", "waiting_last", "kv_usage_last_ratio")]
        known_totals = [one for one in totals if one is not None]
        known_now = [one for one in now if one is not None]
        if len(known_totals) == len(totals) and len(known_now) == len(now):
            self._pools.setdefault(subject, _Pool()).note(_Totals(*known_totals), *known_now)

    def forget(self, subject: Subject) -> None:
        """The engine began a new life, or is gone."""
        self._pools.pop(subject, None)

    def engine_facts(self, subject: Subject) -> Iterator[Known]:
        """The facts of one engine."""
        pool = self._pools.get(subject)
        tokens = None if pool is None else pool.tokens()
        if tokens is not None:
            yield POOL_TOKENS, tokens
            yield INFERRED_POOL_TOKENS, tokens
