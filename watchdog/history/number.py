"""Numbers with a meaning of their own: a lower bound, and a time as people say it."""


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


def seconds_text(seconds: float) -> str:
    """Seconds as people say a time: 5.5 ms, 38 ms, 4.2 s, 3m 20s, 2h 5m, 3d 4h; ">= 38 ms" for a lower bound."""
    bound = ">= " if isinstance(seconds, AtLeast) else ""
    return bound + _duration(float(seconds))


def _duration(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.00995 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if hours else f"{days}d"
