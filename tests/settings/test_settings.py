"""Settings: which layer wins, what is refused and where, and that no secret is ever shown."""

import json
import platform
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.places import DOCS
from watchdog.errors import ConfigError
from watchdog.http.url import redact_url, split_user_info
from watchdog.model import Severity
from watchdog.settings.model import Settings, load, redacted
from watchdog.settings.page import page
from watchdog.settings.target import TargetSettings
from watchdog.settings.values import parse_vllm_args

PAGE = DOCS / "settings.md"


def write(directory: Path, text: str) -> Path:
    path = directory / "watchdog.yaml"
    path.write_text(text)
    return path


def faults(directory: Path, text: str, environment: Mapping[str, str] = {}) -> tuple[str, ...]:
    """The faults of a file, each without the file's folder."""
    with pytest.raises(ConfigError) as raised:
        load(write(directory, text), environment=environment)
    return tuple(fault.replace(f"{directory}/", "") for fault in raised.value.faults)


def test_without_anything_the_defaults_hold() -> None:
    made = load()
    assert (made.scrape.interval_seconds, made.scrape.deadline_seconds) == (5, 4)
    assert (made.web.host, made.web.port, made.web.reload_endpoint) == ("127.0.0.1", 9847, False)
    assert made.targets == []
    assert made.warnings == ()


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    path = write(tmp_path, "web: {port: 1, host: 10.0.0.1, limit_concurrency: 7}\nlog: {level: debug}\n")
    environment = {"WATCHDOG_WEB__PORT": "2", "WATCHDOG_WEB__HOST": "127.0.0.2"}
    made = load(path, {"web.port": 3, "web": {"reload_endpoint": True}, "log.level": None}, environment)
    assert (made.web.port, made.web.host, made.web.limit_concurrency) == (3, "127.0.0.2", 7)
    assert (made.web.reload_endpoint, made.log.level, made.log.format) == (True, "debug", "logfmt")


def test_the_environment_may_name_the_file_and_the_command_line_another(tmp_path: Path) -> None:
    path = write(tmp_path, "web: {port: 1}")
    other = tmp_path / "other.yaml"
    other.write_text("web: {port: 2}")
    assert load(environment={"WATCHDOG_CONFIG": str(path)}).web.port == 1
    assert load(other, environment={"WATCHDOG_CONFIG": str(path)}).web.port == 2


def test_a_prometheus_is_named_by_its_address_and_looks_within_its_interval() -> None:
    environment = {"WATCHDOG_PROMETHEUS": "http://me:secret@prometheus:9090"}
    [source] = load(environment=environment).prometheus
    assert (source.name, source.interval_seconds, source.deadline_seconds) == ("prometheus:9090", 15, 12)
    assert (source.username, "secret" in repr(source)) == ("me", False)
    [faster] = load(None, {"prometheus": [{"url": "p:9090", "interval_seconds": 5}]}).prometheus
    assert (faster.url, faster.deadline_seconds) == ("http://p:9090", 4)


def test_every_fault_of_a_prometheus_is_told_at_once(tmp_path: Path) -> None:
    text = (
        "prometheus:\n"
        "  - {url: p:9090, interval_seconds: 0.5}\n"
        "  - {url: p:9090, deadline_seconds: 20}\n"
        "  - {url: q:9090, replica_labels: [a-b], tenent: x}\n"
        "  - {match: 'job=\"vllm\"'}\n"
    )
    told = "\n".join(faults(tmp_path, text))
    for words in (
        "prometheus[0].interval_seconds",
        "deadline_seconds must be less than interval_seconds",
        "prometheus[2].replica_labels[0]",
        "did you mean `tenant`",
        "prometheus[3].url",
    ):
        assert words in told


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    [fault] = faults(tmp_path, "prometheus: [p:9090, {url: p:9090, match: job='a'}]\n")
    assert "entries 1 and 2 have the same name, p:9090" in fault


def test_constructing_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_WEB__PORT", "1")
    assert Settings().web.port == 9847


