"""The commands as people and scripts meet them: what they print, where, and how they end."""

import json
import lzma
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path

import pytest

from tests.commands import RECORDING, Ended, command, only_rules_of, write_rule
from tests.places import SAMPLES
from watchdog.cli.console import exit_code
from watchdog.cli.diagnose import is_over
from watchdog.cli.main import COMMANDS
from watchdog.cli.namesake import refuse_namesake
from watchdog.errors import WatchdogError
from watchdog.model import Verdict
from watchdog.replay.demo_server import ReplayServer
from watchdog.scrape.recording import read


@pytest.fixture
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "rules"
    write_rule(folder)
    only_rules_of(folder, monkeypatch)
    return folder


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def sentence(ended: Ended) -> str:
    """What a failed command said: on standard error, without a stack trace, and nothing on standard output."""
    assert ended.out == ""
    assert "Traceback" not in ended.err
    return ended.err


# Help and usage


def test_help_lists_every_command_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "--help")
    assert ended.code == 0
    for name in COMMANDS:
        assert re.search(rf"^\W*{name} ", plain(ended.out), re.M)
    assert "vllm-watchdog serve --target http://localhost:8000" in plain(ended.out)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert " ".join(COMMANDS[name].split()) in " ".join(plain(command(capsys, name, "--help").out).split())


def test_help_loads_neither_the_settings_nor_the_pipeline() -> None:
    script = (
        "import sys; from watchdog.cli.main import app; app(['--help'], standalone_mode=False);"
        "names = ('watchdog.settings.model', 'watchdog.diagnosis.target', 'pydantic');"
        "print([name for name in names if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, name, "--help")
    assert ended.code == 0
    assert "vllm-watchdog " + name in plain(ended.out)
    assert "Example" in plain(ended.out)


@pytest.mark.parametrize("words", [["nonsense"], ["replay"], ["replay", "--format", "xml", "a.jsonl"]])
def test_wrong_usage_ends_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, *words)
    assert ended.code == 2
    assert "Usage" in plain(sentence(ended))


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"vllm-watchdog \d+\.\d+\.\d+\S*\n", command(capsys, "--version").out)


def test_a_namesake_in_the_same_environment_is_refused_with_a_way_out() -> None:
    with pytest.raises(WatchdogError, match="an environment of its own"):
        refuse_namesake(lambda _name: object())

    def missing(name: str) -> object:
        raise PackageNotFoundError(name)

    refuse_namesake(missing)


# replay


@pytest.mark.usefixtures("rules")
def test_replay_prints_one_object_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "replay", RECORDING, RECORDING, "--format", "json", "--interval", "5")
    assert (ended.code, ended.err) == (0, "")
    first, second = map(json.loads, ended.out.splitlines())
    assert first == second
    assert list(first) == ["file", "name", "scrapes", "timeline", "incidents"]
    assert (first["file"], first["name"]) == (str(RECORDING), "kv-pool-exhausted")
    assert first["scrapes"] == len(first["timeline"]) == 37
    assert {tuple(at) for at in first["timeline"]} == {("t", "verdict", "lead", "incidents", "alarming")}


@pytest.mark.usefixtures("rules")
def test_replay_tells_an_incident_with_its_times_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    story = json.loads(command(capsys, "replay", RECORDING, "--format", "json").out)
    [incident] = story["incidents"]
    told = "rule severity labels pending_at firing_at resolved_at lead_from explained_by evidence remedies"
    assert " ".join(incident) == told
    assert incident["rule"] == "kv-pool-exhausted"
    assert incident["labels"] == {"target": "kv-pool-exhausted", "model_name": "tiny", "engine": "0"}
    assert incident["pending_at"] <= incident["firing_at"] == incident["lead_from"] < incident["resolved_at"]
    assert incident["evidence"][0]["clause"] == "waiting_last > least_waiting"
    assert incident["remedies"][0]["flag"] == "--max-model-len"
    alarming = [at["t"] for at in story["timeline"] if at["alarming"]]
    # Once its condition clears it alarms nobody, though it keeps firing for a while.
    assert incident["firing_at"] == alarming[0] < alarming[-1] < incident["resolved_at"] - 5
    leads = {at["t"]: at["lead"] for at in story["timeline"]}
    assert leads[incident["firing_at"]] == "kv-pool-exhausted"
    assert leads[incident["resolved_at"]] is None


