"""Every command and file that the documents name, run where it can be and parsed where it cannot."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
import typer
import yaml

from watchdog.cli.main import app as command_line
from watchdog.resources import shipped_rules_directory
from watchdog.rule.rule_set import load as load_rules
from watchdog.settings.model import Settings
from watchdog.settings.model import load as load_settings
from watchdog.signals.catalogue import signal_names
from watchdog.web.api import create_app

from .commands import Block, Command, blocks, commands, named_files
from .objects import of_kind, read, validate
from .programs import Programs, run

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "README.md",
    "PYPI.md",
    "CONTRIBUTING.md",
    "docs/quickstart-sidecar.md",
    "docs/quickstart-fleet.md",
    "docs/quickstart-bare-metal.md",
    "docs/quickstart-laptop.md",
    "docs/writing-a-rule.md",
    "docs/rule-keys.md",
    "docs/prometheus-and-alertmanager.md",
    "docs/lab.md",
    "docs/probing.md",
    "docs/sizing.md",
    "docs/architecture.md",
    "docs/from-a-prometheus.md",
    "docs/verdicts.md",
    "docs/upgrading.md",
)
# Commands of the watchdog that end by themselves and need no server; the rest is parsed.
RUN = {"--version", "config", "replay", "rules", "signals"}


def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def all_blocks(marker: str) -> list[Block]:
    found = [each for document in DOCUMENTS for each in blocks(text_of(document))]
    return [each for each in found if each.marker.partition(" ")[0] == marker]


def all_commands(*programs: str) -> list[Command]:
    found = [each for document in DOCUMENTS for each in commands(text_of(document))]
    unique = {each.line: each for each in found if each.program in programs}
    return list(unique.values())


def lines(found: list[Command]) -> list[str]:
    return [each.line for each in found]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_a_document_names_exists(document: str) -> None:
    folders = [ROOT, (ROOT / document).parent, ROOT / "deploy" / "kubernetes"]
    missing = [
        name
        for name in named_files(text_of(document))
        if not any((folder / name).exists() for folder in folders)
        # Made by a build, and said so.
        and not name.startswith("build/")
    ]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_is_of_a_kind_that_is_tested(document: str) -> None:
    kinds = {
        "kustomization",
        "settings",
        "values",
        "rule",
        "prometheus",
        "alertmanager",
        "unit",
        "a",
    }
    for block in blocks(text_of(document)):
        if block.language in {"yaml", "ini"}:
            assert block.marker.partition(" ")[0] in kinds, block.text[:200]
        else:
            assert block.language in {"sh", "console", "text", "json", ""}, block.language


def test_every_command_is_of_a_program_that_is_tested() -> None:
    tested = {
        "vllm-watchdog",
        "make",
        "kubectl",
        "helm",
        "docker",
        "curl",
        "promtool",
        "amtool",
        "systemctl",
        "journalctl",
        "install",
        "python3",
        "pip",
    }
    found = {each.program for document in DOCUMENTS for each in commands(text_of(document))}
    assert found <= tested


# The watchdog's own commands.


def parsed(command: Command) -> None:
    """Let the command line read its words without acting on them."""
    group = typer.main.get_command(command_line)
    arguments = list(command.words[1:])
    context = group.make_context("vllm-watchdog", list(arguments), resilient_parsing=True)
    words = arguments
    current: Any = group
    while words and hasattr(current, "get_command"):
        found = current.get_command(context, words[0])
        assert found is not None, f"no such command: {command.line}"
        current, words = found, words[1:]
    current.make_context(command.line, list(words))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the reader of docs/writing-a-rule.md has it, who installed the watchdog and has no clone."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "my-rules").mkdir()
    for block in all_blocks("rule"):
        (folder / "my-rules" / block.marker.partition(" ")[2]).write_text(block.text)
    for name, recording in (("incident", "kv-pool-exhausted"), ("calm", "healthy")):
        shutil.copy(ROOT / "tests/recordings" / f"{recording}.jsonl.xz", folder / f"{name}.jsonl.xz")
    return folder


@pytest.mark.parametrize("command", all_commands("vllm-watchdog"), ids=lambda each: each.line)
def test_each_command_of_the_watchdog_is_understood(command: Command, desk: Path) -> None:
    if command.words[1] not in RUN or any("://" in word for word in command.words):
        importlib.import_module(f"watchdog.cli.{command.words[1]}")
        parsed(command)
        return
    program = Path(shutil.which("vllm-watchdog") or ROOT / ".venv" / "bin" / "vllm-watchdog")
    done = subprocess.run(
        [program, *command.words[1:]],
        cwd=desk if command.words[0] == "vllm-watchdog" else ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # 1: something fires in that recording, or in that page.
    assert done.returncode in ({0, 1} if command.words[1] == "replay" else {0}), done.stderr
    assert done.stdout


# Kubernetes.


@pytest.fixture(scope="module")
def known_names(programs: Programs) -> set[str]:
    """Every object that the examples and the chart make."""
    texts = [
        programs.kustomize(ROOT / "deploy" / "kubernetes" / "examples" / name)
        for name in ("sidecar", "fleet")
    ]
    chart = ROOT / "deploy" / "helm" / "vllm-watchdog"
    texts.append(programs.template(chart, "--values", chart / "ci" / "sidecar-values.yaml"))
    names = {f"{item['kind'].lower()}/{item['metadata']['name']}" for text in texts for item in read(text)}
    return names | {"pod/vllm-0"}


@pytest.mark.parametrize("command", all_commands("kubectl"), ids=lambda each: each.line)
def test_each_kubectl_command_names_what_there_is(
    programs: Programs, known_names: set[str], command: Command
) -> None:
    folder = command.option("kustomize") or (command.words[2] if command.words[1] == "kustomize" else None)
    if folder:
        assert read(programs.kustomize(ROOT / folder))
        return
    named = re.findall(r"\b(deployment|service|pod|configmap)[ /]([a-z0-9-]+)", command.line)
    for kind, name in named:
        assert f"{kind}/{name}" in known_names, command.line
    if "create" in command.words:
        arguments = [word for word in command.words[1:] if not word.startswith("$(")]
        run([programs.kubectl, *arguments, "--dry-run=client", "--output=yaml"])
        return
    assert named
    if command.option("container"):
        assert command.option("container") == "vllm-watchdog"
    # Does kubectl know the options? Help is printed before a cluster is looked for.
    options = [word for word in command.words[1:] if word.startswith("--") and word != "--"]
    help_text = run([programs.kubectl, *verb(command), "--help"]) + run([programs.kubectl, "options"])
    for option in options:
        assert f"{option.partition('=')[0]}=" in help_text, option


def verb(command: Command) -> list[str]:
    words = [
        word
        for before, word in zip(command.words, command.words[1:], strict=False)
        if not word.startswith("-") and before != "--namespace"
    ]
    return words[:2] if words[0] in {"set", "create"} else words[:1]


@pytest.mark.parametrize("command", all_commands("helm"), ids=lambda each: each.line)
def test_each_helm_command_renders(programs: Programs, command: Command, tmp_path: Path) -> None:
    written = {block.marker.partition(" ")[2]: block.text for block in all_blocks("values")}
    name = command.option("values")
    assert name
    values = ROOT / name
    if name in written:
        values = tmp_path / name
        values.write_text(written[name])
    chart = next(word for word in command.words if word.startswith("deploy/helm/"))
    assert read(programs.template(ROOT / chart, "--values", values))


@pytest.mark.parametrize("block", all_blocks("values"), ids=lambda each: each.marker)
def test_each_values_file_gives_valid_objects_and_rules(
    programs: Programs, block: Block, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(block.text)
    objects = read(programs.template(ROOT / "deploy" / "helm" / "vllm-watchdog", "--values", values))
    for item in objects:
        validate(item)
    rules = tmp_path / "rules"
    rules.mkdir()
    for name, text in (yaml.safe_load(block.text).get("rules") or {}).items():
        (rules / name).write_text(text)
        assert load_rules([shipped_rules_directory(), rules], signal_names()).by_id(
            name.removesuffix(".yaml")
        )


@pytest.mark.parametrize("block", all_blocks("kustomization"), ids=lambda each: each.marker)
def test_each_kustomization_builds_where_it_is_said_to_be(
    programs: Programs, block: Block, tmp_path: Path
) -> None:
    for name in ("kubernetes", "grafana"):
        shutil.copytree(ROOT / "deploy" / name, tmp_path / name)
    folder = tmp_path / "kubernetes" / block.marker.partition(" ")[2]
    (folder / "kustomization.yaml").write_text(block.text)
    (folder / "watchdog.yaml").write_text("targets: [http://vllm-9.vllm-pods:8000]\n")
    objects = read(programs.kustomize(folder))
    for item in objects:
        validate(item)
    assert {item["metadata"].get("namespace") for item in of_kind(objects, "Deployment")} == {"models"}
    if "behavior: replace" in block.text:
        assert any("vllm-9" in str(item.get("data")) for item in of_kind(objects, "ConfigMap"))


# Settings, rules, and files of other programs.


@pytest.mark.parametrize("block", all_blocks("settings"), ids=lambda each: each.text.splitlines()[1])
def test_each_settings_file_loads(block: Block, tmp_path: Path) -> None:
    config = tmp_path / "watchdog.yaml"
    config.write_text(block.text)
    settings = load_settings(config)
    assert settings.targets or settings.prometheus


@pytest.mark.parametrize("block", all_blocks("rule"), ids=lambda each: each.marker)
def test_each_rule_loads_and_passes_its_tests(block: Block, tmp_path: Path) -> None:
    name = block.marker.partition(" ")[2]
    (tmp_path / name).write_text(block.text)
    rules = load_rules([shipped_rules_directory(), tmp_path], signal_names())
    assert rules.by_id(name.removesuffix(".yaml"))


@pytest.mark.parametrize("block", all_blocks("prometheus"), ids=lambda each: each.text.splitlines()[0])
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_each_prometheus_file_is_accepted(block: Block, tmp_path: Path) -> None:
    shutil.copy(ROOT / "deploy" / "prometheus" / "rules.yaml", tmp_path)
    config = tmp_path / "prometheus.yml"
    config.write_text(block.text)
    run(["promtool", "check", "config", config])


@pytest.mark.parametrize("block", all_blocks("alertmanager"), ids=lambda each: each.text.splitlines()[0])
@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is not installed")
def test_each_alertmanager_file_is_accepted(block: Block, tmp_path: Path) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text(block.text)
    run(["amtool", "check-config", config])


@pytest.mark.parametrize("command", all_commands("promtool", "amtool"), ids=lambda each: each.line)
def test_each_check_with_the_programs_of_prometheus_passes(command: Command) -> None:
    if shutil.which(command.program) is None:
        pytest.skip(f"{command.program} is not installed")
    done = subprocess.run(command.words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# The rest.


@pytest.mark.parametrize("command", all_commands("make"), ids=lambda each: each.line)
def test_each_make_target_exists(command: Command) -> None:
    run(["make", "--dry-run", "--directory", ROOT, *command.words[1:]])


@pytest.mark.parametrize("command", all_commands("curl"), ids=lambda each: each.line)
def test_each_address_is_one_that_the_service_answers(command: Command) -> None:
    app = create_app(cast("Any", None), Settings())
    url = urlsplit(next(word for word in command.words if "://" in word or "localhost" in word))
    operation = app.openapi()["paths"].get(url.path, {}).get("get")
    assert operation or url.path == "/", url.path
    assert url.port in {9847, None}
    known = {each["name"] for each in (operation or {}).get("parameters", [])}
    assert {name for name, _ in parse_qsl(url.query)} <= known


@pytest.mark.parametrize("command", all_commands("docker"), ids=lambda each: each.line)
def test_each_docker_command_names_files_that_exist(command: Command) -> None:
    if command.words[1] == "compose":
        file = command.option("file")
        assert file
        assert yaml.safe_load((ROOT / file).read_text())["services"]
    elif command.words[1] == "build":
        assert command.words[-1] == "."
        argument = command.option("build-arg")
        assert argument is None or f"ARG {argument.partition('=')[0]}" in text_of("Dockerfile")
    else:
        assert command.words[1] == "push"


SYSTEM = ("systemctl", "journalctl", "install", "python3", "pip")


@pytest.mark.parametrize("command", all_commands(*SYSTEM), ids=lambda each: each.line)
def test_each_command_of_the_system_fits_the_unit(command: Command) -> None:
    unit = text_of("deploy/systemd/vllm-watchdog.service")
    if command.program == "install" and command.words[-2] != "/dev/stdin":
        assert (ROOT / command.words[-2]).exists()
        assert command.words[-1].endswith(Path(command.words[-2]).name)
    elif command.words[:2] == ("pip", "install"):
        # From the source: a name that nobody has published is whoever's who takes it.
        assert command.words[2] == "."
    elif command.program in {"python3", "pip"}:
        environment = next(word for word in command.words if word.startswith("/opt/")).removesuffix(
            "/bin/pip"
        )
        assert f"ExecStart={environment}/bin/vllm-watchdog serve" in unit
    elif command.words[1:] != ("daemon-reload",) and command.program != "install":
        assert "vllm-watchdog" in command.words


def test_the_token_of_the_unit_is_where_the_settings_look_for_it() -> None:
    (drop_in,) = all_blocks("unit")
    credential = re.search(r"LoadCredential=(\w+):(\S+)", drop_in.text)
    assert credential
    text = text_of("docs/quickstart-bare-metal.md")
    assert f"/run/credentials/vllm-watchdog.service/{credential[1]}" in text
    assert f"/dev/stdin {credential[2]}" in text


def test_the_documents_name_no_folder_of_the_machine_they_were_written_on() -> None:
    home = re.compile(rf"{re.escape(str(ROOT))}|{re.escape(str(Path.home()))}/")
    for document in DOCUMENTS:
        assert not home.search(text_of(document)), document
