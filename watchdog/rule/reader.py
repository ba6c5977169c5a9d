"""From a rule file to a Rule, every fault with its place."""

import pathlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from watchdog import schema
from watchdog.rule.clause import REFUSED, Names
from watchdog.rule.file import RemedyPart, RulePart
from watchdog.rule.remedies import NOTHING_SHARED, SHARED, Expanded, SharedRemedies, expand
from watchdog.rule.rule import Parameter, RemedyRule, Rule, RuleTest
from watchdog.schema import Problem
from watchdog.strict_yaml import KEY, MAX_FAULTS, Path, YamlFile


@dataclass(frozen=True, slots=True)
class Read:
    """A rule with the file it came from, and where its remedies stand there."""

    rule: Rule
    file: YamlFile
    expanded: Expanded

    def fault(self, path: Path, text: str, hint: str = "") -> None:
        """Notes a fault at a path of the rule."""
        self.file.fault(self.expanded.place(path), text, hint)


def read_rule(
    file: YamlFile,
    path: pathlib.Path,
    signals: Collection[str],
    values: Mapping[str, float],
    strict: bool = False,
    shared: SharedRemedies = NOTHING_SHARED,
) -> Read | None:
    """The rule of a file, its parameters set to `values` where given; None where `file` has faults.

    `strict` refuses what works but should be written otherwise; `shared` are the remedies that it may name.
    """
    content = file.read()
    if content is None:
        return None
    expanded = expand(file, content, shared)
    if file.faults:
        file.forget()
        return None
    names = Names(path.name, signals, values, strict=strict)
    try:
        part = RulePart.model_validate(expanded.content, context=names)
    except ValidationError as error:
        _note(file, error, names, expanded)
        return None
    unused = [("parameters", name) for name in part.parameters if name not in names.used]
    unused += [("where", name) for name in part.where if name not in names.used]
    for key, name in unused:
        text = "and no text uses the parameter" if key == "parameters" else "uses the part"
        file.fault((key, name, KEY), f"no clause {text} `{name}`")
    file.forget()
    return None if unused else Read(_rule(part, path, names.parameters, expanded.groups), file, expanded)


_WANTED = {
    "decimal": ("`{written}` is not a decimal number", "such as 0.75 or 1e9, without quotes"),
    "dict_type": ("`{name}` is a mapping of names", ""),
    "duration": ("`{name}` is a duration", "such as 5s or 1m30s"),
    "missing": ("`{name}` is missing", ""),
    "text_ambiguous": ("`{written}` is not a text for every reader of YAML", "put it in quotes"),
    "too_short": ("`{name}` is empty", ""),
    "tuple_type": ("`{name}` is a list", "such as [a, b]"),
}
_SECTIONS = {
    "parameters": (
        "the parameter `{name}` is a mapping of fields",
        'such as {value: 0.75, unit: ratio, why: "..."}',
    ),
    "raise_to": ("`raise_to` is a mapping of fields", ""),
    "remedies": ("a remedy is a mapping of fields", ""),
    "tests": ("a test is a mapping of fields", ""),
}


def _note(file: YamlFile, error: ValidationError, names: Names, expanded: Expanded) -> None:
    """Notes every fault that pydantic found, as a person goes through the file."""
    for problem in schema.problems(error):
        if len(file.faults) > MAX_FAULTS:
            break
        place = expanded.place(problem.path)
        text, hint = _words(file, problem, names, place)
        path = (*place, KEY) if problem.kind == "extra_forbidden" else place
        file.fault(path, text, hint, problem.context.get("offset"))
    file.faults.sort(key=lambda fault: (fault.line == 0, fault.line, fault.column))
    file.forget()


def _words(file: YamlFile, problem: Problem, names: Names, place: Path) -> tuple[str, str]:
    """What a fault is, and what to do; `place` is where it stands in the file."""
    path, kind, context = problem.path, problem.kind, problem.context
    name = str(path[-1]) if path else ""
    if kind == REFUSED:
        hint = file.hint(context["name"], names.signals) if "known" in context else context["hint"]
        return context["message"], hint
    if kind == "extra_forbidden":
        known = schema.keys(schema.field_at(RulePart, path[:-1]))
        return f"the key `{name}` is not known here", file.hint(name, known)
    if chosen := schema.choices(problem):
        return f"`{name}` is one of {', '.join(chosen)}", file.hint(file.written(place), chosen)
    if kind == "model_type":
        text, hint = _SECTIONS[str(path[0])]
    elif kind in _WANTED:
        text, hint = _WANTED[kind]
    else:
        text, hint = "`{name}` " + problem.message, ""
    return text.format(name=name, written=file.written(place)), hint


def _rule(
    part: RulePart, path: pathlib.Path, parameters: Mapping[str, float], groups: Sequence[int | None]
) -> Rule:
    changed: dict[str, Any] = {
        "raise_to": (part.raise_to.severity, part.raise_to.when) if part.raise_to else None,
        "parameters": {
            name: Parameter(parameters[name], each.unit, each.why) for name, each in part.parameters.items()
        },
        "remedies": tuple(
            RemedyRule(**_own(remedy), group=group)
            for remedy, group in zip(part.remedies, groups, strict=True)
        ),
        "tests": tuple(RuleTest(**dict(test)) for test in part.tests),
        "path": path,
    }
    return Rule(**(dict(part) | changed))


def _own(remedy: RemedyPart) -> dict[str, Any]:
    """What a remedy says; what it shares is in it already."""
    return {key: value for key, value in remedy if key != SHARED}