def test_every_fault_is_told_at_once_with_its_place_and_the_nearest_key(tmp_path: Path) -> None:
    text = (
        "targets:\n"
        "  - url: ftp://a\n"
        "    nmae: x\n"
        "  - name: no-url\n"
        "web:\n"
        "  prot: 1\n"
        "  port: 70000\n"
        "scrape: {interval_seconds: 2, deadline_seconds: 2}\n"
        "rules:\n"
        "  overrides:\n"
        "    ttft-high: {for: soon}\n"
        "sttate: {}\n"
    )
    environment = {"WATCHDOG_LOG__LEVEL": "loud", "WATCHDOG_WEBHOOKS": "[{"}
    assert faults(tmp_path, text, environment=environment) == (
        "WATCHDOG_WEBHOOKS: must be JSON, or plain items with commas between them",
        "WATCHDOG_LOG__LEVEL: log.level: must be 'debug', 'info', 'warning' or 'error'",
        """\
watchdog.yaml:2:10: targets[0].url: must start with http:// or https://
  2 |   - url: ***
    |          ^^^""",
        """\
watchdog.yaml:3:5: targets[0].nmae: no such setting (did you mean `name`?)
  3 |     nmae: ***
    |     ^^^^""",
        """\
watchdog.yaml:4:5: targets[1].url: must be given
  4 |   - name: ***
    |     ^^^^""",
        """\
watchdog.yaml:6:3: web.prot: no such setting (did you mean `port`?)
  6 |   prot: ***
    |   ^^^^""",
        """\
watchdog.yaml:7:9: web.port: must be less than or equal to 65535
  7 |   port: 70000
    |         ^^^^^""",
        """\
watchdog.yaml:8:9: scrape: deadline_seconds must be less than interval_seconds
  8 | scrape: {interval_seconds: 2, deadline_seconds: 2}
    |         ^""",
        """\
watchdog.yaml:11:22: rules.overrides.ttft-high.for: must be a duration such as 5s, 1m30s or 2h
  11 |     ttft-high: {for: ***}
     |                      ^^^""",
        """\
watchdog.yaml:12:1: sttate: no such setting (did you mean `state`?)
  12 | sttate: {}
     | ^^^^^^""",
    )


def test_a_misspelt_choice_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "log: {level: warnin}\n")
    assert "must be 'debug', 'info', 'warning' or 'error' (did you mean `warning`?)" in fault
    (fault,) = faults(tmp_path, "", environment={"WATCHDOG_LOG__FORMAT": "jsn"})
    assert fault.endswith("log.format: must be 'logfmt' or 'json' (did you mean `json`?)")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("web: {prot: S3CRET, port: 70000}  # S3CRET", "web: {prot: ***, port: 70000}"),
        ("web: {port: S3CRET}", "web: {port: ***}"),
        ("targets: [{url: 'http://u:S3CRET@h', nmae: \"S3CRET\"}]", "targets: [{url: ***, nmae: ***}]"),
        ("web: {host: S3CRET, port: yes}", "web: {host: ***, port: yes}"),
        ("webhooks: ['http://u:S3CRET@h:x']", "webhooks: [***]"),
        ("web: {port: 1, port: S3CRET}", "web: ***"),
        ("web: {password: 'S3CRET", "web: ***"),
        ("- S3CRET: 'S3CRET", "- S3CRET: ***"),
    ],
)
def test_an_excerpt_shows_keys_and_numbers_and_no_other_value(tmp_path: Path, line: str, shown: str) -> None:
    excerpts = [fault.splitlines() for fault in faults(tmp_path, f"log: {{}}\n{line}\n")]
    assert all("S3CRET" not in row or row.endswith("- S3CRET: ***") for rows in excerpts for row in rows)
    assert any(f"  2 | {shown}" in rows for rows in excerpts) or line.endswith("'S3CRET")


def test_a_text_of_several_lines_is_not_shown(tmp_path: Path) -> None:
    text = "web:\n  host: >\n    S3CRET\n    S3CRET\n  prt: 5\ntargets:\n  - url: 'http://\n      S3CRET'\n"
    found = faults(tmp_path, text)
    assert [fault.split(": ")[1] for fault in found][:2] == ["web.host", "web.prt"]
    assert "S3CRET" not in "".join(found)


def test_a_control_character_is_refused_from_wherever_it_comes(tmp_path: Path) -> None:
    assert faults(tmp_path, 'web: {host: "a\\e[1m"}\n')[0].startswith(
        "watchdog.yaml:1:13: the character U+001B is not allowed (an escape in quotes writes it)"
    )
    with pytest.raises(ConfigError) as raised:
        load(
            None,
            {"targets": [{"url": "http://h", "vllm_args": "--model a\x1b[31m"}]},
            {
                "WATCHDOG_STATE__DIRECTORY": "/state\udcff",
                "WATCHDOG_RECEIVER__LABEL_TO_TARGET": '{"\\u0007": "a"}',
            },
        )
    assert raised.value.faults == (
        "command line: targets[0].vllm_args: must not contain control characters",
        "WATCHDOG_RECEIVER__LABEL_TO_TARGET: receiver.label_to_target.\\x07: must not contain control characters",
        "WATCHDOG_STATE__DIRECTORY: state.directory: must not contain control characters",
    )


