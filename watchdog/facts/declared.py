"""All facts that are declared: the catalogue, the documentation and `rules check` know them from here."""

from collections.abc import Mapping
from types import MappingProxyType

from watchdog.facts import (
    balance,
    gauge_ranges,
    host_memory,
    inflight,
    pool,
    reachability,
    restarts,
    server,
    watching,
)
from watchdog.facts.fact import Fact

MODULES = (server, pool, reachability, restarts, host_memory, gauge_ranges, watching, inflight, balance)
"""The modules that yield facts, in the order in which people read of them."""

DECLARED: Mapping[str, Fact] = MappingProxyType(
    {one.name: one for module in MODULES for one in vars(module).values() if isinstance(one, Fact)}
)
