"""What a rule file may hold, from the models that read it: a JSON Schema for editors, a page for people."""

from collections.abc import Iterator, Mapping
from inspect import getdoc
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from watchdog import schema
from watchdog.language.grammar import COMPARISONS, FUNCTIONS, MAX_LENGTH, MAX_NESTING
from watchdog.language.template import TEXTS
from watchdog.rule.clause import GROUPS, LONGEST_CLAUSE
from watchdog.rule.file import CLAUSE, PART, OwnTestPart, ParameterPart, RaisePart, RemedyPart, RulePart
from watchdog.rule.remedies import FIRST, OF_ALL, SHARED
from watchdog.signals.catalogue import COMPARISONS as COMPARED
from watchdog.signals.catalogue import REMEMBERED, signal_names

_DEFINED = {CLAUSE: "Clause", PART: "Part"}
_SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("A rule", "The keys of the file.", RulePart),
    ("A parameter", "Under `parameters`, by its name: a-z, 0-9 and _.", ParameterPart),
    ("A worse severity", "Under `raise_to`.", RaisePart),
    ("A remedy", "An entry of `remedies`.", RemedyPart),
    ("A test", "An entry of `tests`.", OwnTestPart),
)
_HOLDS: Mapping[str, str] = {
    "Clause": "clause",
    "Part": "clause or number",
    "string": "text",
    "number": "number",
    "integer": "whole number",
    "boolean": "true or false",
    "object": "mapping",
}
_FUNCTIONS: Mapping[str, str] = {
    "min": "`min(a, b, ...)` is the least of two numbers or more; unknown where one is",
    "max": "`max(a, b, ...)` is the greatest",
    "known": "`known(name)` is yes where the signal has a value, and never unknown",
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a rule file, with the names of all signals."""
    found: dict[str, Any] = _with_definitions(RulePart.model_json_schema())
    definitions: dict[str, Any] = found["$defs"]
    definitions["Clause"] = {
        "description": "A clause, or a group of clauses of which any or all must hold.",
        "anyOf": [{"type": "string"}, *({"$ref": f"#/$defs/{word}"} for word in GROUPS)],
    }
    definitions["Part"] = {
        "description": "A clause, a group, or a number.",
        "anyOf": [{"$ref": "#/$defs/Clause"}, {"type": "number"}],
    }
    for word in GROUPS:
        definitions[word] = _group_schema(word)
    signals = {"propertyNames": {"enum": sorted(signal_names())}}
    definitions["OwnTestPart"]["properties"]["signals"] |= signals
    definitions |= _remedy_schemas(definitions["RemedyPart"])
    found["properties"]["remedies"]["items"] = {
        "anyOf": [{"$ref": "#/$defs/RemedyPart"}, {"$ref": "#/$defs/RemedyGroup"}]
    }
    found["properties"]["like"] |= {"propertyNames": {"enum": sorted(REMEMBERED)}}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A rule of vllm-watchdog",
    }
    return head | {key: value for key, value in found.items() if key != "title"}


def _remedy_schemas(whole: dict[str, Any]) -> dict[str, Any]:
    """A remedy, which is whole or names a shared one, and a group of them."""
    wanted = [key for key in whole["required"] if key != SHARED]
    remedy = {key: value for key, value in whole.items() if key != "required"}
    group = {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/RemedyPart"}}
    return {
        "RemedyPart": remedy | {"anyOf": [{"required": wanted}, {"required": [SHARED]}]},
        "RemedyGroup": {
            "description": "A group of remedies, of which the first that can be offered is.",
            "type": "object",
            "required": [FIRST],
            "additionalProperties": False,
            "properties": {FIRST: group} | {key: {"$ref": "#/$defs/Clause"} for key in OF_ALL},
        },
    }


def _group_schema(word: str) -> dict[str, Any]:
    clauses = {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/Clause"}}
    return {
        "type": "object",
        "required": [word],
        "additionalProperties": False,
        "properties": {word: clauses},
    }


def _with_definitions(part: Any) -> Any:
    """The same with references to what is defined once, and without titles, which repeat the keys."""
    if isinstance(part, list):
        return [_with_definitions(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("$comment") in _DEFINED:
        return {"$ref": f"#/$defs/{_DEFINED[part['$comment']]}"}
    return {
        key: _with_definitions(value)
        for key, value in part.items()
        if key != "title" or not isinstance(value, str)
    }


def reference_document() -> str:
    """The page of every key, clause and format."""
    lines = [
        "# Keys of a rule file",
        "",
        "Made from the models that read rule files by `make docs`; a test keeps it in step.",
        "[Write a rule in ten minutes](writing-a-rule.md) explains them by an example, [signals](signals.md) lists the",
        "names. `vllm-watchdog rules schema` prints the same as a JSON Schema, for editors.",
        "",
    ]
    for title, place, model in _SECTIONS:
        lines += [f"## {title}", "", f"{getdoc(model)} {place}", "", *_table(model), ""]
    return "\n".join([*lines, *_clauses(), *_formats()]) + "\n"


def _table(model: type[BaseModel]) -> Iterator[str]:
    properties = json_schema()
    if model is not RulePart:
        properties = properties["$defs"][model.__name__]
    yield "| key | holds | what it is for |"
    yield "|---|---|---|"
    for key, field in schema.keys(model).items():
        wanted = " (required)" if field.is_required() else ""
        yield f"| `{key}`{wanted} | {_holds(properties['properties'][key], field)} | {field.description} |"


def _holds(part: Mapping[str, Any], field: FieldInfo) -> str:
    """What a key holds, in words, with its default where that says something."""
    default = "" if field.is_required() or not field.default else f"; `{field.default}` if not given"
    return _kind(part) + default


def _kind(part: Mapping[str, Any]) -> str:
    if "$ref" in part:
        name = str(part["$ref"]).rpartition("/")[2]
        return _HOLDS.get(name) or _enumerated(name)
    if "anyOf" in part:
        return " or ".join(_kind(each) for each in part["anyOf"] if each.get("type") != "null")
    kind = part["type"]
    if isinstance(kind, list):
        return "duration" if part.get("format") == "duration" else " or ".join(_HOLDS[each] for each in kind)
    if kind == "array":
        return f"list of {_several(_kind(part['items']))}"
    if kind == "object" and isinstance(part.get("additionalProperties"), dict):
        return f"mapping of names to {_several(_kind(part['additionalProperties']))}"
    return _HOLDS[str(kind)]


def _several(kind: str) -> str:
    return " or ".join(
        {"remedy": "remedies", "true": "true", "false": "false"}.get(each, f"{each}s")
        for each in kind.split(" or ")
    )


def _enumerated(name: str) -> str:
    definition = json_schema()["$defs"][name]
    if "enum" in definition:
        return f"one of {', '.join(f'`{each}`' for each in definition['enum'])}"
    return {
        "ParameterPart": "parameter",
        "RemedyPart": "remedy",
        "RemedyGroup": "group",
        "OwnTestPart": "test",
    }.get(name, "mapping")


def _clauses() -> Iterator[str]:
    yield "## Clauses and numbers"
    yield ""
    yield "The logic is that of CEL, with words for its operators. Everything may be unknown; unknown is no error."
    yield ""
    yield "| what | how |"
    yield "|---|---|"
    yield "| names | signals, the rule's parameters, its named parts |"
    yield "| numbers | `20`, `0.75`, `1e9`; `rules check` wants all but 0 and 1 to be parameters |"
    yield f"| comparisons | {' '.join(f'`{sign}`' for sign in sorted(COMPARISONS, key=lambda each: (each[0], each)))} |"
    yield "| arithmetic | `+` `-` `*` `/` and brackets; a division by zero is unknown |"
    yield "| logic | `and` (CEL `&&`), `or` (CEL `||`), `not` (CEL `!`) |".replace("||", "\\|\\|")
    yield from (f"| function | {_FUNCTIONS[name]} |" for name in FUNCTIONS)
    yield from (
        f"| `_{one.name}` behind a remembered signal | {one.description} |" for one in COMPARED.values()
    )
    yield "| group | a mapping with one key, `any` or `all`, and a list of clauses or groups instead of a clause |"
    yield ""
    yield (
        f"A clause has at most {MAX_LENGTH} characters and {MAX_NESTING} brackets in each other; "
        f"`rules check` refuses more than {LONGEST_CLAUSE} characters."
    )
    yield ""


def _formats() -> Iterator[str]:
    yield "## Texts"
    yield ""
    yield "In `cause` and the texts of a remedy `{name:format}` is the value of a signal or parameter."
    yield ""
    yield "| format | 1234.5 becomes |"
    yield "|---|---|"
    for one in ("", ".0f", ",.1f", ".2e", ".3g"):
        yield f"| {f'`{one}`' if one else 'none'} | {format(1234.5, one or '.4g')} |"
    yield "| `.0%` | of 0.75: 75% |"
    yield "| `time`, for signals whose name says seconds | of 0.038: 38 ms; of 200: 3m 20s |"
    yield ""
    yield "A part in `[ ]` is left out if a value in it is unknown; `[[`, `]]`, `{{` and `}}` are plain brackets."
    yield f"Texts may also quote {', '.join(f'`{{{name}}}`' for name in sorted(TEXTS))}, which have no format."
    yield ""
    yield "## Durations"
    yield ""
    yield "`90`, `0.5s`, `250ms`, `1m30s`, `2h`, `1d`, `2w`; a number without a unit is seconds."