def test_a_fault_names_the_layer_that_gave_the_value(tmp_path: Path) -> None:
    path = write(tmp_path, "web: {port: 1}\ntargets: [http://a]\n")
    with pytest.raises(ConfigError) as raised:
        load(path, {"targets": ["http://b", "nonsense://c"]}, {"WATCHDOG_WEB__PORT": "x"})
    assert sorted(fault.split(": ")[:2] for fault in raised.value.faults) == [
        ["WATCHDOG_WEB__PORT", "web.port"],
        ["command line", "targets[1].url"],
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("web: {port: 1\n", "watchdog.yaml:2:1: not YAML: "),
        ("web:\n\tport: 1\n", "watchdog.yaml:2:1: not YAML: found character "),
        ("web: {}\nlog: {}\nweb: {}\n", "watchdog.yaml:3:1: the key `web` is here twice (first on line 1)"),
        ("a: *x\n", "watchdog.yaml:1:4: the alias *x is not allowed (write it out)"),
        (
            "web: !!python/object:os.system {}\n",
            "watchdog.yaml:1:6: the tag tag:yaml.org,2002:python/object:os.system is not allowed",
        ),
        ("[1]: 2\n", "watchdog.yaml:1:1: a key must be a plain word"),
        ("- 1\n", "watchdog.yaml:1:1: a settings file is one mapping (such as `targets:`)"),
        ("web: {}\n---\nweb: {}\n", "watchdog.yaml:3:1: a settings file is one mapping"),
        ("log: {level: \x07}\n", "watchdog.yaml:1:14: the character U+0007 is not allowed"),
        ("x: " + "[" * 60 + "]" * 60, "watchdog.yaml:1:54: not YAML: nested deeper than 50"),
        ("# " + "x" * 1_100_000, "watchdog.yaml: larger than 1024 KiB"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_yaml_is_strict_and_faults_have_a_place(tmp_path: Path, text: str, fault: str) -> None:
    found = faults(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith(fault)


def test_plain_words_keep_one_meaning(tmp_path: Path) -> None:
    made = load(
        write(tmp_path, "web: {port: 012}\nstate: {retention_days: 1e1}\nscrape:\nrules: {shipped: false}\n")
    )
    assert (made.web.port, made.state.retention_days, made.rules.shipped) == (12, 10.0, False)
    (fault,) = faults(tmp_path, "web: {port: true}\n")
    assert fault.startswith("watchdog.yaml:1:13: web.port: must be a number, not yes or no\n")
    assert "a whole number" in faults(tmp_path, "web: {port: 1:30}\n")[0]
    assert "finite" in faults(tmp_path, "state: {retention_days: 1e999}\n")[0]


def test_a_file_that_cannot_be_read_is_a_fault_like_others(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"WATCHDOG_WEB__HOST_FILE: .*\n.*nowhere\.yaml: cannot be read: No such file or directory",
    ):
        load(tmp_path / "nowhere.yaml", environment={"WATCHDOG_WEB__HOST_FILE": str(tmp_path / "no")})
    (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2:4: not UTF-8 text"):
        load(tmp_path / "latin.yaml")


def test_lists_and_mappings_in_the_environment(tmp_path: Path) -> None:
    secret = tmp_path / "hook"
    secret.write_text("https://hooks.example/T0/s3cr3t\n")
    made = load(
        environment={
            "WATCHDOG_TARGETS": "http://a:8000, b:8001",
            "WATCHDOG_ALERTMANAGER__URLS": '[{"url": "http://am:9093", "bearer_token_file": "/token"}]',
            "WATCHDOG_ALERTMANAGER__EXTERNAL_LABELS": "cluster=eu,team=llm",
            "WATCHDOG_RECEIVER__LABEL_TO_TARGET__NODE": "node",
            "WATCHDOG_RECEIVER__FORWARD_URL_FILE": str(secret),
            "WATCHDOG_RULES__DIRECTORIES": "/a,/b",
        }
    )
    assert [target.name for target in made.targets] == ["a:8000", "b:8001"]
    assert made.alertmanager.urls[0].bearer_token_file == Path("/token")
    assert made.alertmanager.external_labels == {"cluster": "eu", "team": "llm"}
    assert made.receiver.label_to_target == {"node": "node"}
    assert made.receiver.forward_url == "https://hooks.example/T0/s3cr3t"
    assert made.rules.directories == [Path("/a"), Path("/b")]


def test_a_target_is_a_url_a_host_or_a_mapping() -> None:
    made = load(overrides={"targets": ["h:8000", "https://h2", {"name": "x", "url": "http://h3:1/m?a=1"}]})
    assert [(each.name, each.url) for each in made.targets] == [
        ("h:8000", "http://h:8000/metrics"),
        ("h2", "https://h2/metrics"),
        ("x", "http://h3:1/m?a=1"),
    ]


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "http://",
            "http://:80/",
            "http://a:99999/",
            "http://a:0",
            "http://a b/",
            "http://a\\b/",
            "http://[::1/",
        ),
        *(
            "http://[zz]/",
            "http://a/#x",
            "http://a:x/",
            "http://\x00/",
            "http://a:/m",
            "http://%20/",
            "file:///x",
        ),
        "http://" + "a" * 3000,
    ],
    ids=ascii,
)
def test_a_url_that_is_none_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(overrides={"targets": [{"url": url, "name": "x"}]})
    assert [fault.startswith("command line: targets[0].url: must") for fault in raised.value.faults] == [True]


@pytest.mark.parametrize("name", ["", "*", "a/b", " a", "a\n", "\x1b[31m", "x" * 129])
def test_a_name_that_would_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"targets\[0\]\.name"):
        load(overrides={"targets": [{"url": "http://h", "name": name}]})


