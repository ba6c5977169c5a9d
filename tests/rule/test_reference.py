"""The JSON Schema and the page of keys say what the reader of rule files takes."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from watchdog import schema
from watchdog.resources import shipped_rules_directory
from watchdog.rule.file import OwnTestPart, ParameterPart, RaisePart, RemedyPart, RulePart
from watchdog.rule.reference import json_schema, reference_document

FILES = sorted(set(shipped_rules_directory().glob("*.yaml")) - {shipped_rules_directory() / "remedies.yaml"})
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def content(**changes: Any) -> dict[str, Any]:
    """What is written in a small rule."""
    return {
        "id": "mine",
        "title": "Mine",
        "severity": "warning",
        "when": ["waiting_last > 0"],
        "cause": "c",
    } | changes


def faults(rule: dict[str, Any]) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(rule)]


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_shipped_rule_fits(file: Any) -> None:
    assert faults(yaml.safe_load(file.read_text())) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"severty": "info"}, "$"),
        ({"severity": "bad"}, "$.severity"),
        ({"when": "waiting_last > 0"}, "$.when"),
        ({"when": [{"any": ["a"]}]}, "$.when[0]"),
        ({"when": [{"either": ["a", "b"]}]}, "$.when[0]"),
        ({"when": [{"all": ["a", {"any": ["b", {"none": []}]}]}]}, "$.when[0]"),
        ({"like": {"waiting_lst": 2}}, "$.like"),
        ({"for": True}, "$.for"),
        ({"raise_to": {"severity": "critical"}}, "$.raise_to"),
        ({"parameters": {"most": {"value": 3, "unit": "s"}}}, "$.parameters.most"),
        ({"tests": [{"name": "n", "expect": "fires", "signals": {"waiting_lst": 1}}]}, "$.tests[0].signals"),
        ({"remedies": [{"action": "a", "price": "p"}]}, "$.remedies[0]"),
        ({"remedies": [{"first": [{"shared": "a"}]}]}, "$.remedies[0]"),
        ({"remedies": [{"first": [{"shared": "a"}, {"shared": "b"}], "why": "w"}]}, "$.remedies[0]"),
    ],
)
def test_an_editor_shows_what_the_reader_would_refuse(changes: dict[str, Any], path: str) -> None:
    assert faults(content()) == []
    assert faults(content(**changes)) == [path]


@pytest.mark.parametrize(
    "changes",
    [
        {"for": "1m30s", "keep_firing_for": 90},
        {
            "remedies": [
                {"shared": "a"},
                {"first": [{"shared": "b", "why": "w"}, {"shared": "c"}], "when": "a > 0"},
            ]
        },
        {"when": [{"any": ["a > 0", {"all": ["b > 0", "c > 0"]}]}]},
        {"where": {"x": 3, "y": "a + b", "z": {"any": ["a > 0", "b > 0"]}}},
        {"raise_to": {"severity": "critical", "when": {"any": ["a > 0", "b > 0"]}}},
        {"tests": [{"name": "n", "expect": "fires", "signals": {"waiting_last": ">= 2"}}]},
    ],
)
def test_what_the_reader_takes_fits(changes: dict[str, Any]) -> None:
    assert faults(content(**changes)) == []


@pytest.mark.parametrize("model", [RulePart, ParameterPart, RaisePart, RemedyPart, OwnTestPart])
def test_the_page_has_every_key_with_what_it_is_for(model: Any) -> None:
    page = reference_document()
    for key, field in schema.keys(model).items():
        row = next(
            line
            for line in page.splitlines()
            if line.startswith(f"| `{key}`") and str(field.description) in line
        )
        assert ("(required)" in row) == field.is_required()
