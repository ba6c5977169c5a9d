"""vLLM's launch flags: in which versions each is there, heeded, on by default, and with what value."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pkgutil import get_data
from types import MappingProxyType
from typing import Any

import yaml

from watchdog.facts.gpus import MemoryClass
from watchdog.facts.version import Engine, Version, VersionRange, version, version_range
from watchdog.model import Truth

TOKEN_BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""The steps between which people choose a token budget."""

# --no-x came with the boolean flags' common form: seen in 0.9.0.1, not yet in 0.8.0.
_NEGATIVE_SINCE = version("0.9.0")
_NEGATIVE_ABSENT_IN = version("0.8.0")


class Kind(StrEnum):
    """What a flag's value is, and so how a computed one is rounded."""

    TEXT = "text"
    SWITCH = "switch"
    COUNT = "count"
    LENGTH = "length"
    BUDGET = "budget"
    SHARE = "share"
    FRACTION = "fraction"
    GIB = "gib"


@dataclass(frozen=True, slots=True)
class Default:
    """A default and where it holds; an empty set of classes and a None hold everywhere."""

    value: str
    versions: VersionRange
    engine: Engine | None
    memory: frozenset[MemoryClass]
    over_model_len: int | None


@dataclass(frozen=True, slots=True)
class Flag:
    """A launch flag, and versions seen with it (`since`, `last`) and without (`absent_in`, `gone_in`)."""

    name: str
    kind: Kind
    since: Version | None
    absent_in: Version | None
    last: Version | None
    gone_in: Version | None
    engine: Engine | None
    v1_since: Version | None
    useless_from: Version | None
    label: str | None
    falls_to: str | None
    only_if_set: bool
    once: bool
    spellings: tuple[str, ...]
    defaults: tuple[Default, ...]
    negates: str | None = None
    """The switch it is the negative form of."""

    def presence(self, running: Version, engine: Engine) -> Truth:
        """Whether that version takes it and that engine heeds it; unknown between two versions looked at."""
        if self.engine not in {None, engine} or (self.useless_from and running >= self.useless_from):
            return Truth.NO
        if engine == "v1" and self.v1_since and running < self.v1_since:
            return Truth.NO
        if (self.absent_in and running <= self.absent_in) or (self.gone_in and running >= self.gone_in):
            return Truth.NO
        if self.since is None or running < self.since or (self.last and running > self.last):
            return Truth.UNKNOWN
        return Truth.YES

    def default(
        self,
        running: Version,
        engine: Engine,
        memory: MemoryClass | None = None,
        max_model_len: int | None = None,
    ) -> str | None:
        """The value it takes there by itself; None where there is none or it hangs on what is unknown."""
        for row in self.defaults:
            if not row.versions.contains(running) or row.engine not in {None, engine}:
                continue
            if row.memory and memory not in row.memory:
                continue
            if row.over_model_len and (max_model_len is None or max_model_len <= row.over_model_len):
                continue
            return row.value
        return None


@cache
def _table() -> Mapping[str, Any]:
    """flags.yaml of this package; read when rules are loaded, so that no step reads a file."""
    found: Mapping[str, Any] = yaml.safe_load(get_data(__package__, "flags.yaml") or b"")
    return found


@cache
def known_versions() -> tuple[Version, ...]:
    """The versions the table was read from, the oldest first."""
    return tuple(version(text) for text in _table()["versions"])


@cache
def all_flags() -> Mapping[str, Flag]:
    """Every flag of the table by its name."""
    return MappingProxyType({name: _flag(name, row) for name, row in _table()["flags"].items()})


def find_flag(name: str) -> Flag | None:
    """The flag of that name, spelling or negative form (`--no-x`, a flag of its own); None where unknown."""
    return _by_spelling().get(name) or _by_spelling().get(name.strip().replace("_", "-"))


def own_flag(flag: Flag) -> Flag:
    """The flag whose value or state a server shows: the switch itself for its negative form."""
    return all_flags()[flag.negates] if flag.negates else flag


def lever(name: str) -> str:
    """What a flag moves: two flags with one lever can contradict each other."""
    flag = find_flag(name)
    return (flag.negates or flag.falls_to or flag.name) if flag else name


@cache
def _by_spelling() -> Mapping[str, Flag]:
    flags = all_flags().values()
    spelled = {name: flag for flag in flags for name in (flag.name, *flag.spellings)}
    negative = {each.name: each for flag in flags if flag.kind is Kind.SWITCH for each in [_negative(flag)]}
    return MappingProxyType(negative | spelled)


def _negative(switch: Flag) -> Flag:
    return replace(
        switch,
        name=f"--no-{switch.name.removeprefix('--')}",
        negates=switch.name,
        since=_later(switch.since, _NEGATIVE_SINCE),
        absent_in=_later(switch.absent_in, _NEGATIVE_ABSENT_IN),
        only_if_set=False,
        spellings=(),
        defaults=(),
    )


def _later(one: Version | None, other: Version) -> Version:
    return other if one is None else max(one, other)


def _flag(name: str, row: Mapping[str, Any]) -> Flag:
    def seen(key: str) -> Version | None:
        return version(row[key]) if key in row else None

    return Flag(
        name=name,
        kind=Kind(row.get("kind", "text")),
        since=seen("since"),
        absent_in=seen("absent_in"),
        last=seen("last"),
        gone_in=seen("gone_in"),
        engine=row.get("engine"),
        v1_since=seen("v1_since"),
        useless_from=seen("useless_from"),
        label=row.get("label"),
        falls_to=row.get("falls_to"),
        only_if_set=row.get("only_if_set", False),
        once=row.get("once", False),
        spellings=tuple(row.get("also", ())),
        defaults=tuple(_default(each) for each in row.get("defaults", ())),
    )


def _default(row: Mapping[str, Any]) -> Default:
    return Default(
        value=row["value"],
        versions=version_range(row.get("from", ""), row.get("before", "")),
        engine=row.get("engine"),
        memory=frozenset(MemoryClass(name) for name in row.get("memory", ())),
        over_model_len=row.get("over_model_len"),
    )