@pytest.mark.usefixtures("rules")
def test_replay_twice_gives_the_same_bytes() -> None:
    run = [sys.executable, "-m", "watchdog", "replay", str(RECORDING), "--format", "json"]
    outputs = [
        subprocess.run(run, capture_output=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    ]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stderr == b""


@pytest.mark.usefixtures("rules")
def test_replay_as_text_names_cause_reason_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    text = command(capsys, "replay", RECORDING).out
    assert re.search(r"185 scrapes over 3:04 from 2026-11-29", text)
    assert re.search(r"0:5\d to \d:\d\d +critical kv-pool-exhausted \(tiny 0\), leads from", text)
    assert "because kv_usage_last_ratio" in text
    assert "do: --max-model-len 1024: Limit the context." in text


@pytest.mark.usefixtures("rules")
def test_a_recording_that_cannot_be_read_is_told_by_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text('{"name": "broken"}\n{"t": 1, "status"\n')
    ended = command(capsys, "replay", path)
    assert ended.code == 2
    assert f"{path}:2" in sentence(ended)
    assert command(capsys, "replay", tmp_path / "none.jsonl").code == 2


@pytest.mark.usefixtures("rules")
def test_a_reader_that_leaves_ends_it_without_a_complaint() -> None:
    run = [sys.executable, "-m", "watchdog", "replay", str(RECORDING), "--format", "json"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr.read() == b""


# diagnose


@pytest.mark.parametrize(
    ("watched_seconds", "verdicts", "over"),
    [
        (28.01, [Verdict.HEALTHY], False),
        (30.01, [Verdict.HEALTHY, Verdict.DEGRADED], True),
        (30.01, [Verdict.HEALTHY, Verdict.UNSETTLED], False),
        (44.0, [Verdict.IDLE, Verdict.UNKNOWN, Verdict.RECOVERING], True),
        (59.0, [Verdict.UNSETTLED], False),
    ],
)
def test_a_look_goes_on_while_something_is_unsettled(
    watched_seconds: float, verdicts: list[Verdict], over: bool
) -> None:
    assert is_over(watched_seconds, 30.0, 2.0, verdicts) is over


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_is_proven_healthy_exits_with_nought(verdict: Verdict) -> None:
    fires = {Verdict.RECOVERING, Verdict.DEGRADED, Verdict.CRITICAL}
    expected = 0 if verdict is Verdict.HEALTHY else 1 if verdict in fires else 2
    assert exit_code([Verdict.HEALTHY, verdict]) == expected
    assert exit_code([verdict, Verdict.DEGRADED]) == 1


@pytest.mark.usefixtures("rules")
def test_one_page_of_a_calm_server_is_too_little_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.prom"
    page.write_bytes(_pages()[0])
    ended = command(capsys, "diagnose", page)
    assert (ended.code, ended.err) == (2, "")
    assert ended.out.splitlines()[0] == (
        "STARTING  page: one page is too little to judge; record half a minute "
        "(vllm-watchdog record URL -o FILE.jsonl --for 30s) and diagnose that"
    )
    assert ended.out.count("one page is too little") == 1


def _page(tmp_path: Path, running: float, waiting: float, kv_usage: float) -> Path:
    """A page of a real server with these gauges."""
    body = _pages()[0]
    gauges = {
        "num_requests_running": running,
        "num_requests_waiting": waiting,
        "kv_cache_usage_perc": kv_usage,
    }
    for name, value in gauges.items():
        body = re.sub(rf"({name}\{{.*\}}) .*".encode(), rb"\1 " + str(value).encode(), body)
    page = tmp_path / "page.prom"
    page.write_bytes(body)
    return page


def test_a_queue_before_a_free_pool_is_said_to_have_several_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "diagnose", _page(tmp_path, 4, 12, 0.01), "--format", "json")
    [target] = json.loads(ended.out)["targets"]
    several = "1% full: a limit on sequences, a limit on tokens a step, or compute; unclear from one"
    assert any(several in hint for hint in target["hints"])


def test_what_one_page_cannot_tell_apart_follows_from_the_rules_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = _page(tmp_path, 4, 12, 0.8)
    told = " ".join(command(capsys, "diagnose", page).out.split())
    assert "80% full: the KV cache, a limit on sequences, a limit on tokens a step, or compute" in told
    settings = tmp_path / "settings.yaml"
    overrides = {"kv-pool-exhausted": {"parameters": {"least_peak_ratio": 0.85}}}
    settings.write_text(json.dumps({"rules": {"overrides": overrides}}))
    told = " ".join(command(capsys, "diagnose", page, "--config", settings).out.split())
    assert "80% full: a limit on sequences, a limit on tokens a step, or compute" in told
    # Nothing but the pool is left.
    assert "12 requests wait" not in command(capsys, "diagnose", _page(tmp_path, 4, 12, 0.98)).out


@pytest.mark.usefixtures("rules")
def test_of_several_engines_it_is_said_where_the_queue_is(capsys: pytest.CaptureFixture[str]) -> None:
    page = SAMPLES / "0.33.0-v1-dp2-spec-lora-kvm.prom"
    told = " ".join(command(capsys, "diagnose", page).out.split())
    assert "3 requests wait on engine 0 while" in told
    assert "3 requests wait on engine 1 while" in told


@pytest.mark.usefixtures("rules")
def test_a_recording_is_judged_as_of_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calm, sick = tmp_path / "calm.jsonl.xz", tmp_path / "sick.jsonl.xz"
    lines = lzma.decompress(RECORDING.read_bytes()).splitlines(keepends=True)
    calm.write_bytes(lzma.compress(b"".join(lines[:40])))
    sick.write_bytes(lzma.compress(b"".join(lines[:120])))
    assert command(capsys, "diagnose", calm).code == 0
    ended = command(capsys, "diagnose", sick)
    assert ended.code == 1
    assert ended.out.startswith("CRITICAL")
    # What fires outweighs what is well.
    assert command(capsys, "diagnose", calm, sick).code == 1


@pytest.mark.usefixtures("rules")
def test_a_live_server_is_watched_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    recording, scrapes = read(RECORDING)
    with ReplayServer(list(scrapes), begin_seconds=100) as server:
        ended = command(
            capsys, "diagnose", server.url, "--for", "1s", "--interval", "200ms", "--format", "json"
        )
    body = json.loads(ended.out)
    assert (ended.code, ended.err) == (1, "")
    assert body["verdict"] == "critical"
    assert body["targets"][0]["lead"] == "kv-pool-exhausted"
    assert body["targets"][0]["vllm"]["version"] == recording.meta["vllm_version"]


@pytest.mark.usefixtures("rules")
def test_a_server_that_does_not_answer_cannot_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "diagnose", "http://127.0.0.1:9", "--for", "0s")
    assert ended.code == 2
    assert "refused" in ended.out


