"""SECURITY.md: every limit it names is what the code holds, and every limit is named with its setting."""

import re
from pathlib import Path

import pytest

from watchdog.diagnosis import incidents
from watchdog.history import history, layout
from watchdog.http import client, get, post
from watchdog.language import grammar
from watchdog.notify import alert, alertmanager, receiver
from watchdog.probe import budget, completion, stream
from watchdog.report import families
from watchdog.rule import file as rule_file
from watchdog.rule import rule_set
from watchdog.scrape import exposition, fetch, line_file
from watchdog.service import process, walkers
from watchdog.settings import model as our_settings
from watchdog.settings import sources
from watchdog.settings.model import Settings
from watchdog.text import MOST_CHARACTERS
from watchdog.web import api, auth, guard

PAGE = (Path(__file__).parent.parent / "SECURITY.md").read_text()
ROW = re.compile(r"^\| ([^|]+?) \| ([0-9][^|]*?) \| (?:`([a-z_.]+)` )?\|$", re.MULTILINE)
STANDARD = Settings()
FETCH = fetch.FetchLimits()


def size(count: int) -> str:
    """Bytes as people write them."""
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if count % (1 << power) == 0:
            return f"{count >> power} {unit}"
    return f"{count} bytes"


def seconds(count: float) -> str:
    return f"{count / 60:.0f} min" if count >= 120 else f"{count:g} s"


def characters(count: int) -> str:
    return f"{count:,} characters"


SET = {
    "scrape.deadline_seconds": seconds(STANDARD.scrape.deadline_seconds),
    "scrape.max_body_bytes": size(STANDARD.scrape.max_body_bytes),
    "scrape.max_line_bytes": size(STANDARD.scrape.max_line_bytes),
    "scrape.max_series": f"{STANDARD.scrape.max_series:,}",
    "web.max_body_bytes": size(STANDARD.web.max_body_bytes),
    "web.limit_concurrency": f"{STANDARD.web.limit_concurrency:,}",
    "receiver.keep": f"{STANDARD.receiver.keep:,}",
    "alertmanager.queue_capacity": f"{STANDARD.alertmanager.queue_capacity:,}",
    "alertmanager.timeout_seconds": seconds(STANDARD.alertmanager.timeout_seconds),
    "state.max_incidents": f"{STANDARD.state.max_incidents:,}",
    "state.retention_days": f"{STANDARD.state.retention_days:g} days",
}
FIXED = {
    "header of an answer": size(FETCH.max_header_bytes),
    "labels of one series": size(exposition.MAX_LABELS_BYTES),
    "the same where something in them is escaped": size(exposition.MAX_ESCAPED_LABELS_BYTES),
    "labels in unusual form, never seen before, on one page": size(exposition.MAX_UNUSUAL_BYTES),
    "models and engines judged": f"{layout.MOST_ENGINES}",
    "name of a model and engine": characters(layout.MOST_NAME_CHARACTERS),
    "pages remembered": f"{history.MOST_FRAMES}",
    "time they are remembered": seconds(history.RETENTION_SECONDS),
    "numbers remembered in them": f"{history.MOST_VALUES:,}",
    "incidents remembered": f"{incidents.MOST_INCIDENTS:,}",
    "`/version`, `/v1/models` or `/load`": size(fetch.FACTS_BYTES),
    "time for the first two, once a start": seconds(fetch.FACTS_SECONDS),
    "models shown": f"{fetch.MOST_MODELS}",
    "characters of a failure's detail": f"{get.MOST_DETAIL_CHARACTERS}",
    "targets that may hang at once before others wait": f"{walkers.MAX_HELD_UP}",
    "query": f"{guard.MAX_QUERY_BYTES:,} bytes",
    "path": characters(guard.MAX_PATH_CHARACTERS),
    "time to send the head of a request, and for a TLS handshake": seconds(process.HEAD_SECONDS),
    "time to send its body": seconds(process.BODY_SECONDS),
    "time a connection may be idle": seconds(process.KEEP_ALIVE_SECONDS),
    "incidents in one answer": f"{api.MAX_LISTED:,}",
    "alerts read of one post of a caller": f"{receiver.ALERTS_AT_MOST:,}",
    "body of a post to `/alertmanager`, which Alertmanager never repeats when it is refused": size(
        guard.STORM_BYTES
    ),
    "such posts beyond 1 MiB at once": f"{api.STORMS_AT_ONCE}",
    "`Authorization` header": characters(auth.MAX_HEADER_CHARACTERS),
    "settings": size(sources.KIND.max_bytes),
    "depth of settings": f"{sources.KIND.max_nesting}",
    "a rule": size(rule_file.KIND.max_bytes),
    "depth of a rule": f"{rule_file.KIND.max_nesting}",
    "entries of one mapping or list in a rule": f"{rule_file.KIND.max_entries}",
    "rules in one directory": f"{rule_set.MAX_FILES}",
    "a clause": characters(grammar.MAX_LENGTH),
    "depth of a clause": f"{grammar.MAX_NESTING}",
    "a secret for a target or a receiver": size(client.SECRET_BYTES),
    "a secret for our callers": size(auth.MAX_SECRET_BYTES),
    "a line of a recording": size(line_file.MAX_LINE_BYTES),
    "alerts in one post of ours": f"{alertmanager.BATCH_SIZE}",
    "of a receiver's answer that is read": size(post.MAX_ANSWER_BYTES),
    "an alert's label": characters(alert.MAX_LABEL_CHARACTERS),
    "an alert's annotation": characters(alert.MAX_ANNOTATION_CHARACTERS),
    "a label in our metrics": characters(families.MAX_LABEL_CHARACTERS),
    "a value in a log line": characters(MOST_CHARACTERS),
    "requests of one `probe`, by default": f"{budget.MOST_REQUESTS}",
    "tokens of one `probe`, prompts and output": f"{budget.MOST_TOKENS:,}",
    "requests in the queue above which `probe` asks nothing": f"{budget.MOST_WAITING}",
    "of one stream that is read": size(stream.MAX_STREAM_BYTES),
    "time to deliver what waits, after a stop signal": seconds(process.DRAIN_SECONDS),
}