def test_two_targets_may_share_neither_name_nor_page() -> None:
    with pytest.raises(ConfigError, match=r"entries 1 and 3 have the same name, a:1"):
        load(overrides={"targets": ["a:1", "b:1", {"name": "a:1", "url": "http://c"}]})
    with pytest.raises(ConfigError, match=r"entries 1 and 2 have the same url, http://A/metrics"):
        load(overrides={"targets": ["http://a:80", {"name": "other", "url": "http://A/metrics"}]})


def test_user_info_is_moved_out_of_a_url_and_never_shown() -> None:
    made = load(overrides={"targets": ["http://me:p%40ss@h:8000/metrics?key=tok3n", "you:h1dden@h2:8000"]})
    target, endpoint = made.target_list()[0]
    assert (endpoint.url, endpoint.username) == ("http://h:8000/metrics?key=tok3n", "me")
    assert endpoint.password == "p@ss"
    assert (target.name, target.url) == ("h:8000", "http://h:8000/metrics?key=***")
    shown = f"{made!r} {made} {made.target_list()} {json.dumps(redacted(made))} {made.warnings}"
    assert not any(secret in shown for secret in ("p@ss", "p%40ss", "tok3n", "h1dden"))


def test_no_output_of_settings_holds_a_secret(tmp_path: Path) -> None:
    text = """
targets:
  - url: http://u:S3CRET1@h/metrics?token=S3CRET2
    vllm_args: [--api-key, S3CRET3, --hf-token=S3CRET4, --max-num-batched-tokens, 2048]
alertmanager: {urls: ["http://u:S3CRET5@am:9093"]}
webhooks: [{url: "https://hooks.example/services/S3CRET6?x=S3CRET7"}]
receiver: {forward_url: "https://u:S3CRET8@f.example/S3CRET9"}
"""
    made = load(write(tmp_path, text))
    assert "S3CRET" not in f"{made!r}{made.target_list()}{json.dumps(redacted(made))}{made.warnings}"
    assert made.targets[0].vllm_args["--max-num-batched-tokens"] == "2048"
    broken = (
        text.replace("http://u:S3CRET1@h/metrics", "http://u:S3CRET1@h:99999/metrics") + "webb: S3CRET0\n"
    )
    assert "S3CRET" not in "".join(faults(tmp_path, broken))