@pytest.mark.usefixtures("rules")
def test_a_page_without_vllm_is_told_from_one_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "node.prom"
    page.write_text("# TYPE node_load1 gauge\nnode_load1 3\n")
    ended = command(capsys, "diagnose", str(page))
    assert ended.code == 2
    assert ended.out.splitlines()[0] == (
        "UNKNOWN  node: it answers, but has no vLLM metrics: still loading, or wrong port or path"
    )


@pytest.mark.usefixtures("rules")
def test_a_word_that_is_neither_a_file_nor_a_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "diagnose", "incident")
    assert (ended.code, ended.out) == (2, "")
    assert "'incident' is neither a file here nor a URL such as http://localhost:8000" in sentence(ended)


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("words", [[], ["ftp://host"], ["http://h", "--for", "soon"]])
def test_what_cannot_be_diagnosed_is_told_in_a_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "diagnose", *words)
    assert ended.code == 2
    assert sentence(ended)


# record


@pytest.mark.usefixtures("rules")
def test_what_is_recorded_is_what_was_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, scrapes = read(RECORDING)
    pages = list(scrapes)
    path = tmp_path / "new.jsonl.gz"
    with ReplayServer(pages, begin_seconds=100) as server:
        ended = command(capsys, "record", server.url, "-o", path, "--for", "0.4s", "--interval", "0.1")
    assert (ended.code, ended.out) == (0, "")
    recording, again = read(path)
    recorded = list(again)
    assert 2 <= len(recorded) <= 5  # a busy machine may skip one, never add one
    assert {scrape.body for scrape in recorded} <= {scrape.body for scrape in pages}
    assert (recording.interval_seconds, recorded[0].server_info.version) == (
        0.1,
        pages[0].server_info.version,
    )
    # A late scrape does not delay those after it, so single gaps may be short.
    assert all(after.at > before.at for before, after in pairwise(recorded))
    assert recorded[-1].at - recorded[0].at > 0.09 * (len(recorded) - 1) - 0.1
    assert command(capsys, "replay", path).code == 0


@pytest.mark.usefixtures("rules")
def test_a_recording_of_failures_only_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "down.jsonl"
    ended = command(capsys, "record", "http://127.0.0.1:9", "-o", path, "--for", "0s")
    assert ended.code == 1
    assert "1 scrapes" in ended.err
    _, scrapes = read(path)
    assert [scrape.status for scrape in scrapes] == [0]
    replayed = command(capsys, "replay", path)
    assert (replayed.code, "it has no successful scrape" in replayed.err) == (2, True)


