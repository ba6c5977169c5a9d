"""What a clause of the evidence is about, and the threshold it was held against, for a picture of it."""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from watchdog.diagnosis.readings import READINGS
from watchdog.report.course import LINES

_NUMBER = r"-?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
_TERM = rf"(?:[a-z]\w* \({_NUMBER}\)|{_NUMBER})"
_COMPARISON = re.compile(
    rf"([a-z]\w*) \({_NUMBER}\)((?: \+ {_TERM})*) (?:>=|<=|>|<) ({_TERM}(?: \* {_TERM})*)(?= and | or |\)|$)"
)
_VALUE = re.compile(rf"({_NUMBER})\)?$")
# The same gauge looked at in other ways: over a window its least, its mean, its peak.
_GAUGES = {"waiting": "waiting_requests", "running": "running_requests", "kv_usage": "kv_usage_ratio"}
_VIEWS = re.compile(
    r"(waiting|running|kv_usage)_(?:last|recent_min|min|mean|max|peak|while_waiting)(?:_ratio)?"
)
_BY_SIGNAL: Mapping[str, str] = {signal: reading for reading, (signal, _) in READINGS.items() if signal}


class ClauseLine(NamedTuple):
    """The reading, else the signal, and the threshold in its unit (None: the clause has no single one)."""

    name: str
    threshold: float | None
    is_reading: bool = True


def clause_line(text: str) -> ClauseLine | None:
    """From a clause with its values, as evidence shows it; None where nothing of it is compared and none is a reading.

    Of several comparisons that of a reading, which is known for longer, else the first.
    """
    compared = [(match, reading_of(match[1])) for match in _COMPARISON.finditer(text)]
    for match, reading in compared:
        if reading is not None:
            return ClauseLine(reading, _threshold(match))
    names = re.findall(r"[a-z]\w+", text)
    found = next((reading for name in names if (reading := reading_of(name)) is not None), None)
    if found is not None:
        return ClauseLine(found, None)
    return ClauseLine(compared[0][0][1], _threshold(compared[0][0]), is_reading=False) if compared else None


def _threshold(match: re.Match[str]) -> float:
    beside = sum(_value(term) for term in match[2].split(" + ")[1:])
    return math.prod(_value(factor) for factor in match[3].split(" * ")) - beside


def reading_of(signal: str) -> str | None:
    """The reading that shows this signal and whose course is kept; None where none does."""
    view = _VIEWS.fullmatch(signal)
    found = _GAUGES[view[1]] if view else _BY_SIGNAL.get(signal)
    return found if found in LINES else None


def _value(term: str) -> float:
    found = _VALUE.search(term)
    return float(found[1].replace(",", "")) if found else 0.0
