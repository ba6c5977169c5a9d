"""The Dockerfile, its context and its lock file, as far as they can be checked without a build."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from watchdog import __version__


@pytest.fixture(scope="module")
def dockerfile(root: Path) -> str:
    return (root / "Dockerfile").read_text()


def final_stage(dockerfile: str) -> str:
    return dockerfile.rpartition("\nFROM ")[2]


def locked(root: Path) -> dict[NormalizedName, Version]:
    text = (root / "deploy" / "image" / "requirements.txt").read_text()
    return {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }


def test_the_lock_file_meets_every_requirement_of_the_package(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pins = locked(root)
    for requirement in map(Requirement, project["dependencies"]):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_the_image_has_the_versions_that_the_tests_run_with(root: Path) -> None:
    text = (root / "constraints.txt").read_text()
    tested = {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    }
    differing = {
        name: (str(version), str(tested[name]))
        for name, version in locked(root).items()
        if name in tested and tested[name] != version
    }
    assert not differing


def test_every_locked_package_has_hashes_and_no_index_is_named(root: Path) -> None:
    text = (root / "deploy" / "image" / "requirements.txt").read_text()
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)
    assert "://" not in text


def test_the_base_image_can_be_chosen_and_defaults_to_a_tag_of_an_official_image(dockerfile: str) -> None:
    assert re.search(r"^ARG BASE=python:3\.\d+-slim-\w+$", dockerfile, re.MULTILINE)
    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == ["${BASE}", "${BASE}"]


def test_the_final_stage_runs_as_a_numbered_user_and_builds_nothing(dockerfile: str) -> None:
    stage = final_stage(dockerfile)
    assert re.search(r"^USER 65532:65532$", stage, re.MULTILINE)
    assert "pip" not in stage
    assert "apt-get" not in stage
    assert re.search(r'^ENTRYPOINT \["vllm-watchdog"\]$', stage, re.MULTILINE)
    assert re.search(r'^HEALTHCHECK .* CMD \["alive"\]$', stage, re.MULTILINE)
    assert re.findall(r"^VOLUME (\S+)$", stage, re.MULTILINE) == ["/var/lib/vllm-watchdog"]


def test_the_image_opens_no_port_to_the_world_by_itself(dockerfile: str) -> None:
    assert "WEB__HOST=" not in dockerfile


def test_the_labels_are_those_of_the_open_container_initiative(dockerfile: str) -> None:
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", dockerfile))
    assert labels == {
        "title",
        "description",
        "licenses",
        "version",
        "revision",
        "created",
        "source",
        "documentation",
    }


def test_only_what_the_image_is_made_from_is_sent_to_the_build(root: Path) -> None:
    lines = (root / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    for name in (rule[1:] for rule in rules if rule.startswith("!")):
        assert (root / name).exists(), name


def test_the_version_is_the_same_everywhere(root: Path, dockerfile: str) -> None:
    documents = [*root.glob("docs/*.md"), *root.glob("deploy/**/*.yaml"), root / "deploy" / "targets.mk"]
    tags = {
        tag
        for path in documents
        for tag in re.findall(r"(?:vllm-watchdog:|newTag: )(\d[\w.]*)", path.read_text())
    }
    tags |= set(re.findall(r"^ARG VERSION=(.+)$", dockerfile, re.MULTILINE))
    chart = (root / "deploy" / "helm" / "vllm-watchdog" / "Chart.yaml").read_text()
    tags |= set(re.findall(r"^(?:appV|v)ersion: (.+)$", chart, re.MULTILINE))
    assert tags == {__version__}
    assert f"## [{__version__}]" in (root / "CHANGELOG.md").read_text()
