"""The algebra of signals: each node evaluates over a view of history, and renders the PromQL that means the same.

None is unknown and spreads. Nothing here extrapolates: a rate is the growth between two pages over the time between
them, a quantile that falls in the open bucket is `AtLeast` its bound.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import ceil, isfinite, isinf, isnan

from watchdog.history.layout import WHOLE_TARGET, Frame, Selector
from watchdog.history.names import spellings
from watchdog.history.number import AtLeast
from watchdog.history.span import Span
from watchdog.model import Subject


@dataclass(frozen=True, slots=True)
class View:
    """What a node may look at: the window it is asked about, and what was learned beside the page.

    `window`, `recent` and `baseline` are None where too little was seen; `life` is all of the engine's remembered
    frames.
    """

    window: Span | None
    recent: Span | None
    life: Span | None
    baseline: Span | None = None
    facts: Mapping[str, float] = field(default_factory=dict)


class Node:
    """A signal's formula."""

    def evaluate(self, view: View) -> float | None:
        """The value over the view; None where it is unknown."""
        raise NotImplementedError

    def promql(self, window: str) -> str:
        """The PromQL that means the same over a window such as `30s`."""
        raise NotImplementedError

    def metrics(self) -> frozenset[str]:
        """The canonical sample names it reads."""
        return frozenset(name for child in self.children() for name in child.metrics())

    def children(self) -> tuple["Node", ...]:
        """The nodes it is made of."""
        return ()

    def __add__(self, other: "Node") -> "Node":
        return Arithmetic("+", self, other)

    def __sub__(self, other: "Node") -> "Node":
        return Arithmetic("-", self, other)

    def __mul__(self, other: "Node") -> "Node":
        return Arithmetic("*", self, other)

    def __truediv__(self, other: "Node") -> "Node":
        return Arithmetic("/", self, other)


def _promql_name(selector: Selector, window: str = "", spelling: str = "") -> str:
    matchers = ",".join(f'{name}="{value}"' for name, value in selector.matchers)
    text = spelling or selector.metric
    return text + (f"{{{matchers}}}" if matchers else "") + (f"[{window}]" if window else "")


def _promql_any(selector: Selector, wrap: str) -> str:
    """`wrap` (with `%s` for the selector) over the first spelling of a metric that is there."""
    return " or ".join(wrap % name for name in _promql_spellings(selector))


def _promql_spellings(selector: Selector) -> Iterator[str]:
    for spelling in spellings(selector.metric):
        yield _promql_name(selector, spelling=spelling)


_BY = "by (model_name, engine)"


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A plain number."""

    value: float

    def evaluate(self, view: View) -> float | None:
        return self.value

    def promql(self, window: str) -> str:
        return f"vector({self.value:g})"


@dataclass(frozen=True, slots=True)
class Fact(Node):
    """A number that is not on the page: told by the server's other endpoints or by the owner."""

    name: str

    def evaluate(self, view: View) -> float | None:
        return view.facts.get(self.name)

    def promql(self, window: str) -> str:
        return f"vllm_watchdog_fact_{self.name}"


@dataclass(frozen=True, slots=True)
class OfMetric(Node):
    """A node that reads one metric."""

    selector: Selector

    def metrics(self) -> frozenset[str]:
        return frozenset({self.selector.metric})


_FOLDS = {
    "mean": "avg_over_time",
    "max": "max_over_time",
    "min": "min_over_time",
    "last": "last_over_time",
}


def _fold(values: list[float], fold: str) -> float | None:
    if not values:
        return None
    if fold == "mean":
        return sum(values) / len(values)
    if fold == "last":
        return values[-1]
    return max(values) if fold == "max" else min(values)


@dataclass(frozen=True, slots=True)
class Gauge(OfMetric):
    """A gauge folded (mean, max, min, last) over the window; with `recent` over the last 15 s and three frames.

    A `last` is read from the newest frame alone, so that it is known from the first page on.
    """

    fold: str = "mean"
    recent: bool = False

    def evaluate(self, view: View) -> float | None:
        if self.fold == "last":
            return self._last(view)
        span = view.recent if self.recent else view.window
        return None if span is None else _fold(span.gauge(self.selector), self.fold)

    def _last(self, view: View) -> float | None:
        span = view.life
        if span is None or not span.frames:
            return None
        frame = span.frames[-1]
        value = frame.total(span.columns(frame, self.selector))
        return None if isnan(value) else value

    def promql(self, window: str) -> str:
        length = "15s" if self.recent else window
        return _promql_any(self.selector, f"sum {_BY} ({_FOLDS[self.fold]}(%s[{length}]))")


