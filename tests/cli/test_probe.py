"""`vllm-watchdog probe` against a server that speaks the streaming API."""

import json
from pathlib import Path

import pytest

from tests.commands import Ended, command
from tests.openai_server import Engine, OpenAIServer
from watchdog.probe.completion import MARK


def probed(engine: Engine, capsys: pytest.CaptureFixture[str], *words: str | Path) -> Ended:
    with OpenAIServer(engine) as server:
        return command(capsys, "probe", server.url, *words)


def test_a_healthy_server(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(prefill_seconds_per_token=0.0001)
    ended = probed(engine, capsys, "--format", "json")
    assert ended.code == 0, ended
    body = json.loads(ended.out)
    assert body["life"] == "alive"
    assert [each["answered"] for each in body["streams"]] == [True, True]
    assert body["prefill"]["points"][0][0] < 400
    assert body["prefix"]["state"] == "works"
    assert body["findings"] == []
    assert set(body["time_went_seconds"]) == {"queue", "prefill", "decode"}
    assert {each["user"] for each in engine.bodies} == {MARK}
    assert body["cost"].startswith(f"{len(engine.bodies)} requests")
    # What a server counted is what is told.
    assert engine.counted["prompt"] + engine.counted["tokens"] < 12_000


def test_the_text_says_what_was_asked_and_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    ended = probed(Engine(), capsys)
    for part in ("second run", "(kept)", "prefix", "works", "No fault found", "requests, "):
        assert part in ended.out


def test_decode_is_set_beside_what_the_gpu_should_reach(capsys: pytest.CaptureFixture[str]) -> None:
    ended = probed(Engine(gap_seconds=0.03), capsys, "--gpu", "H100", "--weights", "16e9")
    assert ended.code == 1
    assert "209 tokens/s for one stream on this GPU; a stream alone should reach 140" in ended.out
    assert "decode is the longest part" in ended.out
    assert "Decode is slow" in ended.out


def test_chat_is_asked_by_its_own_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    assert probed(engine, capsys, "--chat").code == 0
    assert sum("messages" in each for each in engine.bodies) == len(engine.bodies) - 1


def test_a_key_comes_from_a_file_or_the_environment_and_is_never_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key"
    key.write_text("sesame\n")
    monkeypatch.setenv("MY_KEY", "sesame")
    for option in (("--api-key-file", key), ("--api-key-env", "MY_KEY")):
        ended = probed(Engine(key="sesame"), capsys, *option)
        assert ended.code == 0
        assert "sesame" not in ended.out + ended.err
    refused = probed(Engine(key="other"), capsys, "--api-key-env", "MY_KEY", "--model", "m")
    assert refused.code == 2
    assert "refuses" in refused.out
    assert probed(Engine(), capsys, "--api-key-env", "NOT_SET").code == 2


def test_it_adds_nothing_to_a_queue(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(waiting=9)
    ended = probed(engine, capsys)
    assert ended.code == 2
    assert "9 requests wait" in ended.out
    assert engine.bodies == []


def test_it_stops_at_its_budget(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine()
    ended = probed(engine, capsys, "--max-requests", "4")
    assert len(engine.bodies) == 4
    assert "Stopped: the budget of 4 requests" in ended.out
    small = Engine()
    probed(small, capsys, "--max-tokens", "500")
    assert small.counted["prompt"] + small.counted["tokens"] <= 500


@pytest.mark.parametrize(
    ("engine", "life"),
    [
        (Engine(hangs=True), "stalled"),
        (Engine(hangs=True, ever=0), "compiling"),
        (Engine(hangs=True, awake=False), "asleep"),
        (Engine(hangs=True, has_page=False), "late"),
    ],
)
def test_what_does_not_answer_is_told_apart(
    engine: Engine, life: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = probed(engine, capsys, "--deadline", "400ms", "--format", "json")
    assert ended.code == 1
    body = json.loads(ended.out)
    assert body["life"] == life
    assert body["findings"][0]["rule"] == f"probe-{life}"


def test_a_page_of_another_process_stands_still(capsys: pytest.CaptureFixture[str]) -> None:
    ended = probed(Engine(page_moves=False), capsys, "--max-requests", "1", "--format", "json")
    assert json.loads(ended.out)["life"] == "stale-gauges"


def test_a_cache_that_is_off(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(probed(Engine(caches_prefixes=False), capsys, "--format", "json").out)
    assert body["prefix"]["state"] == "off"
    assert body["findings"][0]["remedies"][0]["flag"] == "--enable-prefix-caching"


def test_a_block_larger_than_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(probed(Engine(block_size=1024), capsys, "--format", "json").out)
    assert body["prefix"]["state"] == "block too large"


def test_prompts_that_part_at_the_head(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    tail = "You answer questions about harbours. " * 20
    lines = [{"prompt": f"12:0{minute} {tail}"} for minute in (1, 2)]
    prompts.write_text("\n".join(map(json.dumps, lines)))
    engine = Engine()
    ended = probed(engine, capsys, "--prompts", prompts)
    assert "share 4 characters" in ended.out
    assert "Move variable parts" in ended.out
    # They are compared, never sent.
    assert "harbours" not in json.dumps(engine.bodies)


def test_a_server_without_a_page_of_vllm(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Engine(has_page=False)
    ended = probed(engine, capsys)
    assert ended.code == 0
    assert "cannot be seen here" in ended.out
    assert not any("ignore_eos" in each for each in engine.bodies)
