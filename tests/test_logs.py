"""Log lines: one event a line, whatever is in it."""

import io
import json
import logging

import pytest

from watchdog import logs

pytestmark = pytest.mark.usefixtures("restored_root_logger")

HOSTILE = 'a b\n\x1b[31mred\x00 "x"=1 \u202e \ud800'


def one_event(form: str, level: str = "info", **fields: object) -> str:
    stream = io.StringIO()
    logs.set_up(level, form, stream)
    logging.getLogger("watchdog.example").info("target_down", extra=fields)
    return stream.getvalue()


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_hostile_text_stays_on_one_line_of_printable_text(form: str) -> None:
    line = one_event(form, target=HOSTILE)
    assert line.endswith("\n")
    assert line.rstrip("\n").isprintable()
    line.encode()


def test_logfmt_has_the_event_and_its_fields() -> None:
    line = one_event("logfmt", target="gpu-1", seconds=1.5, missing=None, reason="not found", empty="")
    assert "level=info logger=watchdog.example event=target_down target=gpu-1 seconds=1.5" in line
    assert 'missing= reason="not found" empty=""' in line


def test_a_value_cannot_add_a_field() -> None:
    assert 'target="x level=error"' in one_event("logfmt", target="x level=error")
    assert r'target="\" level=\"error"' in one_event("logfmt", target='" level="error')


def test_json_keeps_types_and_is_always_json() -> None:
    fields = json.loads(one_event("json", count=3, ratio=float("nan"), parts={"a": [1, None]}))
    assert (fields["event"], fields["count"], fields["ratio"]) == ("target_down", 3, "nan")
    assert fields["parts"] == {"a": [1, None]}


def test_a_trace_is_one_line() -> None:
    stream = io.StringIO()
    logs.set_up("info", "logfmt", stream)
    try:
        int("many")
    except ValueError:
        logging.getLogger("watchdog.example").exception("cycle_failed")
    assert stream.getvalue().count("\n") == 1
    assert "ValueError: invalid literal" in stream.getvalue()


def test_events_below_the_level_are_not_written() -> None:
    assert one_event("logfmt", level="warning") == ""


def test_long_values_are_cut() -> None:
    assert len(one_event("logfmt", target="x" * 100_000)) < 2_500


def test_a_stream_that_fails_costs_the_line_only() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    logs.set_up("info", "logfmt", Full())
    logging.getLogger("watchdog.example").info("target_down")
