"""How a server was launched, as far as its page and its owner tell."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import isclose

from watchdog.facts.flags import Flag, Kind, all_flags, known_versions
from watchdog.facts.gpus import MemoryClass
from watchdog.facts.version import V0_GONE_FROM, Engine, Version, VersionRange, default_engine, version

_V1_FIRST = version("0.7.0")
_UNSET = frozenset({"", "none"})
_OFF = frozenset({"false", "none", "0"})
# 8k is 8000 and 8K is 8192, as vLLM's own parser reads them.
_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?)([kKmMgG]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What is known of a server beside its counters; None and empty where nothing is.

    `config` are the labels of cache_config_info, `args` the launch arguments in the settings (dashes in their
    names, "" for a bare flag): given any, they are taken to be all.
    """

    version: Version | None = None
    bracket: VersionRange | None = None
    engine: Engine | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    max_model_len: int | None = None
    memory_class: MemoryClass | None = None
    usable: dict[tuple[str | None, ...], str | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """What was worked out of flags in its versions, which remedies ask of every page."""


def builds(context: ServerContext) -> tuple[tuple[Version, Engine], ...]:
    """The versions the server may be, each with the engine it runs: one where the version is known.

    Without a reported version it is every version of the table of flags that fits the bracket and the engine.
    """
    return _builds(context.version, context.bracket, context.engine)


@lru_cache(maxsize=256)
def _builds(
    known: Version | None, bracket: VersionRange | None, engine: Engine | None
) -> tuple[tuple[Version, Engine], ...]:
    if known is not None:
        return ((known, engine or default_engine(known)),)
    within = [each for each in known_versions() if (bracket or VersionRange()).contains(each)]
    fitting = [each for each in within if _may_run(each, engine)] or within or known_versions()
    return tuple((each, engine or default_engine(each)) for each in fitting)


def given_values(flag: Flag, context: ServerContext) -> tuple[str, ...]:
    """The values it is known to have, what the server says first; empty where it is unset or unknown."""
    values = [_label(flag, context), _argument(flag, context)]
    if flag.name == "--max-model-len" and context.max_model_len:
        values.insert(0, str(context.max_model_len))
    return tuple(value for value in values if value is not None and value.strip().lower() not in _UNSET)


def is_set(flag: Flag, context: ServerContext) -> bool | None:
    """Whether it is given, or a switch is on; None where neither the page nor the settings say."""
    label = _label(flag, context)
    if label is not None:
        return label.strip().lower() not in (_OFF if flag.kind is Kind.SWITCH else _UNSET)
    argument = _argument(flag, context)
    if argument is not None:
        return not (flag.kind is Kind.SWITCH and argument.strip().lower() in _OFF)
    return False if context.args else None


def is_on(switch: Flag, running: Version, engine: Engine, context: ServerContext) -> bool:
    """Whether a switch is on in that version: as page or owner tell, else by default."""
    told = _label(switch, context) or _argument(switch, context)
    if told is not None:
        return bool(is_set(switch, context))
    return switch.default(running, engine, context.memory_class, context.max_model_len) == "on"


def present_value(flag: Flag, context: ServerContext) -> str | None:
    """The value it has now: given, or its default if the settings have all arguments."""
    given = given_values(flag, context)
    if given:
        return given[0]
    if is_set(flag, context) is not False:
        return None
    if flag.falls_to:
        return present_value(all_flags()[flag.falls_to], context)
    return default_value(flag, context)


def default_value(flag: Flag, context: ServerContext) -> str | None:
    """The value it takes by itself; None where that is nothing, or not the same in every version it may be."""
    values = {
        flag.default(running, engine, context.memory_class, context.max_model_len)
        for running, engine in builds(context)
    }
    return values.pop() if len(values) == 1 else None


def amount(text: str | None) -> float | None:
    """A value as a number, as vLLM reads it (8k, 8K); None for what is none."""
    match = _AMOUNT.fullmatch((text or "").strip())
    return float(match[1]) * _FACTORS[match[2]] if match else None


def same_value(one: str | None, other: str | None) -> bool:
    """Whether two values are the same number or the same word; no where one is missing."""
    if one is None or other is None:
        return False
    first, second = amount(one), amount(other)
    if first is not None and second is not None:
        return isclose(first, second)
    return one.strip().lower() == other.strip().lower()


def _may_run(running: Version, engine: Engine | None) -> bool:
    if engine == "v0":
        return running < V0_GONE_FROM
    return engine is None or running >= _V1_FIRST


def _label(flag: Flag, context: ServerContext) -> str | None:
    return context.config.get(flag.label) if flag.label else None


def _argument(flag: Flag, context: ServerContext) -> str | None:
    """The given value; "" for a bare flag becomes "true", and the negative form of a switch "false"."""
    if not context.args:
        return None
    if flag.kind is Kind.SWITCH and f"--no-{flag.name.removeprefix('--')}" in context.args:
        return "false"
    told = (context.args.get(name) for name in (flag.name, *flag.spellings))
    return next((value or "true" for value in told if value is not None), None)
