"""What signals are made of: functions of a view of history, and ways to join them.

None is unknown and spreads; a bound stays one (`history/number.py`). Nothing here extrapolates: a rate is the growth
between two pages over the time between them, a quantile that falls in the open bucket is `AtLeast` its bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from math import ceil, isfinite, isinf, isnan, nan

from watchdog.facts.fact import Fact
from watchdog.history.layout import WHOLE_TARGET, Frame, Selector
from watchdog.history.number import AtLeast, Bound, calculation, finite, greatest, least
from watchdog.history.span import Span
from watchdog.model import Lookup, Subject
from watchdog.signals.promql import (
    NOW,
    NoPromQL,
    PromQL,
    Stretch,
    grouped,
    in_steps,
    increase_from_birth,
    joined,
    quantile_of,
    since_moved,
    sum_of_any,
    summed,
)


@dataclass(frozen=True, slots=True)
class View:
    """What a formula may look at; a part is None (or absent) where too little was seen.

    `window` is now, `recent` its last 10 s, `life` all remembered frames of the engine's present life. `past` looks
    up by name what a signal was before, `facts` holds by name what was learned beside the page. `requests` is the
    window of figures per request where it is wider than that of now, else None.
    """

    window: Span | None = None
    recent: Span | None = None
    life: Span | None = None
    past: Mapping[str, Lookup] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    requests: Span | None = None

    def over(self, span: Span) -> "View":
        """The same engine over another stretch of its history; the facts are those of now."""
        return View(span, span, span, {}, self.facts)


Value = Callable[[View], float | None]


@dataclass(frozen=True, slots=True)
class Formula:
    """How a signal is computed: its value over a view, the canonical samples it reads, and the PromQL that says it.

    Of formulas that are tried in turn only the samples of the first are given: what a blind reader should look for.
    `fallback` is the PromQL of those of them that have any where others have none: what is known without these.
    """

    value: Value
    reads: frozenset[str]
    promql: PromQL
    fallback: PromQL | None = None

    def query(self, stretch: Stretch = NOW) -> str | None:
        """Its PromQL over a stretch of time; None where `promql` is the reason why there is none."""
        return None if isinstance(self.promql, NoPromQL) else self.promql(stretch)

    def nearest_query(self, stretch: Stretch = NOW) -> str | None:
        """Its PromQL, or that of its fallback; None where there is neither."""
        said = self.promql if self.fallback is None else self.fallback
        return None if isinstance(said, NoPromQL) else said(stretch)

    def without_promql(self, reason: str) -> "Formula":
        """The same, where the PromQL of its parts would not mean the same."""
        return replace(self, promql=NoPromQL(reason))

    def __add__(self, other: "Formula") -> "Formula":
        return _calculated("+", self, other)

    def __sub__(self, other: "Formula") -> "Formula":
        return _calculated("-", self, other)

    def __rsub__(self, other: float) -> "Formula":
        return _calculated("-", constant(other), self)

    def __mul__(self, other: "Formula") -> "Formula":
        return _calculated("*", self, other)

    def __truediv__(self, other: "Formula") -> "Formula":
        return _calculated("/", self, other)

    def __rtruediv__(self, other: float) -> "Formula":
        return _calculated("/", constant(other), self)


def _calculated(sign: str, left: Formula, right: Formula) -> Formula:
    calculate, first, second = calculation(sign), left.value, right.value

    def value(view: View) -> float | None:
        one = first(view)
        if one is None:
            return None
        other = second(view)
        return None if other is None else calculate(one, other)

    def write(one: str, other: str) -> str:
        divides = sign == "/" and not other.isdecimal()
        return f"{grouped(one)} {sign} {grouped(f'{grouped(other)} != 0' if divides else other)}"

    return Formula(value, left.reads | right.reads, joined(write, left.promql, right.promql))


def constant(number: float) -> Formula:
    """A plain number."""
    return Formula(lambda _view: number, frozenset(), lambda _stretch: f"{number:g}")


def fact(declared: Fact) -> Formula:
    """What was learned beside the page."""
    name = declared.name
    promql = NoPromQL(f"`{name}` is not on the metrics page")
    return Formula(lambda view: view.facts.get(name), frozenset(), promql)


def window_seconds() -> Formula:
    """The length of the window that was really seen."""
    return Formula(_window_seconds, frozenset(), lambda stretch: str(stretch.window))


def _window_seconds(view: View) -> float | None:
    return None if view.window is None else view.window.seconds


def _samples(*selectors: Selector) -> frozenset[str]:
    return frozenset(one.metric for one in selectors)


# Gauges


def newest(selector: Selector) -> Formula:
    """The value on the newest page, known from the first page on."""

    def value(view: View) -> float | None:
        span = view.life
        found = span.total(span.frames[-1], selector) if span is not None and span.frames else nan
        return None if isnan(found) else found

    return Formula(value, _samples(selector), summed(selector))


def _in_window(selector: Selector, fold: Callable[[list[float]], float], fewest: int = 1) -> Value:
    """The fold of the gauge's known values in the window; None where they are fewer."""

    def value(view: View) -> float | None:
        values = [] if view.window is None else view.window.gauge(selector)
        return fold(values) if len(values) >= fewest else None

    return value


