"""A query's answer of raw samples, read as it stands: no object is made of a label that was read before."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from watchdog.text import one_line

Row = tuple[bytes, bytes]
"""One series: its labels as JSON, its name among them, and its samples as JSON without the outer brackets."""

# A quote inside a text of JSON has a backslash before it: these can stand nowhere but where a series begins, where its
# values begin, and where they end.
_SERIES = b'{"metric":'
_VALUES = b',"values":['
_END = b"]}"
# All that samples are made of: times, and numbers between quotes, `+Inf` and `NaN` among them.
_OF_SAMPLES = b'0123456789.,"[]+-eEINFaNinf'
_SAMPLE = re.compile(rb'\[([^,"]+),"([^"]+)"\]')


class Matrix(NamedTuple):
    """An answer: what it says of itself, and its series."""

    told: Mapping[str, Any]
    rows: Sequence[Row]


def read_matrix(body: bytes) -> Matrix | None:
    """Reads an answer in the form in which all servers write it, without blanks; None for any other body."""
    first, *pieces = body.split(_SERIES)
    try:
        if not pieces:
            return _matrix(first, [])
        rows = [_row(piece.removesuffix(b",").removesuffix(_END)) for piece in pieces[:-1]]
        # Not before its values begin: a label may hold what looks like their end.
        metric, mark, last = pieces[-1].partition(_VALUES)
        values, _, after = last.partition(_END)
        return _matrix(first + after, [*rows, _row(metric + mark + values)])
    except (ValueError, RecursionError):
        return None


def matrix_of(told: Mapping[str, Any]) -> Matrix | None:
    """The same of an answer that was read as JSON; None where a row is not of the query API's form."""
    try:
        series = [(each["metric"], each["values"]) for each in told["data"]["result"]]
        rows = [
            (json.dumps(_labels(metric)).encode(), b",".join(_sample(at, value) for at, value in values))
            for metric, values in series
        ]
    except (KeyError, TypeError, ValueError):
        return None
    return Matrix(told, rows)


def labels_of(metric: bytes) -> dict[str, str]:
    """The labels of a row; raises ValueError for what is no mapping from text to text with a name in it."""
    try:
        return _labels(json.loads(metric))
    except (TypeError, RecursionError):
        raise ValueError(one_line(metric.decode(errors="replace"), 200)) from None


def samples_of(values: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The time of each sample and its value, as they are written."""
    return ((match[1], match[2]) for match in _SAMPLE.finditer(values))


def _matrix(without_series: bytes, rows: Sequence[Row]) -> Matrix | None:
    told = json.loads(without_series)
    is_one = (
        isinstance(told, dict) and isinstance(told.get("data"), dict) and told["data"].get("result") == []
    )
    return Matrix(told, rows) if is_one else None


def _row(piece: bytes) -> Row:
    metric, _, values = piece.partition(_VALUES)
    # What looks like samples and is none makes a page that cannot be read.
    if values[-2:] != b'"]' or values.translate(None, _OF_SAMPLES):
        raise ValueError
    return metric, values


def _sample(at: object, value: object) -> bytes:
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(value, str):
        raise TypeError
    float(value)
    return f'[{at!r},"{value}"]'.encode()


def _labels(metric: object) -> dict[str, str]:
    if not isinstance(metric, dict) or not isinstance(metric.get("__name__"), str):
        raise TypeError
    if not all(isinstance(value, str) for value in metric.values()):
        raise TypeError
    return metric
