"""Gauges that show what cannot be: from then on they are unknown, and the metric is named as the one at fault."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isnan, nan
from types import MappingProxyType

from watchdog.facts.fact import Fact, Known
from watchdog.history.layout import Layout, Selector, SeriesKey
from watchdog.history.names import spellings
from watchdog.model import Incident, Page, Series

# fmt: off
KV_USAGE_OUT_OF_RANGE = Fact(
    "kv_usage_out_of_range", "0 or 1",
    "The KV gauge showed a share below 0 or above 1 since the last restart: it is ignored until the next restart.")
KV_USAGE_IMPOSSIBLE = Fact(
    "kv_usage_impossible_ratio", "ratio", "The last impossible value of the KV gauge.")
# fmt: on

KV_USAGE = "vllm:kv_cache_usage_perc"
RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        KV_USAGE: (0.0, 1.0),
        "vllm:num_requests_running": (0.0, inf),
        "vllm:num_requests_waiting": (0.0, inf),
    }
)
"""What a gauge can be, both ends included, by canonical name."""
# Rounding, and a block that is counted twice: such a value is taken for the end of the range.
MARGIN = 0.01
_BY_SPELLING = {name: limits for metric, limits in RANGES.items() for name in spellings(metric)}
_USAGE = Selector(KV_USAGE)


@dataclass(slots=True)
class GaugeRanges:
    """Looks at each page of one target before it is remembered.

    `impossible` are the series that were out of range since the last restart, with the last such value; `recalled`
    are engines (model and engine) of which an incident of an earlier life says so.
    """

    impossible: dict[SeriesKey, float] = field(default_factory=dict)
    recalled: dict[tuple[str, str], float] = field(default_factory=dict)
    _series: tuple[Series, ...] = ()
    _places: tuple[tuple[int, SeriesKey, tuple[float, float]], ...] = ()

    def checked(self, page: Page) -> Page:
        """The page with each value in its range; NaN for those of a series that once was out of it.

        Nothing that is read here can be below zero: what is, is unknown too, be it a counter or a time.
        """
        if page.series is not self._series:
            self._series = page.series
            self._places = tuple(_places(page.series))
        changed = {
            place: value
            for place, key, limits in self._places
            if (value := self._checked(key, page.values[place], limits)) is not page.values[place]
        }
        if _has_negative(page.values):
            below = (place for place, value in enumerate(page.values) if value < 0)
            changed = dict.fromkeys(below, nan) | changed
        if not changed:
            return page
        values = tuple(changed.get(place, value) for place, value in enumerate(page.values))
        return replace(page, values=values)

    def begin_again(self) -> None:
        """The server restarted: its gauges may be right now."""
        self.impossible.clear()
        self.recalled.clear()

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Takes from the incidents of an earlier life which gauges were at fault."""
        for incident in incidents:
            for evidence in incident.evidence:
                if evidence.values.get(KV_USAGE_OUT_OF_RANGE.name):
                    shown = evidence.values.get(KV_USAGE_IMPOSSIBLE.name)
                    self.recalled[incident.key[2:]] = nan if shown is None else shown

    def _checked(self, key: SeriesKey, value: float, limits: tuple[float, float]) -> float:
        low, high = limits
        if not low - MARGIN <= value <= high + MARGIN and not isnan(value):
            self.impossible[key] = value
        if key in self.impossible:
            return nan
        return value if low <= value <= high or isnan(value) else min(max(value, low), high)

    def engine_facts(self, layout: Layout, model_name: str, engine: str) -> Iterator[Known]:
        """The facts of one engine on a page of this layout; none where it has no KV gauge."""
        columns = layout.columns(_USAGE, model_name, engine)
        if not columns:
            return
        shown = [found for one in columns if (found := self.impossible.get(layout.keys[one])) is not None]
        if not shown and (model_name, engine) in self.recalled:
            shown = [self.recalled[model_name, engine]]
        yield KV_USAGE_OUT_OF_RANGE, float(bool(shown))
        if shown:
            yield KV_USAGE_IMPOSSIBLE, shown[0]


def _has_negative(values: Sequence[float]) -> bool:
    # NaN is smaller than nothing: as the first value it hides all that come after it.
    least = min(values, default=0.0)
    return least < 0 or (isnan(least) and any(value < 0 for value in values))


def _places(series: tuple[Series, ...]) -> Iterator[tuple[int, SeriesKey, tuple[float, float]]]:
    for place, one in enumerate(series):
        limits = _BY_SPELLING.get(one.name)
        if limits is not None:
            yield place, (one.name, frozenset(one.labels.items())), limits
