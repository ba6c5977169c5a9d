"""Which image each workload ran when: what a roll-out changed, and since when."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# What ran before that is of no use to anybody.
MOST_IMAGES = 5


class Change(NamedTuple):
    """The image of before, and when the present one was first seen (unix seconds)."""

    before: str
    at: float


@dataclass(slots=True)
class Images:
    """Of each workload when it was first seen with an image."""

    _first_seen: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, workload: str, image: str, at: float) -> None:
        """Takes an image that a pod of the workload has had since `at`, or earlier."""
        seen = self._first_seen.setdefault(workload, {})
        seen.setdefault(image, at)
        if len(seen) > MOST_IMAGES:
            del seen[min(seen, key=seen.__getitem__)]

    def change_to(self, workload: str, image: str) -> Change | None:
        """The change that brought an image; None where none was seen."""
        seen = self._first_seen.get(workload, {})
        at = seen.get(image)
        earlier = {each: when for each, when in seen.items() if at is not None and when < at}
        if at is None or not earlier:
            return None
        return Change(max(earlier, key=earlier.__getitem__), at)

    def keep_only(self, workloads: Iterable[str]) -> None:
        """Forgets workloads that are gone."""
        present = set(workloads)
        self._first_seen = {each: seen for each, seen in self._first_seen.items() if each in present}