def mean_over_time(selector: Selector) -> Formula:
    """The mean of a gauge over the window's pages."""
    value = _in_window(selector, lambda values: sum(values) / len(values))
    return Formula(value, _samples(selector), summed(selector, "avg_over_time", "window"))


def highest(selector: Selector, of: str = "window") -> Formula:
    """The highest value of a gauge in the window, in the `recent` 10 s, or in the remembered `life` (11 minutes)."""
    return _extreme(selector, of, max)


def lowest(selector: Selector, of: str = "window") -> Formula:
    """The lowest value of a gauge in the window, in the `recent` 10 s, or in the remembered `life` (11 minutes)."""
    return _extreme(selector, of, min)


def _extreme(selector: Selector, of: str, choose: Callable[[list[float]], float]) -> Formula:
    def value(view: View) -> float | None:
        span = view.window if of == "window" else view.recent if of == "recent" else view.life
        values = [] if span is None else span.gauge(selector)
        return choose(values) if values else None

    function = "max_over_time" if choose is max else "min_over_time"
    return Formula(value, _samples(selector), summed(selector, function, of))


def share_of_time(selector: Selector) -> Formula:
    """The share of the window's pages on which a gauge is above zero, 0 to 1."""
    value = _in_window(selector, lambda values: sum(one > 0 for one in values) / len(values))
    newest_text = summed(selector)
    return Formula(
        value,
        _samples(selector),
        in_steps("avg_over_time", lambda stretch: f"{grouped(newest_text(stretch))} > bool 0", "window"),
    )


def climb(selector: Selector) -> Formula:
    """The newest value of a gauge less its lowest in the window (how far it climbed); never below zero."""
    value = _in_window(selector, lambda values: values[-1] - min(values), fewest=2)
    text = joined(
        lambda last, low: f"{grouped(last)} - {grouped(low)}",
        summed(selector),
        summed(selector, "min_over_time", "window"),
    )
    return Formula(value, _samples(selector), text)


def change(selector: Selector) -> Formula:
    """The change of a gauge from the window's first page to its last; negative where it fell."""
    value = _in_window(selector, lambda values: values[-1] - values[0], fewest=2)
    return Formula(value, _samples(selector), summed(selector, "delta", "window"))


def slope(selector: Selector) -> Formula:
    """How fast a gauge moves, per second: least squares over the window's pages; None for under three."""

    def value(view: View) -> float | None:
        span = view.window
        if span is None:
            return None
        points = zip((frame.at for frame in span.frames), span.totals(selector), strict=True)
        return _least_squares([(at, found) for at, found in points if not isnan(found)])

    return Formula(value, _samples(selector), summed(selector, "deriv", "window"))


def _least_squares(points: list[tuple[float, float]]) -> float | None:
    if len(points) < 3:
        return None
    mean_at = sum(at for at, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    spread = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (value - mean_value) for at, value in points) / spread if spread else None


