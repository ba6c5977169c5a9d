"""Where each series of a page stands, and whose it is: worked out once for all pages of one shape."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

from watchdog.history.names import CORE, COUNTED_FROM_START, spellings
from watchdog.history.owners import Owners, owners_of
from watchdog.model import Series

# Engines of one page that are looked at; a server of vLLM has tens at most, and each costs a judgement of all rules.
MOST_ENGINES = 128
# A longer name is no model's: it would stand in every incident, label and answer.
MOST_NAME_CHARACTERS = 512
# A shape of its own makes a frame dear: each series then has its key and places (some 500 bytes), each engine its
# columns (some 20 kB).
_VALUES_A_SERIES = 64
_VALUES_AN_ENGINE = 2_500
WHOLE_TARGET = ("", "")


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """The samples of one metric, by canonical name, whose labels have the given values.

    Compared by identity, which is what makes the many look-ups of each step cheap: make each once.
    """

    metric: str
    matchers: tuple[tuple[str, str], ...] = ()


SeriesKey = tuple[str, frozenset[tuple[str, str]]]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Layout:
    """Where each series of a page stands; shared by all frames of one shape, whichever target's they are.

    `found`, `buckets` and `shown` keep what was looked up: the same for whoever asks, so that nobody need wait for
    another.
    """

    series: tuple[Series, ...]
    subjects: tuple[tuple[str, str], ...]
    """The (model_name, engine) pairs that the page has core series of, as many of them as are looked at."""
    surplus_engines: int
    """How many more of them the page has, those with names too long among them."""
    keys: tuple[SeriesKey, ...]
    index: Mapping[SeriesKey, int]
    by_name: Mapping[str, tuple[int, ...]]
    by_engine: Mapping[tuple[str, str | None, str | None], tuple[int, ...]]
    """Positions by name, model_name and engine; None for a label that a series lacks."""
    owners: Owners
    leaves_zeros_out: bool = False
    """Whether a counter that is absent has counted nothing yet."""
    found: dict[tuple[Selector, str, str], tuple[int, ...]] = field(default_factory=dict)
    buckets: dict[tuple[Selector, str, str], tuple[tuple[float, int], ...] | None] = field(
        default_factory=dict
    )
    shown: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, series: tuple[Series, ...]) -> "Layout":
        """The layout of a page of these series."""
        keys = tuple((one.name, frozenset(one.labels.items())) for one in series)
        by_name: dict[str, list[int]] = {}
        by_engine: dict[tuple[str, str | None, str | None], list[int]] = {}
        owners = owners_of(series)
        for position, (one, owner) in enumerate(zip(series, owners.each, strict=True)):
            by_name.setdefault(one.name, []).append(position)
            by_engine.setdefault((one.name, *owner), []).append(position)
        everyone = _subjects(owners, by_name)
        subjects = tuple(one for one in everyone if len("".join(one)) <= MOST_NAME_CHARACTERS)[:MOST_ENGINES]
        return cls(
            series=series,
            subjects=subjects,
            surplus_engines=len(everyone) - len(subjects),
            keys=keys,
            index={key: position for position, key in enumerate(keys)},
            by_name={name: tuple(positions) for name, positions in by_name.items()},
            by_engine={owner: tuple(positions) for owner, positions in by_engine.items()},
            owners=owners,
            leaves_zeros_out=any(one.leaves_zeros_out for one in series),
        )

    @property
    def weight(self) -> int:
        """What it takes to remember, in values."""
        return _VALUES_A_SERIES * len(self.series) + _VALUES_AN_ENGINE * len(self.subjects)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is odd about such a page, for people: several servers on one, more engines than are judged."""
        return (*self._several_servers(), *self._surplus())

    def is_zero(self, metric: str) -> bool:
        """Whether the absence of a metric that every engine counts means that it counted nothing."""
        return self.leaves_zeros_out and metric in COUNTED_FROM_START

    def shows(self, metric: str) -> bool:
        """Whether the metric is on the page, under any of its names."""
        found = self.shown.get(metric)
        if found is None:
            is_there = any(name in self.by_name for name in spellings(metric))
            found = self.shown[metric] = is_there or self.is_zero(metric)
        return found

    def _several_servers(self) -> Iterator[str]:
        if self.owners.marks:
            marks = ", ".join(self.owners.marks)
            yield f"several servers are on the page: each is judged separately, by its label {marks}"

    def _surplus(self) -> Iterator[str]:
        if self.surplus_engines:
            total = len(self.subjects) + self.surplus_engines
            yield (
                f"{total} models and engines are on the page, {self.surplus_engines} of them are not judged: "
                f"at most {MOST_ENGINES} are, with names of {MOST_NAME_CHARACTERS} characters"
            )

    def columns(self, selector: Selector, model_name: str, engine: str) -> tuple[int, ...]:
        """The positions a selector has for an engine; series without these labels belong to every engine."""
        key = (selector, model_name, engine)
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = self._find(selector, model_name, engine)
        return found

    def _find(self, selector: Selector, model_name: str, engine: str) -> tuple[int, ...]:
        for name in spellings(selector.metric):
            positions = self._positions(name, model_name, engine)
            matching = tuple(position for position in positions if self._matches(position, selector))
            if matching:
                return matching
        return ()

    def _positions(self, name: str, model_name: str, engine: str) -> Sequence[int]:
        if (model_name, engine) == WHOLE_TARGET:
            return self.by_name.get(name, ())
        # What a page of several servers shows without the name of one (its configuration) is every server's.
        engines = dict.fromkeys((engine, self.owners.parted(engine)[0], None))
        owners = ((name, model, one) for model in (model_name, None) for one in engines)
        return sorted(position for owner in owners for position in self.by_engine.get(owner, ()))

    def _matches(self, position: int, selector: Selector) -> bool:
        labels = self.series[position].labels
        return all(labels.get(name) == value for name, value in selector.matchers)

    def bucket_columns(
        self, selector: Selector, model_name: str, engine: str
    ) -> tuple[tuple[float, int], ...] | None:
        """Upper bounds and positions of a histogram's buckets, in order; None for a set no quantile can be read from.

        That is: no `+Inf`, a bound twice, a bound that is no number, or no bucket at all.
        """
        key = (selector, model_name, engine)
        if key not in self.buckets:
            self.buckets[key] = self._bucket_columns(self.columns(selector, model_name, engine))
        return self.buckets[key]

    def _bucket_columns(self, columns: tuple[int, ...]) -> tuple[tuple[float, int], ...] | None:
        try:
            bounds = sorted((float(self.series[position].labels["le"]), position) for position in columns)
        except (KeyError, ValueError):
            return None
        distinct = len({bound for bound, _ in bounds}) == len(bounds)
        return tuple(bounds) if bounds and distinct and bounds[-1][0] == float("inf") else None


def _subjects(owners: Owners, by_name: Mapping[str, Sequence[int]]) -> tuple[tuple[str, str], ...]:
    names = (name for core in CORE for name in spellings(core))
    found = (owners.each[position] for name in names for position in by_name.get(name, ()))
    return tuple(dict.fromkeys((model_name or "", engine or "") for model_name, engine in found))


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One page: its monotonic time and its values by position."""

    at: float
    layout: Layout
    values: "array[float]"

    def total(self, columns: Sequence[int]) -> float:
        """The sum over columns; NaN where one is unknown or there is none."""
        if not columns:
            return nan
        values = self.values
        return values[columns[0]] if len(columns) == 1 else sum(values[column] for column in columns)
