"""A number of which only a lower bound is known."""


class AtLeast(float):
    """A value of at least this: a quantile beyond the last bound of its histogram.

    Formats as ">= x". Its own operators are those of a plain float; the clause language gives it its meaning.
    """

    __slots__ = ()

    def __format__(self, specification: str) -> str:
        return ">= " + format(float(self), specification)

    def __str__(self) -> str:
        return f">= {float(self)}"

    def __repr__(self) -> str:
        return f"AtLeast({float(self)!r})"
