"""How remedies stand to each other: none against another, those for the pool in the order of the field."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from watchdog.facts.flags import lever
from watchdog.facts.launch import amount, same_value
from watchdog.model import Incident, Remedy, State
from watchdog.remedy.value import GREATEST_SHARE, LEAST_SHARE
from watchdog.rule.rule import Complaint, Direction, RemedyRule, Rule

KV_CACHE_TYPE = "--kv-cache-dtype"
MEMORY_SHARE = "--gpu-memory-utilization"
SHARE_SIGNAL = "gpu_memory_utilization_ratio"
# For a full pool: the longest request, then the bytes of a token, memory last. Memory that lies idle costs nothing, so
# a remedy that is offered only below some share of it may come first.
_POOL_ORDER = {"--max-model-len": 0, KV_CACHE_TYPE: 1, "--quantization": 1, MEMORY_SHARE: 2}
_OPPOSITES = frozenset({("raise", "lower"), ("lower", "raise"), ("on", "off"), ("off", "on")})


def reconcile(incidents: Sequence[Incident]) -> tuple[Incident, ...]:
    """The incidents, in lead order, without remedies that contradict one of an incident before them.

    Two remedies of one server contradict each other when they move one lever both ways or set two values.
    """
    kept: list[tuple[str, Remedy]] = []
    reconciled = []
    for incident in incidents:
        if incident.state is State.RESOLVED:
            reconciled.append(incident)
            continue
        before = [remedy for target, remedy in kept if target == incident.key.target]
        remedies = tuple(
            remedy for remedy in incident.remedies if not any(_contradict(remedy, other) for other in before)
        )
        kept += [(incident.key.target, remedy) for remedy in remedies]
        changed = len(remedies) != len(incident.remedies)
        reconciled.append(replace(incident, remedies=remedies) if changed else incident)
    return tuple(reconciled)


def check_order(rule: Rule) -> Iterator[Complaint]:
    """What is wrong with the order of a rule's remedies for the pool, and with the shares of memory they set."""
    last = ""
    for index, remedy in enumerate(rule.remedies):
        flag = remedy.flag or ""
        place = ("remedies", index, "flag")
        if flag == MEMORY_SHARE:
            yield from (Complaint(place, text) for text in _share_faults(remedy))
        if flag in _POOL_ORDER and not _takes_idle_memory(remedy):
            if last and _POOL_ORDER[flag] < _POOL_ORDER[last]:
                yield Complaint(
                    place, f"{flag} belongs before {last}: model length, quantisation, memory share last"
                )
            last = flag


def _contradict(one: Remedy, other: Remedy) -> bool:
    if one.flag is None or other.flag is None or lever(one.flag) != lever(other.flag):
        return False
    if (one.direction, other.direction) in _OPPOSITES:
        return True
    return one.direction == other.direction == "set" and not same_value(one.value, other.value)


def _takes_idle_memory(remedy: RemedyRule) -> bool:
    return remedy.flag == MEMORY_SHARE and remedy.when is not None and SHARE_SIGNAL in remedy.when.names


def _share_faults(remedy: RemedyRule) -> Iterator[str]:
    value = amount(remedy.value)
    if remedy.direction is Direction.LOWER or (value is not None and value < LEAST_SHARE):
        yield f"{MEMORY_SHARE} never goes under {LEAST_SHARE}"
    if value is not None and value > GREATEST_SHARE:
        yield f"{MEMORY_SHARE} never goes over {GREATEST_SHARE}"
