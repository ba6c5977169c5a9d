"""Which reading a clause of the evidence is about, and the threshold it was held against, for a picture of it."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from watchdog.diagnosis.readings import READINGS

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
    """The reading, and the threshold in its unit (None: the clause has no single one)."""

    reading: str
    threshold: float | None


def clause_line(text: str) -> ClauseLine | None:
    """From a clause with its values, as evidence shows it; None where it is about none of the readings."""
    for match in _COMPARISON.finditer(text):
        reading = reading_of(match[1])
        if reading is not None:
            beside = sum(_value(term) for term in match[2].split(" + ")[1:])
            threshold = 1.0
            for factor in match[3].split(" * "):
                threshold *= _value(factor)
            return ClauseLine(reading, threshold - beside)
    names = re.findall(r"[a-z]\w+", text)
    found = next((reading for name in names if (reading := reading_of(name)) is not None), None)
    return ClauseLine(found, None) if found is not None else None


def reading_of(signal: str) -> str | None:
    """The reading that shows this signal; None where none does."""
    view = _VIEWS.fullmatch(signal)
    return _GAUGES[view[1]] if view else _BY_SIGNAL.get(signal)


def _value(term: str) -> float:
    found = _VALUE.search(term)
    return float(found[1].replace(",", "")) if found else 0.0