@dataclass(frozen=True, slots=True)
class Peak(OfMetric):
    """The highest value of a gauge in the engine's remembered life (up to eleven minutes)."""

    def evaluate(self, view: View) -> float | None:
        return None if view.life is None else _fold(view.life.gauge(self.selector), "max")

    def promql(self, window: str) -> str:
        return _promql_any(self.selector, f"max {_BY} (max_over_time(%s[11m]))")


@dataclass(frozen=True, slots=True)
class MeanWhile(Node):
    """The mean of a gauge over the frames in which another gauge is above zero; None where there are under two."""

    selector: Selector
    condition: Selector

    def evaluate(self, view: View) -> float | None:
        if view.window is None:
            return None
        span = view.window
        values = [
            value
            for frame in span.frames
            if frame.total(span.columns(frame, self.condition)) > 0
            and not isnan(value := frame.total(span.columns(frame, self.selector)))
        ]
        return sum(values) / len(values) if len(values) >= 2 else None

    def promql(self, window: str) -> str:
        value, condition = _promql_name(self.selector), _promql_name(self.condition)
        return f"avg_over_time(({value} and {condition} > 0)[{window}:5s])"

    def metrics(self) -> frozenset[str]:
        return frozenset({self.selector.metric, self.condition.metric})


@dataclass(frozen=True, slots=True)
class ShareOfTime(OfMetric):
    """The share of the window's frames in which a gauge is above a bound, 0 to 1."""

    above: float

    def evaluate(self, view: View) -> float | None:
        values = [] if view.window is None else view.window.gauge(self.selector)
        return sum(value > self.above for value in values) / len(values) if values else None

    def promql(self, window: str) -> str:
        return f"avg_over_time(({_promql_name(self.selector)} > bool {self.above:g})[{window}:5s])"


@dataclass(frozen=True, slots=True)
class Change(OfMetric):
    """The newest value of a gauge less its lowest in the window (how far it climbed); never below zero."""

    def evaluate(self, view: View) -> float | None:
        values = [] if view.window is None else view.window.gauge(self.selector)
        return values[-1] - min(values) if len(values) >= 2 else None

    def promql(self, window: str) -> str:
        name = _promql_name(self.selector)
        return f"{name} - min_over_time({name}[{window}])"


@dataclass(frozen=True, slots=True)
class Slope(OfMetric):
    """How fast a gauge moves, per second: least squares over the window's frames; None for under three."""

    def evaluate(self, view: View) -> float | None:
        if view.window is None:
            return None
        span = view.window
        points = [
            (frame.at, value)
            for frame in span.frames
            if not isnan(value := frame.total(span.columns(frame, self.selector)))
        ]
        return _least_squares(points)

    def promql(self, window: str) -> str:
        return f"deriv({_promql_name(self.selector)}[{window}])"


def _least_squares(points: list[tuple[float, float]]) -> float | None:
    if len(points) < 3:
        return None
    mean_at = sum(at for at, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (value - mean_value) for at, value in points) / spread if spread else None


@dataclass(frozen=True, slots=True)
class GaugeDelta(OfMetric):
    """The change of a gauge from the window's first frame to its last; negative where it fell."""

    def evaluate(self, view: View) -> float | None:
        values = [] if view.window is None else view.window.gauge(self.selector)
        return values[-1] - values[0] if len(values) >= 2 else None

    def promql(self, window: str) -> str:
        name = _promql_name(self.selector)
        return f"{name} - ({name} offset {window})"


@dataclass(frozen=True, slots=True)
class Increase(OfMetric):
    """How much counters grew in the window, summed over the selected series."""

    def evaluate(self, view: View) -> float | None:
        return None if view.window is None else view.window.increase(self.selector)

    def promql(self, window: str) -> str:
        return _promql_any(self.selector, f"sum {_BY} (increase(%s[{window}]))")


