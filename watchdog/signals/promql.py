"""The PromQL that means the same as a signal, or the reason why none does.

A query gives one value for each server, model and engine (for series of the process one for each server), reads the
names that vLLM itself serves, and gives none where the signal is unknown.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watchdog.history.layout import Selector
from watchdog.history.names import PROCESS, spellings


@dataclass(frozen=True, slots=True)
class Stretch:
    """The time that queries look at: lengths in seconds, how many seconds ago it ended, and the pace of subqueries."""

    window: int
    recent: int
    life: int
    ago: int = 0
    step: int = 1

    def length(self, of: str) -> int:
        """The seconds of its `window`, `recent` or `life`."""
        return {"window": self.window, "recent": self.recent, "life": self.life}[of]

    def behind(self, of: str = "") -> str:
        """What stands behind a selector to give such a range of it, or with "" its newest value."""
        return (f"[{_duration(self.length(of))}]" if of else "") + _offset(self.ago)


NOW = Stretch(30, 10, 660)


def _duration(seconds: int) -> str:
    return f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"


def _offset(seconds: int) -> str:
    return f" offset {_duration(seconds)}" if seconds else ""


Query = Callable[[Stretch], str]


@dataclass(frozen=True, slots=True)
class NoPromQL:
    """Why PromQL cannot say it."""

    reason: str


PromQL = Query | NoPromQL

_SERVER = "instance"
_ENGINE = "instance, model_name, engine"


def owner_of(selector: Selector) -> str:
    """The labels that name whose value it is."""
    return _SERVER if selector.metric in PROCESS else _ENGINE


def summed(selector: Selector, function: str = "", of: str = "") -> Query:
    """The function over a range of the selected series, summed for each owner; the newest value without one."""

    def text(stretch: Stretch) -> str:
        each = (name + stretch.behind(of) for name in _named(selector))
        values = (f"{function}({series})" if function else series for series in each)
        return " or ".join(f"sum by ({owner_of(selector)}) ({value})" for value in values)

    return text


def increase_from_birth(selector: Selector) -> Query:
    """The increase of the selected series, in which one that appeared within the window counts from zero."""

    def text(stretch: Stretch) -> str:
        window, now = stretch.behind("window"), stretch.behind()
        before = _offset(stretch.ago + stretch.window)
        return " or ".join(
            f"sum by ({owner_of(selector)}) ({name}{now} unless {name}{before} or increase({name}{window}))"
            for name in _named(selector)
        )

    return text


def _named(selector: Selector) -> list[str]:
    """The selector as PromQL writes it, under each name by which versions of vLLM serve it, the newest first."""
    inside = ",".join(f'{label}="{value}"' for label, value in selector.matchers)
    is_total = selector.metric.endswith("_total")
    served = (name for name in spellings(selector.metric) if name.endswith("_total") == is_total)
    return [f"{name}{{{inside}}}" if inside else name for name in served]


def quantile_of(quantile: float, buckets: Selector, count: Selector, least: float) -> Query:
    """A quantile of the window's observations, where there are so many."""

    def text(stretch: Stretch) -> str:
        behind, owner = stretch.behind("window"), owner_of(buckets)
        return " or ".join(
            f"histogram_quantile({quantile:g}, sum by ({owner}, le) (rate({bucket}{behind})))"
            f" and sum by ({owner}) (increase({counter}{behind})) >= {least:g}"
            for bucket, counter in zip(_named(buckets), _named(count), strict=True)
        )

    return text


def sum_of_any(selectors: Sequence[Selector]) -> Query:
    """The increase of all selected series together, whichever of them there are."""

    def text(stretch: Stretch) -> str:
        queries = (increase_from_birth(one)(stretch) for one in selectors)
        each = (f'label_replace({query}, "of", "{place}", "", "")' for place, query in enumerate(queries, 1))
        return f"sum by ({owner_of(selectors[0])}) ({' or '.join(each)})"

    return text


def since_moved(selectors: Sequence[Selector], of_server: bool = False) -> Query:
    """The seconds since the sum of counters last grew; the whole length of the life where it did not within it."""
    names = "|".join(name for one in selectors for name in _named(one))
    owner = _SERVER if of_server else _ENGINE

    def total(seconds_ago: int) -> str:
        return f'sum by ({owner}) ({{__name__=~"{names}"}}{_offset(seconds_ago)})'

    def text(stretch: Stretch) -> str:
        now, before = total(stretch.ago), total(stretch.ago + stretch.step)
        moved = (
            f"(timestamp({now}) and {now} > {before})[{_duration(stretch.life)}:{_duration(stretch.step)}]"
        )
        return f"time() - max_over_time({moved}) or 0 * {now} + {stretch.life}"

    return text


def in_steps(function: str, query: Query, of: str) -> Query:
    """The function over what a query gave, second by second."""
    return lambda stretch: (
        f"{function}(({query(stretch)})[{_duration(stretch.length(of))}:{_duration(stretch.step)}])"
    )


def joined(write: Callable[..., str], *parts: PromQL) -> PromQL:
    """What `write` makes of the texts of several; where one of them has none, its reason."""
    queries: list[Query] = []
    for part in parts:
        if isinstance(part, NoPromQL):
            return part
        queries.append(part)
    return lambda stretch: write(*(query(stretch) for query in queries))


# What is left of a text without what stands in brackets, where an operator joins two parts of it.
_JOINT = re.compile(r"[-+*/<>=]| (?:or|and) ")
_INNERMOST = re.compile(r"\([^()]*\)|\{[^{}]*\}|\[[^][]*\]")


def grouped(text: str) -> str:
    """The text in brackets, where it needs them beside an operator."""
    left, removed = _INNERMOST.subn("", text)
    while removed:
        left, removed = _INNERMOST.subn("", left)
    return f"({text})" if _JOINT.search(left) else text
