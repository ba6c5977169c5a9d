"""`rules explain` and `signals`: why a rule spoke or stayed silent, and what each signal is."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Ended, command, only_rules_of, write_rule
from tests.places import RECORDINGS, SAMPLES
from watchdog.cli.explain import reasons
from watchdog.history.number import AtLeast
from watchdog.model import Truth
from watchdog.replay.demo_server import RECORDING, ReplayServer
from watchdog.replay.explanation import Range, TruthSpan
from watchdog.scrape.recording import read
from watchdog.signals.catalogue import CATALOGUE, signal_names

QUEUE = RECORDINGS / "seqs-limited.jsonl.xz"
KV = "kv-pool-exhausted"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "rules"
    write_rule(folder)
    only_rules_of(folder, monkeypatch)
    return folder


def flat(ended: Ended) -> str:
    return " ".join(ended.out.split())


def explained(capsys: pytest.CaptureFixture[str], recording: Path = RECORDING) -> dict[str, Any]:
    ended = command(capsys, "rules", "explain", KV, recording, "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    found: dict[str, Any] = json.loads(ended.out)
    return found


@pytest.mark.usefixtures("folder")
def test_a_rule_that_fired_is_explained_by_when_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    text = flat(command(capsys, "rules", "explain", KV, RECORDING))
    assert re.search(r"tiny, engine 0: fired from 0:\d\d to \d:\d\d and led from 0:\d\d\.", text)
    assert "when waiting_last > least_waiting (0) " in text
    assert re.search(r"0:00 to 0:\d\d no waiting_last 0 ", text)
    assert re.search(r"yes waiting_last [1-9]\d* to \d+ ", text)


def test_a_silent_rule_is_explained_by_the_clause_against_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rule(folder, **{"value: 0.5": "value: 1.5", "0.9}": "1.9}"})
    text = flat(command(capsys, "rules", "explain", KV, QUEUE))
    assert "stayed silent. It came closest at 0:" in text
    assert "with 1 of 2 clauses for it. Against it: `when kv_usage_last_ratio > least_usage` is no." in text


def test_a_rule_that_held_too_short_says_how_long(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rule(folder, for_="1h")
    text = flat(command(capsys, "rules", "explain", KV, RECORDING))
    assert re.search(
        r"stayed silent: it held for .* at a stretch at most, and fires once it held for 1h\.", text
    )


def test_what_was_unknown_is_explained_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, reason in (
        ("lora_slots", "the page has no vllm:lora_requests_info"),
        ("match_unit_tokens", "the page does not say"),
        ("ttft_objective_seconds", "not known of this server"),
    ):
        write_rule(folder, waiting_last=name)
        assert f"cannot be judged ({name} unknown: {reason})" in flat(
            command(capsys, "rules", "explain", KV, RECORDING)
        )


@pytest.mark.parametrize(
    ("clause", "reason"),
    [
        ("1 / waiting_last", "it divides by zero"),
        ("itl_p50_seconds_baseline", "itl_p50_seconds_baseline unknown: no calm stretch of the past"),
        ("itl_p50_seconds_lowest", "itl_p50_seconds_lowest unknown: "),
    ],
)
def test_a_clause_says_what_it_wants_for(
    clause: str,
    reason: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WATCHDOG_RULES__ALLOW_UNTESTED", "true")
    write_rule(folder, **{"waiting_last > least_waiting": f"{clause} > least_waiting"})
    assert reason in flat(command(capsys, "rules", "explain", KV, RECORDING))


def test_a_value_known_only_as_a_bound_is_the_reason() -> None:
    span = TruthSpan(Truth.UNKNOWN, 0.0, 1.0, {"ttft_p95_seconds": Range(AtLeast(20.0), AtLeast(20.0))})
    assert reasons(span) == "ttft_p95_seconds is known only as a bound"


@pytest.mark.usefixtures("folder")
def test_programs_get_every_span_with_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    found = explained(capsys)
    assert list(found) == [
        *(
            "rule",
            "title",
            "severity",
            "scope",
            "for_seconds",
            "target",
            "scrapes",
            "begin",
            "end",
            "subjects",
        )
    ]
    [subject] = found["subjects"]
    assert (subject["model_name"], subject["engine"], len(subject["incidents"])) == ("tiny", "0", 1)
    clauses = subject["clauses"]
    assert [each["clause"] for each in clauses] == [
        "waiting_last > least_waiting",
        "kv_usage_last_ratio > least_usage",
    ]
    assert clauses[0]["parameters"] == {"least_waiting": 0.0}
    for each in clauses:
        spans = each["spans"]
        assert (spans[0]["begin"], spans[-1]["end"]) == (found["begin"], found["end"])
        assert all(one["truth"] != after["truth"] for one, after in pairwise(spans))
    for span in clauses[0]["spans"]:
        values = span["values"]["waiting_last"]
        assert span["truth"] == ("yes" if values["least"] > 0 else "no")


@pytest.mark.usefixtures("folder")
def test_a_server_is_watched_to_explain_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    _, scrapes = read(RECORDING)
    with ReplayServer(list(scrapes), begin_seconds=100) as server:
        ended = command(capsys, "rules", "explain", KV, server.url, "--for", "0.4s", "--interval", "0.2")
    assert ended.code == 0
    assert "fired from 0:00 to the end and led from 0:00." in flat(ended)


@pytest.mark.usefixtures("folder")
def test_what_cannot_be_explained_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "rules", "explain", "kv-pool-exausted", RECORDING)
    assert (ended.code, "did you mean `kv-pool-exhausted`?" in ended.err) == (2, True)
    ended = command(capsys, "rules", "explain", KV, "incident")
    assert (ended.code, "neither a file here nor a URL" in ended.err) == (2, True)
    page = tmp_path / "node.prom"
    page.write_text("# TYPE node_load1 gauge\nnode_load1 3\n")
    ended = command(capsys, "rules", "explain", KV, page)
    assert (ended.code, "No vLLM metrics page was read" in ended.out) == (2, True)


def test_a_rule_of_the_fleet_is_not_explained_by_one_server(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rule(folder, **{"scope: engine": "scope: fleet"})
    ended = command(capsys, "rules", "explain", KV, RECORDING)
    assert (ended.code, "compares the servers of a fleet" in ended.err) == (2, True)


# signals


def test_every_signal_is_listed_with_unit_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    lines = command(capsys, "signals", "--format", "json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["name"] for row in rows} == signal_names()
    assert all(row["unit"] and row["description"] and "values" not in row for row in rows)
    listed = command(capsys, "signals").out.splitlines()
    assert len(listed) == len(rows)
    assert listed[0].split()[:2] == ["running_last", "requests"]


@pytest.mark.usefixtures("folder")
def test_each_signal_has_its_value_or_the_reason_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "signals", RECORDING, "--format", "json")
    rows = {row["name"]: row for row in map(json.loads, ended.out.splitlines())}
    assert ended.code == 0
    for row in rows.values():
        for value in row["values"]:
            assert (value["value"] is None) == bool(value.get("unknown"))
    assert rows["kv_usage_last_ratio"]["values"][0]["engine"] == "0"
    # A fact of the server, not of one of its engines.
    assert rows["failed_scrapes"]["values"][0]["engine"] == ""


@pytest.mark.usefixtures("folder")
def test_several_engines_stand_beside_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    page = SAMPLES / "0.33.0-v1-dp2-spec-lora-kvm.prom"
    ended = command(capsys, "signals", page, "--match", "waiting_last")
    assert re.match(r"waiting_last +0: 3, 1: 3 +requests +Requests in the queue", ended.out)


@pytest.mark.usefixtures("folder")
def test_a_name_that_no_signal_has_and_a_page_without_vllm_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "signals", "--match", "nonsense")
    assert (ended.code, ended.out) == (1, "")
    assert "no signal has 'nonsense' in its name" in ended.err
    page = tmp_path / "node.prom"
    page.write_text("# TYPE node_load1 gauge\nnode_load1 3\n")
    ended = command(capsys, "signals", page, "--match", next(iter(CATALOGUE)))
    assert (ended.code, "no page of vLLM was read" in ended.err) == (2, True)
