"""The files of deploy/compose, and the whole way of an alert with them and Debian's real programs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from watchdog.settings.model import load

from .programs import run

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("prometheus-alertmanager") is None,
    reason="prometheus and prometheus-alertmanager are not installed",
)


@pytest.fixture(scope="module")
def compose(root: Path) -> Path:
    return root / "deploy" / "compose"


@pytest.fixture(scope="module")
def services(compose: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((compose / "compose.yaml").read_text())
    found: dict[str, dict[str, Any]] = document["services"]
    return found


def test_every_service_listens_on_loopback_alone(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"vllm", "vllm-watchdog", "prometheus", "alertmanager", "grafana"}
    for service in services.values():
        assert service["network_mode"] == "host"
        assert "ports" not in service
    assert "--host=127.0.0.1" in services["vllm"]["command"]
    for name in ("prometheus", "alertmanager"):
        (address,) = [each for each in services[name]["command"] if "web.listen-address" in each]
        assert "=127.0.0.1:" in address
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_the_watchdog_of_the_stack_is_as_confined_as_in_kubernetes(
    services: dict[str, dict[str, Any]],
) -> None:
    service = services["vllm-watchdog"]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_every_mounted_file_exists_and_every_volume_is_declared(
    compose: Path, services: dict[str, dict[str, Any]]
) -> None:
    declared = set(yaml.safe_load((compose / "compose.yaml").read_text())["volumes"])
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in declared or (compose / source).exists(), volume
    # Files inside the mounted folder that commands name.
    for service in services.values():
        for argument in service.get("command", []):
            if "/etc/deploy/" in argument:
                assert (compose.parent / argument.partition("/etc/deploy/")[2]).exists(), argument


def test_the_settings_load_and_warn_of_nothing(compose: Path) -> None:
    settings = load(compose / "watchdog.yaml")
    assert settings.warnings == ()
    assert [endpoint.url for endpoint in settings.alertmanager.urls] == ["http://127.0.0.1:9093"]


def test_the_watchdog_beside_a_prometheus_reads_it(compose: Path) -> None:
    document = yaml.safe_load((compose / "from-a-prometheus.yaml").read_text())
    [service] = document["services"].values()
    given = {name: re.sub(r"\$\{\w+:-(.*)\}", r"\1", text) for name, text in service["environment"].items()}
    settings = load(environment=given)
    assert [source.url for source in settings.prometheus] == ["http://127.0.0.1:9090"]
    assert (settings.warnings, settings.web.host, service["network_mode"]) == ((), "127.0.0.1", "host")
    assert f"{next(iter(document['volumes']))}:{settings.state.directory}" in service["volumes"]


def test_grafana_finds_the_data_source_and_the_dashboards(
    compose: Path, services: dict[str, dict[str, Any]]
) -> None:
    sources = yaml.safe_load((compose / "grafana" / "datasources" / "prometheus.yaml").read_text())
    assert sources["datasources"][0]["url"] == "http://127.0.0.1:9090"
    provider = yaml.safe_load((compose / "grafana" / "dashboards" / "vllm-watchdog.yaml").read_text())
    path = provider["providers"][0]["options"]["path"]
    assert f"../grafana:{path}:ro" in services["grafana"]["volumes"]


@needs_prometheus
def test_prometheus_and_alertmanager_accept_their_files(compose: Path) -> None:
    run(["promtool", "check", "config", compose / "prometheus.yml"])
    run(["amtool", "check-config", compose.parent / "alertmanager" / "alertmanager.yml"])


def in_a_network_of_its_own(*command: str | Path) -> list[str]:
    """The command where every port of loopback is free, whatever else runs on this machine."""
    script = 'ip link set lo up && exec "$@"'
    return ["unshare", "--map-root-user", "--net", "sh", "-c", script, "sh", *map(str, command)]


@needs_prometheus
@pytest.mark.timeout(170)
def test_an_alert_goes_the_whole_way_through_the_real_programs(root: Path) -> None:
    if subprocess.run(in_a_network_of_its_own("true"), capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine gives no network namespace (or has no iproute2)")
    command = in_a_network_of_its_own(sys.executable, root / "deploy" / "stack.py", "--until-alert", "120")
    done = subprocess.run(command, capture_output=True, text=True, timeout=160, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    alert = json.loads(told["pager"])
    assert alert["status"] == "firing"
    assert alert["labels"]["alertname"] == "VllmKvPoolExhausted"
    assert alert["labels"]["target"] == "vllm"
    assert alert["annotations"]["remedy"]
    assert alert["generatorURL"].startswith("http://127.0.0.1:9847/incidents/")
    assert json.loads(told["dead-man-switch"])["labels"]["alertname"] == "VllmWatchdogHeartbeat"
    up = {each["metric"]["job"]: each["value"][1] for each in json.loads(told["up"])}
    assert up == {"vllm": "1", "vllm-watchdog": "1", "prometheus": "1", "alertmanager": "1"}
    (lead,) = json.loads(told["vllm_watchdog_lead"])
    assert lead["metric"]["rule"] == "kv-pool-exhausted"