@dataclass(frozen=True, slots=True)
class IncreaseOrZero(Node):
    """An increase of a series that exists only once it happened: 0 where the engine is seen and the series is not."""

    selector: Selector
    witness: Selector

    def evaluate(self, view: View) -> float | None:
        if view.window is None or view.window.increase(self.witness) is None:
            return None
        last = view.window.frames[-1]
        if not view.window.columns(last, self.selector):
            return 0.0
        return view.window.increase(self.selector)

    def promql(self, window: str) -> str:
        return f"{Increase(self.selector).promql(window)} or 0 * {Increase(self.witness).promql(window)}"

    def metrics(self) -> frozenset[str]:
        return frozenset({self.witness.metric})


@dataclass(frozen=True, slots=True)
class Rate(OfMetric):
    """The growth of counters a second, from the window's first page to its last."""

    def evaluate(self, view: View) -> float | None:
        if view.window is None:
            return None
        grown = view.window.increase(self.selector)
        return None if grown is None or not view.window.seconds else grown / view.window.seconds

    def promql(self, window: str) -> str:
        return _promql_any(self.selector, f"sum {_BY} (rate(%s[{window}]))")


@dataclass(frozen=True, slots=True)
class LastingRate(OfMetric):
    """The lowest of the rates of the window's thirds: bursts of less than a third of it do not raise it.

    All thirds, since a burst may lie across the edge of two. Where pages are so far apart that there are no thirds, of
    its halves.
    """

    def evaluate(self, view: View) -> float | None:
        span = view.window
        if span is None or len(span.frames) < 3:
            return None
        rates = []
        for part in _parts(span):
            grown = part.increase(self.selector)
            if grown is None:
                return None
            rates.append(grown / part.seconds)
        return min(rates, default=None)

    def promql(self, window: str) -> str:
        return f"min_over_time(({Rate(self.selector).promql('10s')})[{window}:10s])"


def _parts(span: Span) -> list[Span]:
    """The span in three parts of about equal time (two where it has three frames); neighbours share a frame."""
    count = min(3, len(span.frames) - 1)
    begin = span.frames[0].at
    edges = [0]
    for part in range(1, count):
        goal = begin + span.seconds * part / count
        nearest = min(range(1, len(span.frames) - 1), key=lambda index: abs(span.frames[index].at - goal))
        edges.append(nearest)
    edges.append(len(span.frames) - 1)
    parts = (Span(span.history, span.frames[a : b + 1], span.subject) for a, b in pairwise(edges))
    return [part for part in parts if part.seconds]


@dataclass(frozen=True, slots=True)
class WindowSeconds(Node):
    """The length of the window that was really seen."""

    def evaluate(self, view: View) -> float | None:
        return None if view.window is None else view.window.seconds

    def promql(self, window: str) -> str:
        return f"vector({window.removesuffix('s')})" if window.endswith("s") else "vector(30)"


@dataclass(frozen=True, slots=True)
class Ratio(Node):
    """One node over another; None while the denominator is below `least`, for a share of little says nothing."""

    numerator: Node
    denominator: Node
    least: float = 0.0

    def evaluate(self, view: View) -> float | None:
        below = self.denominator.evaluate(view)
        if below is None or below <= 0 or below < self.least:
            return None
        above = self.numerator.evaluate(view)
        return None if above is None else above / below

    def promql(self, window: str) -> str:
        below = f"({self.denominator.promql(window)})"
        return f"({self.numerator.promql(window)}) / ({below} >= {self.least:g} > 0)"

    def children(self) -> tuple[Node, ...]:
        return (self.numerator, self.denominator)


@cache
def _histogram_parts(metric: str) -> tuple[Selector, Selector, Selector]:
    return Selector(metric + "_bucket"), Selector(metric + "_sum"), Selector(metric + "_count")


@dataclass(frozen=True, slots=True)
class Mean(Node):
    """The mean of a histogram's observations in the window; None for fewer than `least` of them."""

    metric: str
    least: float = 5.0

    def evaluate(self, view: View) -> float | None:
        if view.window is None:
            return None
        _, total, count = _histogram_parts(self.metric)
        observations = view.window.increase(count)
        if observations is None or observations < self.least or not observations:
            return None
        grown = view.window.increase(total)
        return None if grown is None else grown / observations

    def promql(self, window: str) -> str:
        _, total, count = _histogram_parts(self.metric)
        below = Increase(count).promql(window)
        return f"({Increase(total).promql(window)}) / (({below}) >= {self.least:g})"

    def metrics(self) -> frozenset[str]:
        return frozenset({self.metric + "_count"})