def seconds_since_below(selector: Selector, bound: float) -> Formula:
    """The time since a gauge was last below a bound in the remembered life; None where it never was, or is unknown."""

    def value(view: View) -> float | None:
        span = view.life
        if span is None:
            return None
        totals = span.totals(selector)
        last = next((place for place in range(len(totals) - 1, -1, -1) if totals[place] < bound), None)
        return None if last is None else span.frames[-1].at - span.frames[last].at

    reason = (
        "PromQL cannot say when a gauge last crossed a bound without a subquery at the pace of the scrapes"
    )
    return Formula(value, _samples(selector), NoPromQL(reason))


def mean_while(selector: Selector, condition: Selector) -> Formula:
    """The mean of a gauge over the pages on which another gauge is above zero; None where there are under two."""

    def value(view: View) -> float | None:
        span = view.window
        if span is None:
            return None
        pairs = zip(span.totals(condition), span.totals(selector), strict=True)
        values = [found for told, found in pairs if told > 0 and not isnan(found)]
        return sum(values) / len(values) if len(values) >= 2 else None

    reason = "PromQL's steps are not the pages, and a mean over few pages hangs on which of them a step meets"
    return Formula(value, _samples(selector, condition), NoPromQL(reason))


# Counters


def increase(selector: Selector, appear: bool = False) -> Formula:
    """How much counters grew in the window, summed over the selected series.

    A series that appeared in the window counts from zero. `appear` is for series that do so whenever something happens
    for the first time: Prometheus' own increase leaves that first time out.
    """

    def value(view: View) -> float | None:
        return None if view.window is None else view.window.increase(selector)

    text = increase_from_birth(selector) if appear else summed(selector, "increase", "window")
    return Formula(value, _samples(selector), text)


def increase_or_zero(selector: Selector, witness: Selector) -> Formula:
    """An increase of a series that exists only once it happened: 0 where the witness is seen and the series is not."""

    def value(view: View) -> float | None:
        span = view.window
        if span is None or span.increase(witness) is None:
            return None
        return span.increase(selector) if span.columns(span.frames[-1], selector) else 0.0

    happened, always = increase_from_birth(selector), summed(witness, "increase", "window")
    text = joined(lambda one, other: f"{one} or 0 * {grouped(other)}", happened, always)
    return Formula(value, _samples(witness), text)


def increase_of_any(*selectors: Selector) -> Formula:
    """How much counters grew together, those that are unknown left out; None where all are.

    What two connectors count is seldom on one page.
    """

    def value(view: View) -> float | None:
        if view.window is None:
            return None
        known = [grown for one in selectors if (grown := view.window.increase(one)) is not None]
        return sum(known) if known else None

    return Formula(value, _samples(selectors[0]), sum_of_any(selectors))


def rate(selector: Selector) -> Formula:
    """The growth of counters a second, from the window's first page to its last."""

    def value(view: View) -> float | None:
        span = view.window
        grown = None if span is None else span.increase(selector)
        return None if span is None or grown is None or not span.seconds else grown / span.seconds

    return Formula(value, _samples(selector), summed(selector, "rate", "window"))


_THIRDS = "the thirds of the window share a page with their neighbours, which PromQL's ranges do not"


def lasting_rate(selector: Selector) -> Formula:
    """The lowest of the rates of the window's thirds: bursts of less than a third of it do not raise it.

    All thirds, since a burst may lie across the edge of two. Where pages are so far apart that there are no thirds, of
    its halves.
    """

    def value(view: View) -> float | None:
        rates = []
        for part in view.window.thirds() if view.window is not None else ():
            grown = part.increase(selector)
            if grown is None:
                return None
            rates.append(grown / part.seconds)
        return min(rates, default=None)

    return Formula(value, _samples(selector), NoPromQL(_THIRDS))


def lasting_climb(selector: Selector) -> Formula:
    """The smaller of a gauge's changes over the window's last two thirds: above zero only while it keeps climbing."""

    def value(view: View) -> float | None:
        parts = view.window.thirds()[-2:] if view.window is not None else ()
        changes = [
            part.total(part.frames[-1], selector) - part.total(part.frames[0], selector) for part in parts
        ]
        return None if any(map(isnan, changes)) else min(changes, default=None)

    return Formula(value, _samples(selector), NoPromQL(_THIRDS))


