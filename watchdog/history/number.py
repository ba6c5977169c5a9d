"""Numbers with a meaning of their own: bounds, and the one arithmetic over them.

Signals and clauses compute with the same functions, so that a bound means the same wherever it comes from. A known
number is a plain float (exact) or a `Bound`; None is unknown, as is every result that no statement holds for.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import ClassVar


class Bound(float):
    """A number that is known only as a limit of the true value, which is finite.

    Formats with its sign before it. Its own operators are those of a plain float: compute with the functions of this
    module.
    """

    __slots__ = ()
    sign: ClassVar[str]
    """What stands before it wherever it is written."""

    def __format__(self, specification: str) -> str:
        return f"{self.sign} {format(float(self), specification)}"

    def __str__(self) -> str:
        return f"{self.sign} {float(self)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r})"


class AtLeast(Bound):
    """A value of at least this: a quantile beyond the last bound of its histogram."""

    __slots__ = ()
    sign = ">="


class AtMost(Bound):
    """A value of at most this: one over a quantile beyond the last bound of its histogram."""

    __slots__ = ()
    sign = "<="


def finite(value: float | None) -> float | None:
    """The value as a float or a bound; None where it is unknown, not a number or infinite."""
    try:
        if value is not None and isfinite(value):
            return value if isinstance(value, float) else float(value)
    except OverflowError:  # an int beyond all floats
        pass
    return None


def ends(value: float) -> tuple[float, float]:
    """The least and the greatest that the true value can be."""
    plain = float(value)
    return (-inf if isinstance(value, AtMost) else plain), (inf if isinstance(value, AtLeast) else plain)


_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


Calculation = Callable[[float, float], float | None]


def calculation(sign: str) -> Calculation:
    """`+`, `-`, `*` or `/` of two known numbers; None for a division by zero and for what is not finite.

    A bound stays one where the result can only lie on one side of it: `AtLeast(4) * 2` is at least 8,
    `1 / AtLeast(4)` at most 0.25, and `AtLeast(4) / AtLeast(2)` is unknown.
    """
    apply = _OPERATORS[sign]

    def calculate(first: float, second: float) -> float | None:
        try:
            result = apply(first, second)
            # Of two that are finite; an infinite first number would show in the result.
            if not (isfinite(result) and isfinite(second)):
                return None
        except (ZeroDivisionError, OverflowError):
            return None
        if type(first) is float and type(second) is float:
            return result
        return _bounded(sign, first, second, result)

    return calculate


def _bounded(sign: str, first: float, second: float, result: float) -> float | None:
    """The result with what is known of it, from which way it moves as each operand moves (None: not known)."""
    side_of_first, side_of_second = _side(first), _side(second)
    slopes = {
        "+": (1, 1),
        "-": (1, -1),
        "*": (side_of_second, side_of_first),
        "/": (side_of_second, None if side_of_first is None else -side_of_first),
    }[sign]
    if sign == "/" and side_of_second is None:
        return None
    ways = set()
    for value, slope in ((first, slopes[0]), (second, slopes[1])):
        if isinstance(value, Bound):
            if slope is None:
                return None
            ways.add(slope if isinstance(value, AtLeast) else -slope)
    ways.discard(0)
    if not ways:
        return result
    return None if len(ways) == 2 else AtLeast(result) if ways == {1} else AtMost(result)


def _side(value: float) -> int | None:
    """On which side of zero the true value is, 0 for on it; None for a bound that leaves both open."""
    if isinstance(value, AtLeast):
        return 1 if value >= 0 else None
    if isinstance(value, AtMost):
        return -1 if value <= 0 else None
    return (value > 0) - (value < 0)


def negated(value: float) -> float:
    """The number with its sign turned: what was at least is at most."""
    if isinstance(value, Bound):
        return AtMost(-float(value)) if isinstance(value, AtLeast) else AtLeast(-float(value))
    return -value


def least(values: Sequence[float]) -> float | None:
    """The least of known numbers, one at least; of two limits to it the lower one is given."""
    if not any(isinstance(value, Bound) for value in values):
        return min(values)
    lows, highs = zip(*map(ends, values), strict=True)
    low, high = min(lows), min(highs)
    if low == high or isfinite(low):
        return low if low == high else AtLeast(low)
    return AtMost(high) if isfinite(high) else None


def greatest(values: Sequence[float]) -> float | None:
    """The greatest of known numbers, one at least; of two limits to it the upper one is given."""
    if not any(isinstance(value, Bound) for value in values):
        return max(values)
    lows, highs = zip(*map(ends, values), strict=True)
    low, high = max(lows), max(highs)
    if low == high or isfinite(high):
        return low if low == high else AtMost(high)
    return AtLeast(low) if isfinite(low) else None
