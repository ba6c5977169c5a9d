"""A fact: a number that is known of a server beside its counters, declared where it is found out."""

from collections.abc import Iterable
from dataclasses import dataclass

Known = tuple["Fact", float]
"""A fact with its value; what is unknown is not yielded."""


@dataclass(frozen=True, slots=True, eq=False)
class Fact:
    """What a clause calls the number (`name`), its unit in words, and one sentence on what it says."""

    name: str
    unit: str
    description: str


def by_name(facts: Iterable[Known]) -> dict[str, float]:
    """The values under their names; of a fact that is yielded twice the last value."""
    return {fact.name: value for fact, value in facts}
