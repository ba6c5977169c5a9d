"""F59 and F60: faults of settings, from whichever side they come."""

import json
from pathlib import Path

import pytest

from tests.a_service import a_service, rules
from tests.a_site import a_site
from watchdog.errors import ConfigError
from watchdog.rule.rule_set import RuleSet
from watchdog.settings.model import load, redacted

SECRET = "tok3n-that-nobody-may-see"


def test_f59_a_typo_a_bad_type_and_an_unreadable_secret_are_told_together_without_the_secret(
    tmp_path: Path,
) -> None:
    """From file, environment and command line at once."""
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    config = tmp_path / "watchdog.yaml"
    config.write_text(
        f"targets:\n"
        f"  - url: http://user:{SECRET}@h:99999/metrics\n"
        f"    bearer_token_file: {tmp_path}/absent\n"
        f"web:\n"
        f"  bearer_token_file: {empty}\n"
        f"  pasword_file: {SECRET}\n"
    )
    environment = {
        "WATCHDOG_SCRAPE__INTERVAL_SECONDS": SECRET,
        "WATCHDOG_STATE__MAX_INCIDENTS_FILE": "/no/such",
    }
    with pytest.raises(ConfigError) as raised:
        load(config, {"log.level": SECRET}, environment, check_files=True)
    faults = [fault.replace(str(tmp_path), "") for fault in raised.value.faults]
    assert sorted(fault.partition("\n")[0] for fault in faults) == [
        "/watchdog.yaml:2:10: targets[0].url: must be a URL with a valid host and port",
        "/watchdog.yaml:3:24: targets[0].bearer_token_file: /absent cannot be read: No such file or directory",
        "/watchdog.yaml:5:22: web.bearer_token_file: /empty is empty",
        "/watchdog.yaml:6:3: web.pasword_file: no such setting (did you mean `password_file`?)",
        "WATCHDOG_SCRAPE__INTERVAL_SECONDS: scrape.interval_seconds: must be a number",
        "WATCHDOG_STATE__MAX_INCIDENTS_FILE: the file it names cannot be read: No such file or directory",
        "command line: log.level: must be 'debug', 'info', 'warning' or 'error'",
    ]
    assert SECRET not in str(raised.value)
    assert raised.value.__context__ is None


def test_f59_a_misspelt_variable_warns_with_the_nearest_name_and_does_not_stop_the_start() -> None:
    """Kubernetes puts WATCHDOG_ variables of its own beside a service called `watchdog`: refusing would never start."""
    made = load(environment={"WATCHDOG_WEB__PORTS": SECRET, "WATCHDOG_SERVICE_PORT_HTTP": "9847"})
    assert made.warnings == (
        "WATCHDOG_WEB__PORTS: no such setting, ignored (did you mean `WATCHDOG_WEB__PORT`?)",
    )


def test_f59_the_environment_wins_over_the_file_and_both_are_checked(tmp_path: Path) -> None:
    config = tmp_path / "watchdog.yaml"
    config.write_text("web: {port: 1, host: ''}\n")
    assert load(config, environment={"WATCHDOG_WEB__PORT": "2", "WATCHDOG_WEB__HOST": "::1"}).web.port == 2
    with pytest.raises(ConfigError, match=r"watchdog\.yaml:1:22: web\.host: must have at least 1 character"):
        load(config, environment={"WATCHDOG_WEB__PORT": "2"})


def test_f59_a_file_that_an_override_replaces_need_not_be_there(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(SECRET)
    config = tmp_path / "watchdog.yaml"
    config.write_text("web: {bearer_token_file: /absent}\ntargets: [{url: http://a, ca_file: /absent}]\n")
    made = load(
        config, {"targets": ["http://b"]}, {"WATCHDOG_WEB__BEARER_TOKEN_FILE": str(token)}, check_files=True
    )
    assert made.web.bearer_token_file == token
    assert SECRET not in json.dumps(redacted(made)) + repr(made)


def test_f60_zero_targets_start_and_readiness_says_why(tmp_path: Path) -> None:
    with a_site(a_service(tmp_path)) as site:
        assert site.ask("/healthz").status == 200
        assert site.ask("/readyz").error["message"].startswith("no targets are configured")
        assert site.ask("/diagnose").json["verdict"] == "unknown"
        assert site.ask("/").status == 200


def test_f60_zero_rules_start_and_readiness_says_why(tmp_path: Path) -> None:
    service = a_service(tmp_path)
    assert len(rules(tmp_path).rules) > 0
    service.rules = RuleSet((), "")
    with a_site(service) as site:
        assert "no rules are loaded" in site.ask("/readyz").error["message"]
        assert site.ask("/rules").json == {"rules": []}


def test_f60_the_same_target_twice_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        load(overrides={"targets": [f"http://u:{SECRET}@h/m?key={SECRET}", f"http://H:80/m?key={SECRET}"]})
    assert str(raised.value) == (
        "command line: targets: entries 1 and 2 have the same url, http://H:80/m?key=***"
    )