def _buckets(span: Span, metric: str) -> list[tuple[float, float]] | None:
    """Upper bounds and observations up to each, in the window; None where the set cannot be trusted.

    That is: a layout without +Inf, a bucket that fell, counts that do not rise with their bounds, or buckets that
    changed inside the window.
    """
    key = ("buckets", metric)
    if key not in span.memo:
        span.memo[key] = _read_buckets(span, metric)
    buckets: list[tuple[float, float]] | None = span.memo[key]
    return buckets


def _read_buckets(span: Span, metric: str) -> list[tuple[float, float]] | None:
    first, last = span.frames[0], span.frames[-1]
    subject = span.subject
    columns = last.layout.bucket_columns(_histogram_parts(metric)[0], subject.model_name, subject.engine)
    if columns is None:
        return None
    grown: list[tuple[float, float]] = []
    before = 0.0
    same = first.layout is last.layout
    old, new = first.values, last.values
    for bound, column in columns:
        count = new[column] - old[column] if same else span.grown(first, last, column)
        if not count >= before:
            return None
        grown.append((bound, count))
        before = count
    return grown


@dataclass(frozen=True, slots=True)
class Quantile(Node):
    """A quantile of a histogram's observations in the window, linear inside a bucket as Prometheus does it.

    `AtLeast` the last bound where it falls in the open bucket; None for fewer than `least` observations.
    """

    quantile: float
    metric: str
    least: float = 5.0

    def evaluate(self, view: View) -> float | None:
        if view.window is None or len(view.window.frames) < 2:
            return None
        buckets = _buckets(view.window, self.metric)
        if not buckets or buckets[-1][1] < self.least or not buckets[-1][1]:
            return None
        return interpolate(buckets, self.quantile)

    def promql(self, window: str) -> str:
        selector = Selector(self.metric + "_bucket")
        by = "by (model_name, engine, le)"
        return _promql_any(selector, f"histogram_quantile({self.quantile:g}, sum {by} (rate(%s[{window}])))")

    def metrics(self) -> frozenset[str]:
        return frozenset({self.metric + "_bucket"})


def interpolate(buckets: list[tuple[float, float]], quantile: float) -> float | None:
    """The quantile of cumulated counts by upper bound; the lowest bucket begins at 0 where its bound is positive."""
    rank = quantile * buckets[-1][1]
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank and count > below:
            if isinf(bound):
                return AtLeast(lower) if len(buckets) > 1 else None
            if bound <= 0:
                return bound
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return None


@dataclass(frozen=True, slots=True)
class TimeShareAbove(Node):
    """At least this share of a latency histogram's summed time lies in observations above a bound, 0 to 1.

    Each observation above it is counted with the lower edge of its bucket, so the figure never says too much: rare
    long gaps that no quantile shows (nine stalls of 2.5 to 5 s among 12,536 gaps) still weigh what they cost.
    """

    metric: str
    bound: Node
    least_sum_seconds: float = 1.0

    def evaluate(self, view: View) -> float | None:
        bound = self.bound.evaluate(view)
        if bound is None or view.window is None or len(view.window.frames) < 2:
            return None
        total = view.window.increase(_histogram_parts(self.metric)[1])
        buckets = _buckets(view.window, self.metric)
        if total is None or total < self.least_sum_seconds or not buckets:
            return None
        return min(1.0, _time_above(buckets, bound) / total)

    def promql(self, window: str) -> str:
        bucket, total, count = _histogram_parts(self.metric)
        first = Selector(bucket.metric, (("le", "0.3"),))
        above = f"({Increase(count).promql(window)}) - ({Increase(first).promql(window)})"
        return f"({above}) * 0.3 / ({Increase(total).promql(window)})"

    def metrics(self) -> frozenset[str]:
        return frozenset({self.metric + "_bucket"})

    def children(self) -> tuple[Node, ...]:
        return (self.bound,)


