"""`vllm-watchdog lab` against a server that speaks the streaming API: plan, report, picture and recording."""

import json
from pathlib import Path

import pytest

from tests.commands import command
from tests.openai_server import Engine, OpenAIServer
from tests.probe.test_lab import GUIDELLM, VLLM_BENCH
from watchdog.probe.completion import MARK
from watchdog.probe.exercises import plan_of, sweep_said
from watchdog.probe.knee import Step
from watchdog.scrape.recording import read


def test_nothing_is_asked_without_leave(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    with OpenAIServer(engine) as server:
        ended = command(capsys, "lab", "prefix", server.url)
    assert ended.code == 2
    assert "plan: four rounds" in ended.err
    assert "--yes" in ended.err
    assert engine.bodies == []


def test_a_shared_prefix_is_found_with_a_stable_head_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(prefill_seconds_per_token=0.00005)
    with OpenAIServer(engine) as server:
        ended = command(capsys, "lab", "prefix", server.url, "--yes", "--output", tmp_path)
    assert ended.code == 0, ended
    figures = json.loads((tmp_path / "prefix.json").read_text())["exercises"]["prefix"]
    assert figures["stable head, round 2"]["hit_ratio"] > 0.8
    assert figures["changed head, round 2"]["hit_ratio"] < 0.2
    assert (tmp_path / "prefix.svg").read_text().startswith("<svg")
    _, scrapes = read(tmp_path / "prefix.jsonl.xz")
    assert all(scrape.status == 200 for scrape in scrapes)
    plan = plan_of("prefix")
    assert len(engine.bodies) == plan.requests
    assert engine.counted["prompt"] + engine.counted["tokens"] <= plan.tokens
    assert {each["user"] for each in engine.bodies} == {MARK}


def test_a_long_prompt_among_streams_is_compared_with_an_earlier_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with OpenAIServer(Engine(gap_seconds=0.001)) as server:
        words = ("lab", "jitter", server.url, "--yes", "--output", tmp_path, "--long", "500")
        assert command(capsys, *words).code == 0
        again = command(capsys, *words[:4], "--long", "500", "--before", tmp_path / "jitter.json")
    assert "Longest gap beside a long prompt" in again.out


def test_a_sweep_says_where_it_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(Engine(gap_seconds=0.0005)) as server:
        ended = command(capsys, "lab", "sweep", server.url, "--yes", "--most", "4", "--output", tmp_path)
    assert ended.code == 0, ended
    assert "knee" in ended.out
    steps = json.loads((tmp_path / "sweep.json").read_text())["exercises"]["sweep"]["steps"]
    assert [each["concurrency"] for each in steps][:2] == [1, 2]
    assert all(each["tokens_per_second"] > 0 for each in steps)


def test_a_server_that_refuses_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with OpenAIServer(Engine(key="other")) as server:
        ended = command(capsys, "lab", "prefix", server.url, "--yes", "--model", "m")
    assert ended.code == 2
    assert "32 requests have no answer, the first: status 401" in ended.err


def test_results_of_others_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for streams, tokens in ((4, 400.0), (8, 640.0), (16, 660.0)):
        files.append(tmp_path / f"{streams}.json")
        files[-1].write_text(
            json.dumps(VLLM_BENCH | {"max_concurrency": streams, "output_throughput": tokens})
        )
    ended = command(capsys, "lab", "read", *files)
    assert ended.code == 0
    assert "The knee is at 8 streams" in ended.out
    (tmp_path / "guidellm.json").write_text(json.dumps(GUIDELLM))
    assert "310 tokens/s" in command(capsys, "lab", "read", tmp_path / "guidellm.json").out


def test_every_file_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    ended = command(capsys, "lab", "read", tmp_path / "a.json", tmp_path / "b.json")
    assert ended.code == 2
    assert "a.json" in ended.err
    assert "b.json" in ended.err
    (tmp_path / "a.json").write_text("no")
    assert command(capsys, "lab", "read", tmp_path / "a.json").code == 2


def test_a_long_prompt_that_the_server_refuses_is_not_said_to_disturb_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with OpenAIServer(Engine(longest_prompt=1000)) as server:
        ended = command(capsys, "lab", "jitter", server.url, "--yes", "--long", "2000")
    assert ended.code == 2
    assert "2 of 6 requests have no answer" in ended.out
    assert "does not disturb" not in ended.out


@pytest.mark.parametrize("tokens_a_word", [1, 3])
def test_a_prompt_is_as_long_as_the_plan_says_whatever_the_tokenizer(
    tokens_a_word: int, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(tokens_a_word=tokens_a_word)
    with OpenAIServer(engine) as server:
        ended = command(capsys, "lab", "jitter", server.url, "--yes", "--long", "600")
    assert ended.code == 0, ended
    longest = max(len(each["prompt"].split()) for each in engine.bodies)
    assert longest * tokens_a_word == pytest.approx(600, rel=0.05)
    assert engine.counted["prompt"] + engine.counted["tokens"] <= plan_of("jitter", long_tokens=600).tokens


def test_a_sweep_counts_one_stream_as_one() -> None:
    assert "at 1 stream," in sweep_said([Step(1, 4, 70.0), Step(2, 6, 72.0)], None)[0]
