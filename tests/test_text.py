"""Text: what comes in is made harmless, times, numbers and names are written one way."""

import json
import math
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchdog.history.number import AtLeast, AtMost
from watchdog.text import (
    clean,
    clean_values,
    clock_text,
    duration_seconds,
    nearest,
    number_text,
    one_line,
    point_in_time,
    quantity_text,
    seconds_text,
    timestamp,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *(
            (0, "0 s"),
            (0.0042, "4.2 ms"),
            (0.00996, "10 ms"),
            (0.38, "380 ms"),
            (0.9996, "1.0 s"),
            (4.26, "4.3 s"),
            (9.96, "10 s"),
            (42, "42 s"),
            (59.7, "60 s"),
        ),
        *((200, "3m 20s"), (3600, "1h"), (7500, "2h 5m"), (3 * 86400, "3d"), (3 * 86400 + 3600, "3d 1h")),
        (AtLeast(0.038), ">= 38 ms"),
    ],
)
def test_times_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_a_place_in_a_recording_is_minutes_and_seconds() -> None:
    assert [clock_text(seconds) for seconds in (0, 9.4, 75, 3600)] == ["0:00", "0:09", "1:15", "60:00"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("kv_usage_ratio", 0.982, "98%"),
        ("prefix_hit_ratio", 0.0012, "0.12%"),
        ("generation_tokens_per_second", 1912.4, "1,912 tokens/s"),
        ("preemptions_per_second", 1.58, "1.6/s"),
        ("ttft_p95_seconds", AtLeast(80.0), ">= 1m 20s"),
        ("single_stream_tokens_per_second", AtMost(0.4), "<= 0.4 tokens/s"),
        ("decode_ceiling_ratio", AtMost(0.02), "<= 2%"),
        ("itl_p50_seconds_baseline", 0.0055, "5.5 ms"),
        ("seconds_since_progress", 0.4, "400 ms"),
        ("running_requests", 38.0, "38"),
        ("requests_that_fit", 39.6, "39.6"),
        ("anything", None, "unknown"),
        ("anything", math.nan, "unknown"),
    ],
)
def test_numbers_carry_the_unit_of_their_name(name: str, value: float | None, text: str) -> None:
    assert quantity_text(name, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (0.0, "0"),
        (0.123456, "0.1235"),
        (2.5, "2.5"),
        (1234.56, "1235"),
        (1e18, "1e+18"),
        (AtLeast(7.5), ">= 7.5"),
        (AtMost(0.4), "<= 0.4"),
        (-3.0, "-3"),
        (1e-7, "1e-07"),
        (123456789.0, "123456789"),
    ],
)
def test_a_number_is_written_as_a_person_does(value: float | None, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("5s", 5), ("1m30s", 90), ("1h30m", 5400), ("2h", 7200), ("1d", 86400), ("2w", 1_209_600)),
        *(
            ("0s", 0),
            ("0.5s", 0.5),
            ("1.5s", 1.5),
            ("250ms", 0.25),
            ("1s500ms", 1.5),
            ("90", 90),
            (" 5s ", 5),
        ),
    ],
)
def test_a_duration_is_a_number_with_units_or_seconds_alone(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "-5s", "1h 2m", "5x", "1e3", "٣s", "9" * 30, "1:30", ".5s", "1.5h", "1s1m", "ms"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="must be a duration such as 5s, 1m30s or 2h"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain", "plain"),
        ("ü ☃ \U0001f600 \u3000 \ufffd", "ü ☃ \U0001f600 \u3000 \ufffd"),
        ("two\n\tlines", "two\n\tlines"),
        ("two\r\nlines", "two\nlines"),
        ("a\rb\x1b[31m\x00\x7f\x85", "a\\rb\\x1b[31m\\x00\\x7f\\x85"),
        ("\u202eright to left\u2069", "\\u202eright to left\\u2069"),
        ("half \ud800", "half \\ud800"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_would_harm_a_reader_is_written_out(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert clean(cleaned) == cleaned


@given(st.text(st.characters()))
@settings(deadline=None)
def test_cleaned_text_can_be_encoded_and_holds_no_control(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert all(
        letter.isprintable() for letter in cleaned.replace("\n", "").replace("\t", "") if letter < "\xa0"
    )


@given(st.text(st.characters()), st.integers(3, 50))
@settings(deadline=None)
def test_one_line_is_printable_and_bounded(text: str, most: int) -> None:
    line = one_line(text, most)
    assert line.isprintable()
    assert len(line) <= most
    assert line == text or not text.isprintable() or len(text) > most


def test_values_of_json_are_cleaned_to_the_last_name() -> None:
    payload = json.loads('{"a\\u0007": ["\\ud800", {"b": "\\u001b", "n": 1.5, "none": null, "yes": true}]}')
    assert clean_values(payload) == {
        "a\\x07": ["\\ud800", {"b": "\\x1b", "n": 1.5, "none": None, "yes": True}]
    }


def test_the_nearest_name_is_a_hint_or_nothing() -> None:
    assert nearest("prot", ["port", "host"]) == "did you mean `port`?"
    assert nearest("xyz", ["port", "host"]) == ""


def test_a_time_outside_the_calendar_is_its_edge() -> None:
    assert timestamp(0.0) == "1970-01-01T00:00:00.000Z"
    assert timestamp(1e300) == "9999-12-31T23:59:59.000Z"
    assert timestamp(-1e300) == "0001-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("now", "2026-03-01T12:30:00+01:00"),
        ("now-1h30m", "2026-03-01T11:00:00+01:00"),
        ("02:10", "2026-03-01T02:10:00+01:00"),
        ("2:10", "2026-03-01T02:10:00+01:00"),
        ("23:10:05", "2026-02-28T23:10:05+01:00"),
        ("2026-03-01T02:10", "2026-03-01T02:10:00+01:00"),
        ("2026-03-01T02:10Z", "2026-03-01T02:10:00+00:00"),
        ("2026-03-01 02:10:30+05:30", "2026-03-01T02:10:30+05:30"),
        ("1700000000", "2023-11-14T22:13:20+00:00"),
    ],
)
def test_a_point_in_time_is_read_as_people_write_it(text: str, iso: str) -> None:
    now = datetime.fromisoformat("2026-03-01T12:30:00+01:00")
    assert point_in_time(text, now) == datetime.fromisoformat(iso).timestamp()


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "now-", "now-soon", "-1h", "2026-02-30", "12"]
)
def test_a_point_in_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be a (time|duration) such as"):
        point_in_time(text, datetime.fromisoformat("2026-03-01T12:30:00+01:00"))
