"""Families of metrics: their series, and their text as Prometheus reads it.

The library makes an object of each series and writes it in ten times the time: a thousand targets have 60,000.
"""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.utils import floatToGoString

PREFIX = "vllm_watchdog_"
MAX_LABEL_CHARACTERS = 200
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_NUMBERS = {0.0: "0.0", 1.0: "1.0"}


class Family:
    """A family that takes each set of labels once: at a second one Prometheus would refuse the whole page."""

    kind = "gauge"
    suffix = ""

    def __init__(self, name: str, text: str, labels: Sequence[str] = ()) -> None:
        self.name = PREFIX + name
        self.labels = tuple(labels)
        self._text = text
        self._series: dict[tuple[str, ...], float] = {}

    def add(self, labels: Sequence[str], value: float | None) -> None:
        """Adds one series; None is no series, and -0.0 is 0.0."""
        if value is not None:
            self._series.setdefault(tuple(map(label_value, labels)), float(value) + 0.0)

    def add_short(self, labels: tuple[str, ...], value: float | None) -> None:
        """The same with labels that are short already: those of one engine are shortened once."""
        if value is not None:
            self._series.setdefault(labels, float(value) + 0.0)

    def metric(self) -> GaugeMetricFamily | CounterMetricFamily:
        """The family as the library knows it."""
        of_library = CounterMetricFamily if self.suffix else GaugeMetricFamily
        made = of_library(self.name, self._text, labels=self.labels)
        for labels, value in self._series.items():
            made.add_metric(labels, value)
        return made

    def lines(self) -> Iterator[str]:
        """The family as the library writes it."""
        name = self.name + self.suffix
        text = self._text.replace("\\", r"\\").replace("\n", r"\n")
        yield f"# HELP {name} {text}\n# TYPE {name} {self.kind}\n"
        order = sorted(range(len(self.labels)), key=self.labels.__getitem__)
        heads = [(place, f'{self.labels[place]}="') for place in order]
        for labels, value in self._series.items():
            number = _NUMBERS.get(value) or floatToGoString(value)  # type: ignore[no-untyped-call]
            if heads:
                told = '",'.join([head + _escaped(labels[place]) for place, head in heads])
                yield f'{name}{{{told}"}} {number}\n'
            else:
                yield f"{name} {number}\n"


class Gauge(Family):
    """What goes up and down."""


class Total(Family):
    """What only grows; its series have `_total` behind their name."""

    kind = "counter"
    suffix = "_total"


def label_value(text: str) -> str:
    """`text` as a label, of bounded length."""
    return text if len(text) <= MAX_LABEL_CHARACTERS else text[: MAX_LABEL_CHARACTERS - 3] + "..."


def _escaped(text: str) -> str:
    return text if text.isalnum() else text.translate(_ESCAPED)
