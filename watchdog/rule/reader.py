"""From a rule file's tree to a Rule: every field by its type, every fault with its place."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import TypeVar

from watchdog.errors import ExpressionError
from watchdog.history.number import AtLeast, AtMost, Bound
from watchdog.language.expression import NO_PARAMETERS, Expression, parse
from watchdog.language.grammar import RESERVED
from watchdog.language.template import TEXTS, VALUE, Template, value_format
from watchdog.model import SEVERITY_RANK, Limit, Scope, Severity
from watchdog.rule.file import Node, RuleFile
from watchdog.rule.rule import (
    Direction,
    Expectation,
    Parameter,
    RemedyRule,
    Rule,
    RuleTest,
)

Choice = TypeVar("Choice", bound=StrEnum)
Built = TypeVar("Built")

_BOUNDS: Mapping[str, type[Bound]] = {">= ": AtLeast, "<= ": AtMost}
ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
PARAMETER_NAME = re.compile(r"[a-z][a-z0-9_]*")
FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
VERSION = re.compile(r"[0-9]+\.[0-9]+(?:\.[0-9]+)?")
DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,4})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,8})s)?")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,3})?")
PARAMETER_EXAMPLE = 'such as {value: 0.75, unit: ratio, why: "..."}'
SUGGEST_FORMAT = "{value:.0f}"


@dataclass(frozen=True, slots=True)
class Read:
    """A rule with the file it came from, and the places of what is checked against other rules."""

    rule: Rule
    file: RuleFile
    id_node: Node
    explains: tuple[Node, ...] = ()
    tests: tuple[Node, ...] = ()


@dataclass(slots=True)
class _Names:
    """What the texts and clauses of a rule may speak of, and which parameters they did speak of."""

    signals: Collection[str]
    parameters: Mapping[str, float] = field(default_factory=lambda: NO_PARAMETERS)
    used: set[str] = field(default_factory=set)


class _Fields:
    """A mapping read field by field; what nobody asked for is an unknown key."""

    def __init__(self, file: RuleFile, node: Node, names: _Names) -> None:
        self.file = file
        self.node = node
        self._names = names
        self._asked: set[str] = set()

    @property
    def signals(self) -> Collection[str]:
        return self._names.signals

    def entry(self, name: str, required: bool = False) -> Node | None:
        self._asked.add(name)
        found = self.node.entries.get(name)
        if found is None:
            if required:
                self.file.fault(self.node, f"`{name}` is missing")
            return None
        return found[1]

    def finish(self) -> None:
        for name, (key, _) in self.node.entries.items():
            if name not in self._asked:
                hint = self.file.hint(name, self._asked)
                self.file.fault(key, f"the key `{name}` is not known here", hint)

    def text(self, name: str, required: bool = False) -> str:
        node = self.entry(name, required)
        return self._text(node) if node else ""

    def matching(self, name: str, pattern: re.Pattern[str], wanted: str, required: bool = False) -> str:
        node = self.entry(name, required)
        text = self._text(node) if node else ""
        if node and text and not pattern.fullmatch(text):
            self.file.fault(node, f"`{text}` is not {wanted}")
        return text

    def texts(self, name: str, required: bool = False) -> tuple[str, ...]:
        return tuple(text for node in self.items(name, required) if (text := self._text(node)))

    def items(self, name: str, required: bool = False) -> list[Node]:
        node = self.entry(name, required)
        if node is None:
            return []
        if node.kind != "list":
            self.file.fault(node, f"`{name}` is a list", "such as [a, b]")
            return []
        if required and not node.items:
            self.file.fault(node, f"`{name}` is empty")
        return node.items

    def mapping(self, name: str, required: bool = False) -> "Mapping[str, tuple[Node, Node]]":
        node = self.entry(name, required)
        if node is None:
            return {}
        if node.kind != "mapping":
            self.file.fault(node, f"`{name}` is a mapping of names")
        return node.entries

    def section(self, node: Node, what: str, example: str = "") -> "_Fields | None":
        if node.kind == "mapping":
            return _Fields(self.file, node, self._names)
        self.file.fault(node, f"{what} is a mapping of fields", example)
        return None

    def choice(self, name: str, kind: type[Choice], default: Choice, required: bool = False) -> Choice:
        node = self.entry(name, required)
        if node is None:
            return default
        text = node.text if node.kind == "scalar" else ""
        if text in {str(choice) for choice in kind}:
            return kind(text)
        self.file.fault(node, f"`{name}` is one of {', '.join(kind)}", self.file.hint(text, list(kind)))
        return default

    def duration(self, name: str) -> float:
        node = self.entry(name)
        if node is None:
            return 0.0
        match = DURATION.fullmatch(node.text) if node.kind == "scalar" else None
        if match is None:
            self.file.fault(node, f"`{name}` is a duration", "such as 5s or 1m30s")
            return 0.0
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(hours * 3600 + minutes * 60 + seconds)

    def number(self, node: Node | None, bounds: bool = False) -> float:
        """A decimal number; with `bounds` also a text such as ">= 10" or "<= 10"."""
        if node is None:
            return 0.0
        bound = _BOUNDS.get(node.text[:3]) if bounds and not node.plain else None
        text = node.text[3:] if bound else node.text
        if (
            node.kind == "scalar"
            and (node.plain or bound is not None)
            and NUMBER.fullmatch(text)
            and isfinite(float(text))
        ):
            return bound(text) if bound else float(text)
        self.file.fault(node, f"`{node.text}` is not a decimal number", "such as 0.75 or 1e9, without quotes")
        return 0.0

    def clause(self, name: str, required: bool = False) -> Expression | None:
        node = self.entry(name, required)
        return self.expression(node, wants_clause=True) if node else None

    def clauses(self, name: str, required: bool = False) -> tuple[Expression, ...]:
        read = (self.expression(node, wants_clause=True) for node in self.items(name, required))
        return tuple(expression for expression in read if expression)

    def expression(self, node: Node, wants_clause: bool) -> Expression | None:
        text = self._text(node, numbers=not wants_clause)
        if not text:
            return None
        found = self._in_grammar(node, lambda: parse(text, self._names.signals, self._names.parameters))
        if found is None:
            return None
        self._names.used.update(found.parameters)
        if found.is_clause == wants_clause:
            return found
        if wants_clause:
            self.file.fault(node, "a clause compares", "such as x > 0")
        else:
            self.file.fault(node, "a number is expected here, this is a yes or no")
        return None

    def template(self, name: str, required: bool = False, has_value: bool = False) -> Template | None:
        node = self.entry(name, required)
        text = self._text(node) if node else ""
        if node is None or not text:
            return None
        names = self._names
        found = self._in_grammar(
            node, lambda: Template.read(text, names.signals, names.parameters, has_value)
        )
        if found is not None:
            names.used.update(found.parameters)
        return found

    def value_format(self, node: Node) -> str | None:
        text = self._text(node)
        return self._in_grammar(node, lambda: value_format(text)) if text else None

    def _in_grammar(self, node: Node, build: Callable[[], Built]) -> Built | None:
        try:
            return build()
        except ExpressionError as error:
            self.file.fault(node, error.message, error.hint, offset=error.column)
            return None

    def _text(self, node: Node, numbers: bool = False) -> str:
        if node.kind != "scalar":
            self.file.fault(node, "a text is expected here", "put it in quotes")
        elif not node.text.strip():
            self.file.fault(node, "empty")
        elif not node.is_text and not (numbers and NUMBER.fullmatch(node.text)):
            self.file.fault(node, f"`{node.text}` is not a text for every reader of YAML", "put it in quotes")
        else:
            return node.text
        return ""


def read_rule(
    file: RuleFile, path: Path, signals: Collection[str], values: Mapping[str, float]
) -> Read | None:
    """The rule of a file, its parameters set to `values` where given; None where `file` has faults."""
    root = file.read()
    if root is None:
        return None
    before = len(file.faults)
    names = _Names(signals)
    fields = _Fields(file, root, names)
    identity = _identity(fields, path)
    parameters = _parameters(fields, names, values)
    rule = _rule(fields, identity, parameters, path)
    fields.finish()
    for name in parameters:
        if name not in names.used and len(file.faults) == before:
            key = root.entries["parameters"][1].entries[name][0]
            file.fault(key, f"no clause and no text uses the parameter `{name}`")
    if rule is None or len(file.faults) > before:
        return None
    return Read(rule, file, _value_of(root, "id"), *(_list_of(root, name) for name in ("explains", "tests")))


def _value_of(root: Node, name: str) -> Node:
    return root.entries[name][1]


def _list_of(root: Node, name: str) -> tuple[Node, ...]:
    return tuple(root.entries[name][1].items) if name in root.entries else ()


def _identity(fields: _Fields, path: Path) -> str:
    identity = fields.matching("id", ID, "an id: words of a-z and 0-9 with a hyphen between", required=True)
    node = fields.entry("id")
    if node and identity and path.name != f"{identity}.yaml":
        fields.file.fault(node, f"the file of the rule `{identity}` is named {identity}.yaml")
    return identity


def _parameters(fields: _Fields, names: _Names, values: Mapping[str, float]) -> Mapping[str, Parameter]:
    found: dict[str, Parameter] = {}
    for name, (key, node) in fields.mapping("parameters").items():
        if not PARAMETER_NAME.fullmatch(name) or name in {*RESERVED, *TEXTS, VALUE}:
            fields.file.fault(key, f"`{name}` cannot name a parameter", "a-z, 0-9 and _")
        elif name in names.signals:
            fields.file.fault(key, f"the parameter `{name}` has the name of a signal")
        section = fields.section(node, f"the parameter `{name}`", PARAMETER_EXAMPLE)
        if section is None:
            # Known all the same: a clause that speaks of it is not at fault.
            found[name] = Parameter(values.get(name, 0.0), "", "")
            continue
        value = section.number(section.entry("value", required=True))
        unit, why = section.text("unit", required=True), section.text("why", required=True)
        section.finish()
        found[name] = Parameter(values.get(name, value), unit, why)
    names.parameters = {name: parameter.value for name, parameter in found.items()}
    return found


def _likeness(fields: _Fields) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, (key, node) in fields.mapping("like").items():
        if f"{name}_baseline" not in fields.signals:
            fields.file.fault(key, f"`{name}` is not remembered, so no two stretches can be alike in it")
        factor = fields.number(node)
        if factor <= 1:
            fields.file.fault(node, "a likeness is a factor above 1")
        found[name] = factor
    return found


def _rule(fields: _Fields, identity: str, parameters: Mapping[str, Parameter], path: Path) -> Rule | None:
    severity = fields.choice("severity", Severity, Severity.INFO, required=True)
    cause = fields.template("cause", required=True)
    rule = Rule(
        id=identity,
        title=fields.text("title", required=True),
        severity=severity,
        raise_to=_raise_to(fields, severity),
        scope=fields.choice("scope", Scope, Scope.ENGINE),
        for_seconds=fields.duration("for"),
        keep_firing_seconds=fields.duration("keep_firing_for"),
        parameters=parameters,
        when=fields.clauses("when", required=True),
        unless=fields.clauses("unless"),
        explains=fields.texts("explains"),
        cause=cause or Template.read("", ()),
        remedies=_remedies(fields),
        unhelpful=fields.texts("unhelpful"),
        false_positives=fields.texts("false_positives"),
        references=fields.texts("references"),
        tests=_tests(fields),
        path=path,
        like=_likeness(fields),
        limit=fields.choice("limit", Limit, Limit.COMPUTE) if fields.entry("limit") else None,
    )
    return rule if cause else None


def _raise_to(fields: _Fields, severity: Severity) -> tuple[Severity, Expression] | None:
    node = fields.entry("raise_to")
    section = fields.section(node, "`raise_to`") if node else None
    if section is None:
        return None
    raised = section.choice("severity", Severity, Severity.CRITICAL, required=True)
    when = section.clause("when", required=True)
    section.finish()
    if node and SEVERITY_RANK[raised] >= SEVERITY_RANK[severity]:
        fields.file.fault(node, f"{raised} is not worse than {severity}")
    return (raised, when) if when else None


def _remedies(fields: _Fields) -> tuple[RemedyRule, ...]:
    sections = (fields.section(node, "a remedy") for node in fields.items("remedies"))
    read = [_remedy(section) for section in sections if section]
    return tuple(remedy for remedy in read if remedy)


def _remedy(section: _Fields) -> RemedyRule | None:
    has_value = "suggest" in section.node.entries or "value" in section.node.entries
    suggest = section.entry("suggest")
    action = section.template("action", required=True, has_value=has_value)
    why = section.template("why", required=True, has_value=has_value)
    price = section.template("price", required=True, has_value=has_value)
    remedy = RemedyRule(
        action=action or Template.read("", ()),
        flag=section.matching("flag", FLAG, "a flag such as --max-num-seqs") or None,
        suggest=section.expression(suggest, wants_clause=False) if suggest else None,
        suggest_format=_suggest_format(section, bool(suggest)),
        value=section.template("value"),
        direction=_direction(section),
        why=why or Template.read("", ()),
        price=price or Template.read("", ()),
        when=section.clause("when"),
        unless=section.clause("unless"),
        first_version=section.matching("first_version", VERSION, "a version such as 0.26.0") or None,
        last_version=section.matching("last_version", VERSION, "a version such as 0.26.0") or None,
    )
    if suggest and remedy.value is not None:
        section.file.fault(section.entry("value"), "a remedy has `suggest` or `value`, not both")
    section.finish()
    return remedy if action and why and price else None


def _direction(section: _Fields) -> Direction | None:
    return section.choice("direction", Direction, Direction.SET) if section.entry("direction") else None


def _suggest_format(section: _Fields, has_suggest: bool) -> str:
    node = section.entry("suggest_format")
    if node is None:
        return SUGGEST_FORMAT
    if not has_suggest:
        section.file.fault(node, "`suggest_format` without `suggest`")
    return section.value_format(node) or SUGGEST_FORMAT


def _tests(fields: _Fields) -> tuple[RuleTest, ...]:
    found: dict[str, RuleTest] = {}
    for node in fields.items("tests"):
        section = fields.section(node, "a test")
        if section is None:
            continue
        test = _test(section)
        if test.name in found:
            section.file.fault(section.entry("name"), f"two tests have the name `{test.name}`")
        found[test.name] = test
    return tuple(found.values())


def _test(section: _Fields) -> RuleTest:
    signals = {}
    for name, (key, node) in section.mapping("signals", required=True).items():
        if name not in section.signals:
            section.file.fault(key, f"no signal is named `{name}`", section.file.hint(name, section.signals))
        signals[name] = section.number(node, bounds=True)
    severity = section.entry("severity")
    test = RuleTest(
        name=section.text("name", required=True),
        signals=signals,
        expect=section.choice("expect", Expectation, Expectation.FIRES, required=True),
        severity=section.choice("severity", Severity, Severity.INFO) if severity else None,
        cause_contains=section.text("cause_contains") or None,
        remedy={name: node.text for name, (_, node) in section.mapping("remedy").items()},
        not_offered=section.texts("not_offered"),
    )
    section.finish()
    return test
