"""The systemd unit: accepted by systemd, confined, and starting what there is."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from watchdog.cli.main import app
from watchdog.settings.model import load

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.fixture
def unit(root: Path) -> Path:
    return root / "deploy" / "systemd" / "vllm-watchdog.service"


def value(unit: Path, key: str) -> str:
    found = re.search(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)
    assert found, key
    return found[1]


@needs_systemd
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    # It looks whether the program is there, which it is not on this machine.
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/vllm-watchdog/bin/vllm-watchdog", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True, check=False
    )
    # Other units of this machine may have faults of their own.
    complaints = [line for line in done.stderr.splitlines() if unit.name in line or str(tmp_path) in line]
    assert not complaints


@needs_systemd
def test_systemd_calls_the_service_well_confined(unit: Path) -> None:
    # The threshold is ten times the exposure level; 1.1 was reached, 9.6 is a service without any confinement.
    options = ["--offline=true", "--threshold=15", "--no-pager"]
    command: list[str | Path] = ["systemd-analyze", "security", *options, unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr


def test_the_unit_starts_a_command_that_exists_with_settings_that_load(root: Path, unit: Path) -> None:
    words = value(unit, "ExecStart").split()
    assert words[0] == "/opt/vllm-watchdog/bin/vllm-watchdog"
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    context = group.make_context("vllm-watchdog", [words[1]], resilient_parsing=True)
    command = group.get_command(context, words[1])
    assert command is not None
    parsed = command.make_context(words[1], words[2:])
    assert str(parsed.params["config"]) == "/etc/vllm-watchdog/watchdog.yaml"
    settings = load(root / "deploy" / "systemd" / "watchdog.yaml")
    assert settings.web.host == "127.0.0.1"
    assert settings.warnings == ()


def test_the_state_goes_where_the_unit_may_write(unit: Path) -> None:
    assert f"/var/lib/{value(unit, 'StateDirectory')}" in value(unit, "Environment")
    assert value(unit, "ProtectSystem") == "strict"
    assert value(unit, "DynamicUser") == "yes"


def test_a_reload_is_the_signal_that_the_service_knows(unit: Path) -> None:
    assert value(unit, "ExecReload").endswith("-HUP $MAINPID")


def test_the_unit_has_each_section_once(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(unit.read_text())
    assert parser.sections() == ["Unit", "Service", "Install"]