@pytest.mark.usefixtures("rules")
def test_a_file_is_not_replaced_unless_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "incident.jsonl"
    path.write_text("the only one")
    words = ("record", "http://127.0.0.1:9", "-o", path, "--for", "0s")
    ended = command(capsys, *words)
    assert (ended.code, path.read_text()) == (2, "the only one")
    assert "exists already" in sentence(ended)
    assert command(capsys, *words, "--force").code == 1
    assert path.read_text() != "the only one"


# rules


@pytest.mark.usefixtures("rules")
def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "rules", "list").out == ("kv-pool-exhausted  critical  The KV cache is full\n")
    [listed] = json.loads(command(capsys, "rules", "list", "--format", "json").out)
    assert listed["id"] == "kv-pool-exhausted"


@pytest.mark.usefixtures("rules")
def test_a_rule_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    text = command(capsys, "rules", "show", "kv-pool-exhausted").out
    for part in ("waiting_last > least_waiting", "`least_waiting` | 0 requests", "--max-model-len", "10 s"):
        assert part in text


@pytest.mark.usefixtures("rules")
def test_an_unknown_rule_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "rules", "show", "kv-pool-exausted")
    assert ended.code == 2
    assert "kv-pool-exhausted" in sentence(ended)


def test_the_tests_of_a_folder_of_rules_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    only_rules_of(mine, monkeypatch)
    write_rule(mine, "my-rule")
    ended = command(capsys, "rules", "test", mine)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "3 of 3 tests pass")
    write_rule(mine, "my-rule", **{"value: 0.5": "value: 0.95"})
    ended = command(capsys, "rules", "test", mine)
    assert ended.code == 1
    assert "FAIL  my-rule: full" in ended.out
    assert "1 of 3 tests pass" in ended.out


def test_a_folder_of_rules_is_checked_as_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    only_rules_of(mine, monkeypatch)
    write_rule(mine, "my-rule")
    assert command(capsys, "rules", "check", mine).out == "1 rule is valid\n"
    path = write_rule(mine, "my-rule", **{"waiting_last > least": "waitin_last > least"})
    ended = command(capsys, "rules", "check", mine)
    assert ended.code == 1
    assert f"{path}:" in sentence(ended)
    assert "waiting_last" in ended.err


def test_a_check_finds_what_the_service_would_bear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    only_rules_of(mine, monkeypatch)
    path = write_rule(mine, "my-rule", **{"flag: --max-model-len": "flag: --max-modell-len"})
    share = 'action: "Give it more.", flag: --gpu-memory-utilization, value: "0.99", why: "a", price: "b"'
    path.write_text(
        path.read_text()
        .replace("tests:", f"  - {{{share}}}\ntests:")
        .replace("expect: fires", "expect: fires, not_offered: [--kv-cache-dtyp]")
    )
    assert command(capsys, "rules", "list").code == 0
    ended = command(capsys, "rules", "check", mine)
    assert ended.code == 1
    told = [line for line in sentence(ended).splitlines() if not line.startswith(" ")]
    assert [line.partition(f"{path}:")[2] for line in told] == [
        "15:37: --gpu-memory-utilization never goes over 0.95",
        "14:42: no flag of vLLM is named `--max-modell-len` (did you mean `--max-model-len`?)",
        "17:103: no flag of vLLM is named `--kv-cache-dtyp` (did you mean `--kv-cache-dtype`?)",
    ]


def test_the_schema_of_a_rule_file_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ended = command(capsys, "rules", "schema")
    assert ended.code == 0
    assert json.loads(ended.out)["title"] == "A rule of vllm-watchdog"


def test_recordings_are_scored_in_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rules"
    write_rule(folder, for_="5s")
    only_rules_of(folder, monkeypatch)
    ended = command(capsys, "rules", "score", RECORDING)
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"kv-pool-exhausted +named after \d+ s, held 100%", ended.out)
    assert re.search(r"healthy +quiet", ended.out)
    assert re.search(r"recovery +not judged", ended.out)
    assert re.search(r"causes named +1 of 1", ended.out)
    lines = command(capsys, "rules", "score", RECORDING, "--format", "json").out.splitlines()
    assert json.loads(lines[-1])["totals"]["named"] == 1


@pytest.mark.parametrize("interval", ["1m", "0", "10ms", "soon"])
def test_an_interval_that_no_scrape_keeps_is_refused(
    interval: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, "diagnose", "http://127.0.0.1:1", "--interval", interval)
    assert ended.code == 2
    assert "--interval" in ended.err