def age(*counters: Selector) -> Formula:
    """Seconds since any of the counters last moved, within the engine's remembered life.

    Where none moved since the first page, `AtLeast` the time since that page.
    """

    def value(view: View) -> float | None:
        return _seconds_still(view.life, counters)

    return Formula(value, _samples(*counters), since_moved(counters))


def server_age(*counters: Selector) -> Formula:
    """The same over all engines of the server."""

    def value(view: View) -> float | None:
        span = view.life
        whole = span and Span(span.history, span.frames, Subject(span.subject.target))
        return _seconds_still(whole, counters)

    return Formula(value, _samples(*counters), since_moved(counters, of_server=True))


def _seconds_still(span: Span | None, counters: tuple[Selector, ...]) -> float | None:
    since = None if span is None else span.still_since(counters)
    if span is None or since is None:
        return None
    seconds = span.frames[-1].at - span.frames[since].at
    return seconds if since else AtLeast(seconds)


def released_since(
    held: Selector, booked: tuple[Selector, ...], counters: tuple[Selector, ...], seconds: float = 25.0
) -> Formula:
    """How far one gauge fell just after counters last moved, beyond what others fell; negative if it rose.

    The gauge is the process's, so the others are summed over all engines of the server: what one engine took up another
    one may have let go.

    Connections that clients give up in the moment the counters stop are gone by then; those of requests that are stuck
    stay until their clients lose patience, which takes longer and is no sign of health. Where nothing moved in the
    remembered life there is no frame before, and so no value.
    """

    def beyond(frame: Frame) -> float:
        of_requests = sum(frame.total(frame.layout.columns(one, *WHOLE_TARGET)) for one in booked)
        return frame.total(frame.layout.columns(held, *WHOLE_TARGET)) - of_requests

    def value(view: View) -> float | None:
        span = view.life
        since = None if span is None else span.still_since(counters)
        if span is None or not since:
            return None
        end = span.frames[since].at + seconds
        last = next((frame for frame in reversed(span.frames) if frame.at <= end), span.frames[since])
        fall = beyond(span.frames[since - 1]) - beyond(last)
        return None if isnan(fall) else fall

    reason = "it compares the page before progress stopped with one after it, wherever in the past that was"
    return Formula(value, _samples(held, *booked), NoPromQL(reason))


def ever_moved(selector: Selector, witness: Selector, fewest: float) -> Formula:
    """Whether a counter is above zero, 1 or 0; None while it is zero and another one has counted fewer than so many."""
    counted, witnessed = newest(selector), newest(witness)

    def value(view: View) -> float | None:
        total = counted.value(view)
        if total is None or total > 0:
            return None if total is None else 1.0
        seen = witnessed.value(view)
        return None if seen is None or seen < fewest else 0.0

    def write(total: str, seen: str) -> str:
        return f"({grouped(total)} > bool 0) and ({grouped(total)} > 0 or {grouped(seen)} >= {fewest:g})"

    return Formula(value, _samples(selector), joined(write, counted.promql, witnessed.promql))


# Distributions


@cache
def _histogram_parts(metric: str) -> tuple[Selector, Selector, Selector]:
    return Selector(metric + "_bucket"), Selector(metric + "_sum"), Selector(metric + "_count")


def mean(metric: str, fewest: float = 5.0) -> Formula:
    """The mean of a histogram's observations in the window; None for fewer than so many of them."""
    _, total, count = _histogram_parts(metric)
    return replace(ratio(increase(total), increase(count), fewest), reads=_samples(count))


def quantile(share: float, metric: str, fewest: float = 5.0) -> Formula:
    """A quantile of a histogram's observations in the window, linear inside a bucket as Prometheus does it.

    `AtLeast` the last bound where it falls in the open bucket; None for fewer than so many observations.
    """
    bucket, _, count = _histogram_parts(metric)

    def value(view: View) -> float | None:
        buckets = None if view.window is None else view.window.buckets(bucket)
        if not buckets or buckets[-1][1] < fewest or not buckets[-1][1]:
            return None
        return interpolate(buckets, share)

    return Formula(value, _samples(bucket), quantile_of(share, bucket, count, fewest))