def test_credentials_must_make_sense() -> None:
    found = []
    for entry in (
        {"password_file": "/p"},
        {"url": "http://u:p@h", "password_file": "/p"},
        {"username": "u", "bearer_token_file": "/t"},
        {"key_file": "/k"},
    ):
        with pytest.raises(ConfigError) as raised:
            load(overrides={"targets": [{"url": "http://h", **entry}]})
        found.append(str(raised.value).rpartition(": ")[2] or str(raised.value))
    assert found == [
        "a password needs a username",
        "either password_file, or password (also in the URL)",
        "give either bearer_token_file or a username, not both",
        "key_file needs cert_file",
    ]


def test_what_a_person_should_know_is_a_warning() -> None:
    environment = {
        "WATCHDOG_WEB__PROT": "1",
        "WATCHDOG_SERVICE_HOST": "10.0.0.1",
        "WATCHDOG_PORT_9847_TCP_ADDR": "10.0.0.1",
        "WATCHDOG_PORT": "tcp://10.0.0.1:9847",
        "OTHER": "x",
    }
    made = load(
        overrides={
            "web.host": "0.0.0.0",
            "targets": [{"url": "https://u:pw@h", "insecure_skip_verify": True}],
        },
        environment=environment,
    )
    variable, open_door, unverified = made.warnings
    assert variable == "WATCHDOG_WEB__PROT: no such setting, ignored (did you mean `WATCHDOG_WEB__PORT`?)"
    assert open_door.startswith(
        "web.host is 0.0.0.0 and there is no authentication: anyone who reaches port 9847"
    )
    assert unverified == "insecure_skip_verify: whoever answers for https://h/metrics is believed"
    assert load(overrides={"web.host": "0.0.0.0", "web.bearer_token_file": "/t"}).warnings == ()


@pytest.mark.parametrize(
    ("given_value", "flags"),
    [
        ("vllm serve org/model --max-num-seqs=256 --no-x", {"--max-num-seqs": "256", "--no-x": ""}),
        (
            ["--dtype", "fp8", "-tp", "2", "--max_model_len", 8192],
            {"--dtype": "fp8", "-tp": "2", "--max-model-len": "8192"},
        ),
        ("--a '1 2' --b -1", {"--a": "1 2", "--b": "-1"}),
        (
            {"max_num_seqs": 5, "--eager": None, "x": True},
            {"--max-num-seqs": "5", "--eager": "", "--x": "true"},
        ),
        ("", {}),
    ],
)
def test_launch_flags_are_read_as_the_server_reads_them(given_value: object, flags: dict[str, str]) -> None:
    assert parse_vllm_args(given_value) == flags


def test_launch_flags_that_do_not_close_are_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"targets\[0\].vllm_args: no closing quotation"):
        load(overrides={"targets": [{"url": "http://h", "vllm_args": "--a 'b"}]})


def test_the_deadline_follows_the_interval() -> None:
    assert Settings.model_validate({"scrape": {"interval_seconds": 1}}).scrape.deadline_seconds == 0.8
    assert Settings.model_validate({"scrape": {"interval_seconds": 20}}).scrape.deadline_seconds == 4
    with pytest.raises(ValidationError):  # windows are 30 s: a wider pause leaves nothing to judge
        Settings.model_validate({"scrape": {"interval_seconds": 21}})
    made = load(overrides={"targets": [{"url": "http://a", "interval_seconds": 2}, "http://b"]})
    assert [made.deadline_seconds(name) for name in ("a", "b")] == [1.6, 4]
    assert [made.interval_seconds(name) for name in ("a", "b")] == [2, 5]


def test_a_rule_is_changed_by_its_id(tmp_path: Path) -> None:
    text = "rules: {overrides: {ttft-high: {for: 1m30s, keep_firing_for: 0, severity: info, parameters: {floor: 2}}}}"
    override = load(write(tmp_path, text)).rules.overrides["ttft-high"]
    assert (override.for_seconds, override.keep_firing_seconds) == (90, 0)
    assert (override.severity, override.parameters, override.enabled) == (Severity.INFO, {"floor": 2.0}, True)


def test_a_target_carries_what_the_owner_told_of_it() -> None:
    target = TargetSettings.model_validate(
        {
            "url": "http://h",
            "slo": {"ttft_p95_seconds": 2},
            "model": {"layers": 32, "kv_heads": 8, "head_dimension": 128},
            "vllm_args": "--max-num-seqs 64",
            "gpu": "H100",
        }
    ).target()
    told = target.expectations
    assert (told.objectives.ttft_p95_seconds, told.shape.layers, told.gpu) == (2, 32, "H100")
    assert told.vllm_args == {"--max-num-seqs": "64"}


