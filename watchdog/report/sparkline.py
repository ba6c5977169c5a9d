"""A row of numbers as a row of small bars, for a terminal."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_GAP = " "


def sparkline(values: Sequence[float | None], most_columns: int = 20) -> str:
    """The newest `most_columns` numbers, each as a bar between 0 and the greatest shown; None is a gap."""
    shown = values[-most_columns:]
    greatest = max((value for value in shown if value is not None), default=0.0)
    return "".join(_GAP if value is None else _bar(value, greatest) for value in shown)


def _bar(value: float, greatest: float) -> str:
    if greatest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, int(max(0.0, value) / greatest * len(_BARS)))]
