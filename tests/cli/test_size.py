"""`vllm-watchdog size` as people and scripts meet it."""

import json
import lzma
from pathlib import Path

import pytest

from tests.commands import command
from tests.facts.test_sizing import LLAMA_8B
from tests.places import RECORDINGS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return tmp_path


def test_it_says_what_fits_and_what_a_flag_would_change(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "size", model / "config.json", "--gpu", "H100", "--length", "8000")
    assert ended.code == 0
    assert "131,072 bytes a token" in ended.out
    assert "one stream at most 209 tokens/s" in ended.out
    assert "--kv-cache-dtype fp8" in ended.out


def test_what_does_not_fit_exits_with_one_and_names_the_length_that_does(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "size", model, "--gpu", "RTX 4090")
    assert ended.code == 1
    assert "--max-model-len 52" in ended.out
    assert command(capsys, "size", model, "--gpu", "RTX 4090", "--max-model-len", "8k").code == 2
    assert command(capsys, "size", model, "--gpu", "RTX 4090", "--max-model-len", "8192").code == 0


def test_json_holds_the_same_figures(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "size", model, "--gpu", "H100", "--quantization", "fp8", "--format", "json")
    body = json.loads(ended.out)["size"]
    assert body["kv_bytes_per_token"] == 131_072
    assert body["weights_bytes_by_bits"]["16"] == pytest.approx(16.06e9, rel=0.001)
    assert body["weights_fit"] is True
    assert next(row["change"] for row in body["what_if"]) == "as planned"


def test_measured_weights_count_before_computed_ones(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 20000000000}}')
    by_index = json.loads(command(capsys, "size", model, "--format", "json").out)
    assert by_index["size"]["weights_bytes"] == 2e10
    by_hand = json.loads(command(capsys, "size", model, "--weights", "30GB", "--format", "json").out)
    assert by_hand["size"]["weights_bytes"] == 3e10


def test_every_fault_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("[]")
    ended = command(capsys, "size", tmp_path, "--gpu", "H100 XL", "--quantization", "q5")
    assert ended.code == 2
    assert ended.out == ""
    for part in ("--gpu 'H100 XL'", "--quantization 'q5'", "config.json: it holds no JSON object"):
        assert part in ended.err


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"num_hidden_layers": 1e400}', '{"a": NaN}'])
def test_a_file_that_is_no_config_is_a_sentence(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    ended = command(capsys, "size", tmp_path)
    assert ended.code == 2
    assert "config.json: " in ended.err


@pytest.mark.slow
def test_a_servers_own_figure_stands_beside_the_estimate(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "while-the-queue-grows.jsonl"
    with lzma.open(RECORDINGS / "h200-kv-pool-exhausted.jsonl.xz", "rt") as lines:
        meta = next(lines)
        [_, full] = json.loads(meta)["phases"]
        end = full["start"] + 70
        recording.write_text("".join([meta, *(line for line in lines if json.loads(line)["t"] <= end)]))
    ended = command(capsys, "size", recording, "--model", model, "--gpu", "H200", "--for", "50s")
    assert ended.code == 0
    assert "its pool holds 33,600 tokens" in ended.out
    assert "capped by --num-gpu-blocks-override" in ended.out
    assert "the pool is full" in ended.out
    assert "The queue grows by" in ended.out
    assert "replicas of this kind" in ended.out


@pytest.mark.slow
def test_a_calm_server_wants_no_second(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "size", RECORDINGS / "h200-healthy.jsonl.xz", "--for", "60s", "--format", "json")
    [seen] = json.loads(ended.out)["outlook"]
    assert seen["replicas_wanted"] == 1
    assert seen["queue_growth_per_second"] is None


def test_a_page_of_another_program_is_no_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "metrics.prom"
    page.write_text("up 1\n")
    ended = command(capsys, "size", page)
    assert ended.code == 2
    assert "no page of vLLM" in ended.err