def _time_above(buckets: list[tuple[float, float]], bound: float) -> float:
    seconds, lower, below = 0.0, 0.0, 0.0
    for upper, count in buckets:
        if lower >= bound:
            seconds += (count - below) * lower
        lower, below = upper, count
    return seconds


@dataclass(frozen=True, slots=True)
class Age(Node):
    """Seconds since any of the selected counters last moved, within the engine's remembered life.

    Where none moved since the first frame, the time since that frame: at least so long.
    """

    selectors: tuple[Selector, ...]

    def evaluate(self, view: View) -> float | None:
        if view.life is None or len(view.life.frames) < 2:
            return None
        span = view.life
        since = _still_since(span, self.selectors)
        return None if since is None else span.frames[-1].at - span.frames[since].at

    def promql(self, window: str) -> str:
        moved = " or ".join(
            f"(timestamp({name}) and changes({name}[{window}]) > 0)"
            for one in self.selectors
            for name in _promql_spellings(one)
        )
        return f"time() - max {_BY} (max_over_time(({moved})[10m:5s]))"

    def metrics(self) -> frozenset[str]:
        return frozenset(one.metric for one in self.selectors)


@dataclass(frozen=True, slots=True)
class OfServer(Node):
    """A node over all series of the server, whichever engine they belong to."""

    node: Node

    def evaluate(self, view: View) -> float | None:
        window, recent, life = (_of_server(span) for span in (view.window, view.recent, view.life))
        return self.node.evaluate(View(window, recent, life, None, view.facts))

    def promql(self, window: str) -> str:
        return self.node.promql(window).replace(f" {_BY}", "")

    def children(self) -> tuple[Node, ...]:
        return (self.node,)


def _of_server(span: Span | None) -> Span | None:
    return None if span is None else Span(span.history, span.frames, Subject(span.subject.target))


def _still_since(span: Span, selectors: tuple[Selector, ...]) -> int | None:
    """The first frame from which on no counter moved; None where the newest page has none of them."""
    last = span.frames[-1]
    values = [(one, last.total(span.columns(last, one))) for one in selectors if span.columns(last, one)]
    if not values:
        return None

    def is_still(frame: Frame) -> bool:
        return not any(_moved(frame, span, one, value) for one, value in values)

    if span.subject[1:] != WHOLE_TARGET:
        # Counters only grow within a life: frames that lack the last movement all come before those that have it.
        return bisect_left(span.frames, True, key=is_still)
    # The sum over engines falls when one of them restarts, while the others work on.
    since = len(span.frames) - 1
    while since > 0 and is_still(span.frames[since - 1]):
        since -= 1
    return since


def _moved(frame: Frame, span: Span, selector: Selector, value: float) -> bool:
    before = frame.total(span.columns(frame, selector))
    # A series that was not there yet has moved by appearing; an unknown value is no sign of movement.
    return (value != 0 and not span.columns(frame, selector)) or before < value


@dataclass(frozen=True, slots=True)
class ReleasedSince(Node):
    """How far one gauge fell just after counters last moved, beyond what others fell; negative if it rose.

    The gauge is the process's, so the others are summed over all engines of the server: what one engine took up another
    one may have let go.

    Connections that clients give up in the moment the counters stop are gone by then; those of requests that are stuck
    stay until their clients lose patience, which takes longer and is no sign of health. Where nothing moved in the
    remembered life there is no frame before, and so no value.
    """

    held: Selector
    booked: tuple[Selector, ...]
    marks: tuple[Selector, ...]
    seconds: float = 25.0

    def evaluate(self, view: View) -> float | None:
        span = view.life
        since = None if span is None or len(span.frames) < 2 else _still_since(span, self.marks)
        if span is None or not since:
            return None
        end = span.frames[since].at + self.seconds
        last = next((frame for frame in reversed(span.frames) if frame.at <= end), span.frames[since])
        fall = self._beyond(span.frames[since - 1]) - self._beyond(last)
        return None if isnan(fall) else fall

    def _beyond(self, frame: Frame) -> float:
        booked = sum(frame.total(frame.layout.columns(one, *WHOLE_TARGET)) for one in self.booked)
        return frame.total(frame.layout.columns(self.held, *WHOLE_TARGET)) - booked

    def promql(self, window: str) -> str:
        booked = " - on () ".join(f"sum({_promql_name(one)})" for one in self.booked)
        beyond = f"sum({_promql_name(self.held)}) - on () {booked}"
        return f"max_over_time(({beyond})[{window}:5s]) - on () ({beyond})"

    def metrics(self) -> frozenset[str]:
        return frozenset({self.held.metric, *(one.metric for one in self.booked)})