def named() -> dict[str, str]:
    """The limits of the page by their setting, or by the words before a semicolon."""
    rows = ROW.findall(PAGE)
    return {setting or what.partition(";")[0]: limit for what, limit, setting in rows}


def test_every_limit_of_the_page_is_that_of_the_code() -> None:
    assert named() == SET | FIXED


def test_no_row_of_the_page_is_passed_over() -> None:
    tables = PAGE.split("## Limits")[1]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and "---" not in line]
    headings = [line for line in rows if line.startswith("| what | limit |")]
    assert len(headings) == 4
    assert len(ROW.findall(tables)) == len(rows) - len(headings) == len(SET) + len(FIXED)


def test_limits_of_a_fetch_and_of_the_settings_are_one() -> None:
    assert STANDARD.scrape.max_body_bytes == FETCH.max_body_bytes
    assert STANDARD.scrape.deadline_seconds == FETCH.deadline_seconds
    cache = exposition.SeriesCache(lambda _: True)
    assert cache.max_series == STANDARD.scrape.max_series
    assert cache.max_line_bytes == STANDARD.scrape.max_line_bytes


def test_every_setting_that_is_a_limit_is_on_the_page() -> None:
    sections = ("scrape", "web", "receiver", "alertmanager", "state")
    limits = {
        f"{section}.{name}"
        for section in sections
        for name in type(getattr(STANDARD, section)).model_fields
        if name.startswith("max_")
        or name in {"deadline_seconds", "limit_concurrency", "keep", "queue_capacity"}
    }
    assert limits <= set(SET)


@pytest.mark.parametrize(("key", "value"), [("host", "127.0.0.1"), ("reload_endpoint", False)])
def test_the_defaults_that_the_page_promises(key: str, value: object) -> None:
    assert getattr(our_settings.WebSettings(), key) == value
    assert {"/healthz", "/readyz"} <= auth.OPEN_PATHS


def test_the_mark_of_the_probe_is_the_one_of_the_page() -> None:
    [section] = re.findall(r"## The probe\n(.*?)\n## ", PAGE, re.S)
    assert f"`{completion.MARK}`" in section
    assert all(option in section for option in ("--api-key-file", "--api-key-env", "--prompts"))