def interpolate(buckets: list[tuple[float, float]], share: float) -> float | None:
    """The quantile of cumulated counts by upper bound; the lowest bucket begins at 0 where its bound is positive."""
    rank = share * buckets[-1][1]
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


def time_share_above(metric: str, bound: Value, least_sum_seconds: float = 1.0) -> Formula:
    """At least this share of a latency histogram's summed time lies in observations above a bound, 0 to 1.

    Each observation above it is counted with the lower edge of its bucket, so the figure never says too much: rare
    long gaps that no quantile shows (nine stalls of 2.5 to 5 s among 12,536 gaps) still weigh what they cost.
    """
    bucket, total, _ = _histogram_parts(metric)

    def value(view: View) -> float | None:
        edge = bound(view)
        if edge is None or view.window is None:
            return None
        buckets, whole = view.window.buckets(bucket), view.window.increase(total)
        if not buckets or whole is None or whole < least_sum_seconds:
            return None
        return min(1.0, _time_above(buckets, edge) / whole)

    reason = "its bound is computed, and PromQL cannot compare the label `le` with a number"
    return Formula(value, _samples(bucket), NoPromQL(reason))


def _time_above(buckets: list[tuple[float, float]], bound: float) -> float:
    seconds, lower, below = 0.0, 0.0, 0.0
    for upper, count in buckets:
        if lower >= bound:
            seconds += (count - below) * lower
        lower, below = upper, count
    return seconds


# Labels


_IN_A_LABEL = NoPromQL("it is the text of a label, which PromQL cannot read as a number")


def label(selector: Selector, name: str) -> Formula:
    """A number from a label of an info metric on the newest page: True is 1, False is 0, None or text is unknown."""

    def value(view: View) -> float | None:
        if view.life is None or not view.life.frames:
            return None
        frame = view.life.frames[-1]
        columns = view.life.columns(frame, selector)
        return label_number(frame.layout.series[columns[0]].labels.get(name)) if columns else None

    return Formula(value, _samples(selector), _IN_A_LABEL)


def label_number(text: str | None) -> float | None:
    """The number a label's text stands for (`True` 1, `False` 0); None for no number."""
    if text is None:
        return None
    if text in ("True", "False"):
        return float(text == "True")
    try:
        return finite(float(text))
    except ValueError:
        return None


def label_names(text: str | None) -> float | None:
    """How many names a comma-joined label holds."""
    return float(len(_listed(text)))


