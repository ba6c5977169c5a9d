"""A query's answer of raw samples, read as it stands: no object is made of a label that was read before."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from watchdog.text import one_line

Sample = tuple[float, bytes]
"""Unix seconds, and the value as it was scraped."""

# A quote inside a text of JSON has a backslash before it: these can stand nowhere but where a series begins, where its
# values begin, and where they end.
_SERIES = b'{"metric":'
_VALUES = b',"values":[['
_NEXT_SAMPLE = b"],["
_END = b"]]}"


class Row(NamedTuple):
    """One series: its labels as JSON, its name among them, and its samples in the order of their times."""

    metric: bytes
    samples: Sequence[Sample]


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
            Row(json.dumps(_labels(metric)).encode(), [_sample(at, value) for at, value in values])
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


def _matrix(without_series: bytes, rows: Sequence[Row]) -> Matrix | None:
    told = json.loads(without_series)
    is_one = (
        isinstance(told, dict) and isinstance(told.get("data"), dict) and told["data"].get("result") == []
    )
    return Matrix(told, rows) if is_one else None


def _row(piece: bytes) -> Row:
    metric, mark, values = piece.partition(_VALUES)
    if not mark:
        raise ValueError
    samples = []
    for text in values.split(_NEXT_SAMPLE):
        at, _, value = text.partition(b",")
        if value[:1] != b'"' or value[-1:] != b'"':
            raise ValueError
        float(value[1:-1])
        samples.append((float(at), value[1:-1]))
    return Row(metric, samples)


def _sample(at: object, value: object) -> Sample:
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(value, str):
        raise TypeError
    float(value)
    return float(at), value.encode()


def _labels(metric: object) -> dict[str, str]:
    if not isinstance(metric, dict) or not isinstance(metric.get("__name__"), str):
        raise TypeError
    if not all(isinstance(value, str) for value in metric.values()):
        raise TypeError
    return metric
