"""`python -m tests.bench.figures`: measures `serve` and writes the figures where the documents tell them."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.bench.scale import Cost, cost
from tests.places import ROOT

# A sidecar, and the fleet of the quick start; all is well, as it is nearly always.
COUNTS = (1, 20)


class Place(NamedTuple):
    """Where a document tells a figure: the groups `memory` and `core` are written."""

    path: str
    pattern: str
    targets: int


_FIGURES = r"(?P<memory>\d+ M\w*B)(?P<between>[^%]*?)(?P<core>\d+(?:\.\d+)? %)"
PLACES = (
    Place("README.md", r"`serve` with one target holds " + _FIGURES, 1),
    Place("docs/quickstart-bare-metal.md", r"(?m)^" + _FIGURES + r" of a core for one server", 1),
    Place("docs/quickstart-fleet.md", r"\| 1 \| " + _FIGURES, 1),
    Place("docs/quickstart-fleet.md", r"\| 20 \| " + _FIGURES, 20),
    Place("docs/quickstart-sidecar.md", r"\| resident memory \| " + _FIGURES, 1),
)


def told(place: Place) -> tuple[str, str]:
    """The memory and the share of a core that a place tells."""
    found = re.search(place.pattern, (ROOT / place.path).read_text())
    assert found is not None, f"{place.path}: nothing matches {place.pattern}"
    return found["memory"], found["core"]


def write(costs: Mapping[int, Cost], places: Sequence[Place] = PLACES) -> None:
    """Puts the figures in their places."""
    for place in places:
        one = costs[place.targets]
        path = ROOT / place.path
        text = path.read_text()
        found = re.search(place.pattern, text)
        assert found is not None, f"{place.path}: nothing matches {place.pattern}"
        figures = f"{one.resident_bytes / 1e6:.0f} MB{found['between']}{100 * one.core_share:.2g} %"
        begin, end = found.start("memory"), found.end("core")
        path.write_text(text[:begin] + figures + text[end:])


def main() -> None:
    """Measures, writes, and prints what was written."""
    write({targets: cost(targets, firing_share=0.0, old_incidents=0) for targets in COUNTS})
    for place in PLACES:
        print(f"  {place.path}: {', '.join(told(place))}")


if __name__ == "__main__":
    main()