def test_a_label_that_no_rule_knows_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rules"
    write_rule(folder, "another-cause")
    only_rules_of(folder, monkeypatch)
    ended = command(capsys, "rules", "score", RECORDING)
    assert re.search(r"kv-pool-exhausted +no such rule", ended.out)
    assert "labels that no rule knows: 1" in ended.out


# config


def test_the_effective_settings_are_printed_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "watchdog.yaml"
    path.write_text("targets: ['http://user:s3cret@gpu-1:8000/metrics?token=s3cret']\nweb: {port: 1234}\n")
    monkeypatch.setenv("WATCHDOG_WEB__PORT", "4321")
    ended = command(capsys, "config", "--config", path)
    assert ended.code == 0
    assert "port: 4321" in ended.out
    assert "gpu-1:8000" in ended.out
    assert "s3cret" not in ended.out + ended.err
    assert (
        json.loads(command(capsys, "config", "--config", path, "--format", "json").out)["web"]["port"] == 4321
    )


def test_every_fault_of_the_settings_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "watchdog.yaml"
    path.write_text("targest: []\nweb: {port: many}\n")
    ended = command(capsys, "config", "--config", path)
    assert ended.code == 2
    assert "targets" in sentence(ended)
    assert "web.port" in ended.err
    lines = ended.err.splitlines()
    assert all(line.startswith(("vllm-watchdog: ", "  1 | targest: []", "    | ")) for line in lines[:3])
    assert lines[4:] == ["  2 | web: {port: ***}", "    |             ^^^"]


def _pages() -> list[bytes]:
    _, scrapes = read(RECORDING)
    return [next(scrapes).body]


# What people get wrong


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("diagnos", "http://a"), "'diagnos': did you mean `diagnose`?"),
        (("http://a",), "did you mean `diagnose http://a`?"),
        (("nothing-like-it",), "there are serve, diagnose, top"),
        (("diagnose", "http://a", "--format", "xml"), "'--format': 'xml' is neither text nor json"),
        (("diagnose", "http://a", "--for", "soon"), "'--for': 'soon' must be a duration such as 5s"),
        (("record", "http://a", "-o", "a.jsonl", "--for", "soon"), "'--for': 'soon' must be a duration"),
    ],
)
def test_a_typo_on_the_command_line_is_told_with_what_was_meant(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = command(capsys, *words)
    assert ended.code == 2
    assert told in " ".join(plain(sentence(ended)).replace("│", " ").split())


def test_help_breaks_its_lines_where_the_terminal_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "then it recovers, and begins again." in plain(command(capsys, "demo", "--help").out)
    assert "one of healthy, idle, healthy-busy" in plain(command(capsys, "rules", "score", "--help").out)


def test_an_excerpt_of_a_file_stands_below_its_fault_as_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only_rules_of(tmp_path / "mine", monkeypatch)
    write_rule(tmp_path / "mine", "my-rule", **{"severity: critical": "severity: bad"})
    lines = command(capsys, "rules", "check", tmp_path / "mine").err.splitlines()
    assert [line.startswith("vllm-watchdog: ") for line in lines] == [True, False, False]
    assert lines[1:] == ["  4 | severity: bad", "    |           ^^^"]


def test_a_rule_without_its_three_kinds_of_test_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    only_rules_of(mine, monkeypatch)
    path = write_rule(mine, "my-rule")
    path.write_text(path.read_text().partition("tests:")[0])
    ended = command(capsys, "rules", "test", mine)
    assert (ended.code, ended.out) == (1, "0 of 0 tests pass\n")
    assert "`my-rule` has no test that expects fires, nor silent, nor unknown" in ended.err
    monkeypatch.setenv("WATCHDOG_RULES__ALLOW_UNTESTED", "true")
    assert command(capsys, "rules", "test", mine).code == 0


def test_config_checks_overrides_against_the_rules_where_these_are_at_hand(
    rules: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "watchdog.yaml"
    path.write_text("rules: {overrides: {kv-pool-exhaustd: {enabled: false}}}\n")
    ended = command(capsys, "config", "--config", path)
    assert ended.code == 2
    assert "there is no such rule (did you mean `kv-pool-exhausted`?)" in sentence(ended)
    for file in rules.iterdir():
        file.unlink()
    rules.rmdir()
    ended = command(capsys, "config", "--config", path)
    assert ended.code == 0
    assert f"note: rules.directories: {rules} is not here" in ended.err