@dataclass(frozen=True, slots=True)
class LastingChange(OfMetric):
    """The smaller of a gauge's changes over the window's last two thirds: above zero only while it keeps climbing."""

    def evaluate(self, view: View) -> float | None:
        span = view.window
        if span is None or len(span.frames) < 3:
            return None
        changes = []
        for part in _parts(span)[-2:]:
            first, last = (
                frame.total(part.columns(frame, self.selector)) for frame in (part.frames[0], part.frames[-1])
            )
            if isnan(last - first):
                return None
            changes.append(last - first)
        return min(changes, default=None)

    def promql(self, window: str) -> str:
        last = f"delta({_promql_name(self.selector)}[10s])"
        return f"(({last}) < ({last[:-1]} offset 10s))) or ({last})"


@dataclass(frozen=True, slots=True)
class Label(OfMetric):
    """A number from a label of an info metric on the newest page: True is 1, False is 0, None or text is unknown."""

    label: str

    def evaluate(self, view: View) -> float | None:
        if view.life is None or not view.life.frames:
            return None
        frame = view.life.frames[-1]
        for column in view.life.columns(frame, self.selector):
            return label_number(frame.layout.series[column].labels.get(self.label))
        return None

    def promql(self, window: str) -> str:
        return f"count by ({self.label}) ({_promql_name(self.selector)})"


def label_number(text: str | None) -> float | None:
    """The number a label's text stands for (`True` 1, `False` 0); None for no number."""
    if text is None:
        return None
    if text in ("True", "False"):
        return float(text == "True")
    try:
        value = float(text)
    except ValueError:
        return None
    return None if isnan(value) or isinf(value) else value


@dataclass(frozen=True, slots=True)
class NewestListLength(OfMetric):
    """How many names a comma-joined label holds in the series whose value, a time, is the greatest.

    `lora_requests_info` keeps every combination it ever had; only the newest one is current (vLLM 0.6.4 to 0.33).
    """

    label: str

    def evaluate(self, view: View) -> float | None:
        if view.life is None or not view.life.frames:
            return None
        labels = _newest_labels(view.life, view.life.frames[-1], self.selector)
        return None if labels is None else float(len(_listed(labels, self.label)))

    def promql(self, window: str) -> str:
        return f"topk(1, {_promql_name(self.selector)})"


@dataclass(frozen=True, slots=True)
class NamesInLists(OfMetric):
    """How many different names the comma-joined labels held over the window, in the newest series of each frame.

    None where no frame has the series.
    """

    labels: tuple[str, ...]

    def evaluate(self, view: View) -> float | None:
        if view.window is None:
            return None
        span = view.window
        newest = [_newest_labels(span, frame, self.selector) for frame in span.frames]
        known = [labels for labels in newest if labels is not None]
        names = {name for labels in known for label in self.labels for name in _listed(labels, label)}
        return float(len(names)) if known else None

    def promql(self, window: str) -> str:
        return f"topk(1, {_promql_name(self.selector)})"


def _newest_labels(span: Span, frame: Frame, selector: Selector) -> Mapping[str, str] | None:
    """The labels of the series whose value, a time, is the greatest in one frame."""
    columns = span.columns(frame, selector)
    newest = max(columns, key=lambda column: frame.values[column], default=None)
    if newest is None or isnan(frame.values[newest]):
        return None
    return frame.layout.series[newest].labels


def _listed(labels: Mapping[str, str], label: str) -> list[str]:
    return [name.strip() for name in labels.get(label, "").split(",") if name.strip()]


