"""Answers of raw samples: the form in which all servers write them, and any other form of JSON, say the same."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.scrape.answer import labels_of, matrix_of, read_matrix, samples_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['{"metric":', ',"values":[[', "]]}", '],["', "\\", '"']
)
METRIC = st.dictionaries(TEXT, TEXT, max_size=4).map(lambda labels: {**labels, "__name__": "up"})
SAMPLES = st.lists(
    st.tuples(st.floats(0, 2e9), st.floats().map(str) | st.just("+Inf")), min_size=1, max_size=3
)
ROWS = st.lists(
    st.builds(lambda metric, values: {"metric": metric, "values": values}, METRIC, SAMPLES), max_size=4
)


def answer(rows: Any, **more: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": rows}, **more}


def compact(told: Any) -> bytes:
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()


@given(ROWS, st.lists(TEXT, max_size=2))
def test_an_answer_without_blanks_is_read_as_json_says(
    rows: list[dict[str, Any]], warnings: list[str]
) -> None:
    body = answer(rows, warnings=warnings)
    read, same = read_matrix(compact(body)), matrix_of(body)
    assert same is not None
    if read is None:
        # The mark of an end in a warning: then it is for JSON to read.
        assert any("]]}" in each for each in warnings)
        return
    assert read.told["warnings"] == warnings
    for matrix in (read, same):
        assert [labels_of(metric) for metric, _ in matrix.rows] == [each["metric"] for each in rows]
        told = [
            [(float(at), value.decode()) for at, value in samples_of(values)] for _, values in matrix.rows
        ]
        assert told == [[(at, value) for at, value in each["values"]] for each in rows]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        json.dumps(answer([{"metric": {"__name__": "up"}, "values": [[1, "1"]]}])).encode(),
        compact(answer([{"metric": {"__name__": "up"}, "values": [[1, 1]]}])),
        compact(answer([{"metric": {"__name__": "up"}, "values": [[1, "x"]]}])),
        compact(answer([{"metric": {"__name__": "up"}, "values": []}])),
        compact(answer([{"metric": {"__name__": "up"}, "values": [[1, "1"]]}]))[:-20],
        compact({"status": "error", "error": "no"}),
    ],
)
def test_any_other_body_is_left_to_json(body: bytes) -> None:
    assert read_matrix(body) is None


@pytest.mark.parametrize(
    "rows", [[{}], [{"metric": {"a": "b"}, "values": []}], [3], [{"metric": 3, "values": []}]]
)
def test_rows_of_another_form_are_no_matrix(rows: Any) -> None:
    assert matrix_of(answer(rows)) is None


@pytest.mark.parametrize(
    "metric", [b"", b"{", b"{}", b'{"__name__":3}', b'{"__name__":"up","a":1}', b"[" * 9999]
)
def test_labels_that_are_no_mapping_of_texts_are_refused(metric: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its text is the metric
        labels_of(metric)
