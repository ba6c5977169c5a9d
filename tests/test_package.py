"""What the package says of itself: metadata, links, the habits that others rely on."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.compatible import declared, lowest
from tests.places import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINK = re.compile(r"\]\(([^)]+)\)|^\[[^]]+\]: (\S+)", re.M)


def links(text: str) -> list[str]:
    return [one or other for one, other in LINK.findall(text)]


def test_every_link_of_the_readme_in_the_wheel_leads_somewhere_from_anywhere() -> None:
    assert all(link.startswith("https://") for link in links((ROOT / PROJECT["readme"]).read_text()))


def test_links_between_documents_lead_to_files_and_headings() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        text = (ROOT / name).read_text()
        headings = {
            re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-")
            for each in re.findall(r"^#+ (.*)", text, re.M)
        }
        for link in links(text):
            path, _, heading = link.partition("#")
            assert (
                link.startswith("https://") or (ROOT / path).is_file() or (not path and heading in headings)
            ), link


def test_each_version_in_the_changelog_is_a_link_that_leads_there() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.+)\]$", text, re.M)
    assert versions[0] == "Unreleased"
    assert set(versions) == set(re.findall(r"^\[(.+)\]: #", text, re.M))


def test_the_package_is_typed_and_says_so() -> None:
    assert (ROOT / "watchdog" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_every_dependency_has_a_lowest_version_that_can_be_tried_out() -> None:
    assert [pin.partition("==")[0] for pin in lowest(declared())] == [
        re.split(r"[<>=]", each)[0] for each in declared()
    ]
    with pytest.raises(ValueError, match="rich: no lowest version"):
        list(lowest(["rich"]))


def test_everything_imported_is_a_declared_dependency_with_an_end_where_its_private_names_carry_us() -> None:
    names = {re.split(r"[<>=]", each)[0]: each for each in declared()}
    assert {"pydantic", "urllib3"} <= set(names)
    assert all("<" in names[name] for name in ("urllib3", "uvicorn", "typer", "pydantic-settings"))


def test_the_hosted_workflow_runs_what_everybody_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    runs = {name: [step.get("run") for step in job["steps"]] for name, job in workflow["jobs"].items()}
    assert runs["checks"][-1] == ".ci/run"
    assert runs["compatible"][-1] == "make compatible"
    assert workflow["permissions"] == {"contents": "read"}
    uses = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/checkout@[0-9a-f]{40}", each) for each in uses)


def test_the_hooks_are_the_tools_of_the_environment() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"].split()[0] for hook in hooks] == [
        ".venv/bin/ruff",
        ".venv/bin/ruff",
        ".venv/bin/mypy",
    ]
    checks = (ROOT / "Makefile").read_text()
    assert all(hook["entry"].split()[0].removeprefix(".venv/bin/") in checks for hook in hooks)