@dataclass(frozen=True, slots=True)
class NewestLabel(OfMetric):
    """A number from a label of the series whose value, a time, is the greatest."""

    label: str

    def evaluate(self, view: View) -> float | None:
        if view.life is None or not view.life.frames:
            return None
        frame = view.life.frames[-1]
        columns = view.life.columns(frame, self.selector)
        newest = max(columns, key=lambda column: frame.values[column], default=None)
        return None if newest is None else label_number(frame.layout.series[newest].labels.get(self.label))

    def promql(self, window: str) -> str:
        return f"topk(1, {_promql_name(self.selector)})"


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """Two nodes joined by `+ - * /`; division by zero is unknown."""

    operator: str
    left: Node
    right: Node

    def evaluate(self, view: View) -> float | None:
        left = self.left.evaluate(view)
        if left is None:
            return None
        right = self.right.evaluate(view)
        if right is None:
            return None
        if self.operator == "+":
            return left + right
        if self.operator == "-":
            return left - right
        if self.operator == "*":
            return left * right
        return left / right if right else None

    def promql(self, window: str) -> str:
        return f"({self.left.promql(window)}) {self.operator} ({self.right.promql(window)})"

    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)


@dataclass(frozen=True, slots=True)
class SumOfKnown(Node):
    """The sum of two nodes, or the one of them that is known: what two connectors count is seldom on one page."""

    first: Node
    second: Node

    def evaluate(self, view: View) -> float | None:
        known = [value for node in self.children() if (value := node.evaluate(view)) is not None]
        return sum(known) if known else None

    def promql(self, window: str) -> str:
        first, second = f"({self.first.promql(window)})", f"({self.second.promql(window)})"
        return f"({first} + {second}) or {first} or {second}"

    def children(self) -> tuple[Node, ...]:
        return (self.first, self.second)

    def metrics(self) -> frozenset[str]:
        # Any of them will do, as for First.
        return self.first.metrics()


@dataclass(frozen=True, slots=True)
class First(Node):
    """The first of several nodes that is known."""

    nodes: tuple[Node, ...]

    def evaluate(self, view: View) -> float | None:
        for node in self.nodes:
            value = node.evaluate(view)
            if value is not None:
                return value
        return None

    def promql(self, window: str) -> str:
        return " or ".join(f"({node.promql(window)})" for node in self.nodes)

    def children(self) -> tuple[Node, ...]:
        return self.nodes

    def metrics(self) -> frozenset[str]:
        # Any of them will do: the first one's are what a blind reader should look for.
        return self.nodes[0].metrics()


@dataclass(frozen=True, slots=True)
class Baseline(Node):
    """A node over the time before now: up to ten minutes, frozen while something is wrong."""

    node: Node

    def evaluate(self, view: View) -> float | None:
        if view.baseline is None:
            return None
        return self.node.evaluate(View(view.baseline, view.baseline, view.life, None, view.facts))

    def promql(self, window: str) -> str:
        return self.node.promql("10m")

    def children(self) -> tuple[Node, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Bounded(Node):
    """A node kept within bounds."""

    node: Node
    lowest: float = -float("inf")
    highest: float = float("inf")

    def evaluate(self, view: View) -> float | None:
        value = self.node.evaluate(view)
        return None if value is None else max(self.lowest, min(self.highest, value))

    def promql(self, window: str) -> str:
        text = self.node.promql(window)
        if not isinf(self.lowest):
            text = f"clamp_min({text}, {self.lowest:g})"
        return text if isinf(self.highest) else f"clamp_max({text}, {self.highest:g})"

    def children(self) -> tuple[Node, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class WholeSteps(Node):
    """A node rounded up to whole steps of another; as it is where the step is unknown."""

    node: Node
    step: Node

    def evaluate(self, view: View) -> float | None:
        value = self.node.evaluate(view)
        step = None if value is None else self.step.evaluate(view)
        if value is None or step is None or step <= 0 or not isfinite(value / step):
            return value
        return ceil(value / step) * step

    def promql(self, window: str) -> str:
        return self.node.promql(window)

    def children(self) -> tuple[Node, ...]:
        return (self.node,)


@dataclass(frozen=True, slots=True)
class Greater(Node):
    """The greater of two nodes; where only the first is known, the first."""

    first: Node
    second: Node

    def evaluate(self, view: View) -> float | None:
        first = self.first.evaluate(view)
        if first is None:
            return None
        second = self.second.evaluate(view)
        return first if second is None else max(first, second)

    def promql(self, window: str) -> str:
        first, second = self.first.promql(window), self.second.promql(window)
        return f"(({first}) > ({second})) or ({second}) or ({first})"

    def children(self) -> tuple[Node, ...]:
        return (self.first, self.second)