def test_labels_of_a_target_are_the_owners_own() -> None:
    one = Settings(targets=[{"url": "gpu:8000", "labels": {"team": "search"}}])  # type: ignore[list-item]
    assert one.targets[0].target().labels == {"team": "search"}
    assert one.target_labels == {"gpu:8000": {"team": "search"}}
    with pytest.raises(ValidationError, match="rule, target: alerts have labels of this name already"):
        Settings(targets=[{"url": "gpu:8000", "labels": {"target": "a", "rule": "b"}}])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("https://grafana/d/x?var-target={server}", "{server} stands for nothing"),
        ("/d/x?var-target={target}", "must start with http"),
        ("https://me:secret@grafana/d/x", "must have no user info"),
    ],
)
def test_a_dashboard_is_a_link_with_places_that_are_known(template: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Settings(web={"dashboard_url": template})  # type: ignore[arg-type]


def test_the_page_of_settings_is_in_step() -> None:
    """Made anew by `python -m watchdog.settings.page > docs/settings.md`."""
    assert PAGE.read_text() == page()


@pytest.mark.slow
@given(
    st.text(max_size=60).map(str.encode)
    | st.from_regex(r"(targets|web|log): ?[\[{\n].{0,40}", fullmatch=True).map(str.encode)
    | st.binary(max_size=60)
)
@settings(max_examples=200, deadline=None)
def test_any_file_is_settings_or_faults_at_their_places(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    faults: tuple[str, ...] | None = None
    try:
        load(path)
    except ConfigError as error:
        faults = error.faults
    assert faults is None or (faults and all(fault.startswith(f"{path}:") for fault in faults))


@pytest.mark.slow
@given(st.text(max_size=40).map(lambda text: f"http://{text}") | st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_as_a_url_is_taken_or_refused_and_never_raises(url: str) -> None:
    assert redact_url(url).isprintable()
    assert len(split_user_info(url)) == 3
    try:
        made = load(overrides={"targets": [{"url": url, "name": "x"}]})
    except ConfigError:
        return
    assert "@" not in made.targets[0].url.split("/")[2]


def test_a_server_at_a_loopback_address_is_told_from_that_of_another_machine() -> None:
    targets = [
        {"name": "here", "url": "http://127.0.0.1:8000"},
        {"name": "too", "url": "localhost:8001"},
        {"name": "v6", "url": "http://[::1]:8002"},
        {"name": "there", "url": "http://vllm-0.example.com:8000"},
    ]
    made = load(overrides={"targets": targets})
    assert made.instance == platform.node()
    assert made.instance_targets == {"here", "too", "v6"}
    named = load(overrides={"targets": targets, "alertmanager.instance": "gpu-7"})
    assert named.instance == "gpu-7"
    assert named.instance_targets == {"here", "too", "v6", "there"}


@pytest.mark.parametrize(
    ("url", "alertmanager", "warns"),
    [
        ("http://127.0.0.1:8000", {}, False),
        ("http://127.0.0.1:8000", {"instance": ""}, True),
        ("http://127.0.0.1:8000", {"instance": "localhost"}, True),
        ("http://127.0.0.1:8000", {"instance": "", "external_labels": {"machine": "gpu-7"}}, False),
        ("http://127.0.0.1:8000", {"instance": "", "urls": []}, False),
        ("http://vllm:8000", {}, True),
        ("http://vllm:8000", {"instance": "gpu-7"}, False),
        ("http://vllm:8000", {"external_labels": {"cluster": "eu"}}, False),
        ("http://vllm.models.svc:8000", {}, False),
        ("http://10.0.0.7:8000", {}, False),
        ("http://[fd00::7]:8000", {}, False),
    ],
)
def test_labels_that_another_watchdog_may_send_just_so_are_warned_of(
    url: str, alertmanager: dict[str, object], warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: "gpu-7.example.com")
    receivers = {"urls": ["http://alertmanager:9093"], **alertmanager}
    told = load(overrides={"targets": [{"name": "vllm", "url": url}], "alertmanager": receivers}).warnings
    assert [("look the same as those" in each and "alertmanager.instance" in each) for each in told] == (
        [True] if warns else []
    )


@pytest.mark.parametrize("content", ["", " \n", "# nothing but words\n", "{}\n"])
def test_an_empty_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "watchdog.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match="the file is empty"):
        load(path)
    path.write_text("targets: []\n")
    assert load(path).targets == []