def _listed(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def newest_label(selector: Selector, name: str, read: Callable[[str | None], float | None]) -> Formula:
    """What is read from a label of the series whose value, a time, is the greatest on the newest page.

    `lora_requests_info` keeps every combination it ever had; only the newest one is current (vLLM 0.6.4 to 0.33).
    """

    def value(view: View) -> float | None:
        span = view.life
        labels = span.newest_labels(span.frames[-1], selector) if span is not None and span.frames else None
        return None if labels is None else read(labels.get(name))

    return Formula(value, _samples(selector), _IN_A_LABEL)


def names_in_window(selector: Selector, *names: str) -> Formula:
    """How many different names the comma-joined labels held over the window, in the newest series of each page.

    None where no page has the series.
    """

    def value(view: View) -> float | None:
        span = view.window
        newest_ones = (
            [span.newest_labels(frame, selector) for frame in span.frames] if span is not None else []
        )
        known = [labels for labels in newest_ones if labels is not None]
        listed = {one for labels in known for name in names for one in _listed(labels.get(name))}
        return float(len(listed)) if known else None

    return Formula(value, _samples(selector), _IN_A_LABEL)


# Formulas joined


def ratio(above: Formula, below: Formula, fewest: float = 0.0) -> Formula:
    """One over the other; None while that one is zero or below `fewest`, for a share of little says nothing."""
    divide, numerator, denominator = calculation("/"), above.value, below.value

    def value(view: View) -> float | None:
        amount = denominator(view)
        if amount is None or amount <= 0 or amount < fewest:
            return None
        part = numerator(view)
        return None if part is None else divide(part, amount)

    enough = f">= {fewest:g}" if fewest else "> 0"
    text = joined(
        lambda one, other: f"{grouped(one)} / ({grouped(other)} {enough})", above.promql, below.promql
    )
    return Formula(value, above.reads | below.reads, text)


def first(*formulas: Formula) -> Formula:
    """The first of several that is known."""
    values = [one.value for one in formulas]

    def value(view: View) -> float | None:
        for one in values:
            found = one(view)
            if found is not None:
                return found
        return None

    said = [one.promql for one in formulas if not isinstance(one.promql, NoPromQL)]
    text = joined(_either, *(one.promql for one in formulas))
    fallback = joined(_either, *said) if said and len(said) < len(formulas) else None
    return Formula(value, formulas[0].reads, text, fallback)


def _either(*texts: str) -> str:
    return " or ".join(texts)


def leading_above(formulas: Sequence[Formula], least: float) -> Formula:
    """How many of several, from the first on, reach a value without a break; None where the first is unknown."""

    def value(view: View) -> float | None:
        if formulas[0].value(view) is None:
            return None
        return float(sum(1 for _ in takewhile(lambda one: (one.value(view) or 0.0) >= least, formulas)))

    return Formula(
        value,
        formulas[0].reads,
        NoPromQL("Positions are counted up to the first one that does not reach the share"),
    )


def per_request(formula: Formula) -> Formula:
    """A formula over the window of figures per request, which widens where few came."""

    def value(view: View) -> float | None:
        return formula.value(view if view.requests is None else view.over(view.requests))

    return replace(formula, value=value)


def widened_window_seconds() -> Formula:
    """The length of the window of figures per request where it is wider than that of now."""

    def value(view: View) -> float | None:
        return None if view.requests is None else view.requests.seconds

    return Formula(value, frozenset(), NoPromQL("in PromQL the window is what you write, not what was seen"))


def lately(formula: Formula) -> Formula:
    """A formula over the last 10 s in place of the window."""

    def value(view: View) -> float | None:
        return None if view.recent is None else formula.value(view.over(view.recent))

    text = formula.promql
    if isinstance(text, NoPromQL):
        return Formula(value, formula.reads, text)
    return Formula(value, formula.reads, lambda stretch: text(replace(stretch, window=stretch.recent)))


def bounded(formula: Formula, low: float, high: float | None = None) -> Formula:
    """A formula kept within bounds."""
    inner = formula.value

    def value(view: View) -> float | None:
        found = finite(inner(view))
        found = None if found is None else greatest((low, found))
        return found if found is None or high is None else least((high, found))

    def write(text: str) -> str:
        return f"clamp_min({text}, {low:g})" if high is None else f"clamp({text}, {low:g}, {high:g})"

    return Formula(value, formula.reads, joined(write, formula.promql))


def whole_steps(formula: Formula, step: Formula) -> Formula:
    """A formula rounded up to whole steps of another; as it is where the step is unknown."""

    def value(view: View) -> float | None:
        found = formula.value(view)
        one = None if found is None else step.value(view)
        if found is None or one is None or one <= 0 or not isfinite(found / one):
            return found
        steps = ceil(found / one) * one
        return type(found)(steps) if isinstance(found, Bound) else steps

    def write(text: str, one: str) -> str:
        return f"ceil({grouped(text)} / {grouped(one)}) * {grouped(one)} or {text}"

    return Formula(value, formula.reads, joined(write, formula.promql, step.promql))


def greatest_third(formula: Formula) -> Formula:
    """The greatest of a formula's values over the window's thirds: what happened at one moment; None for one page."""

    def value(view: View) -> float | None:
        parts = view.window.thirds() if view.window is not None else []
        values = [formula.value(view.over(part)) for part in parts]
        known = [one for one in values if one is not None]
        return max(known) if known and len(known) == len(values) else None

    return Formula(value, formula.reads, NoPromQL(_THIRDS))
