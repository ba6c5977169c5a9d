"""YAML for people's files: one meaning a document, no aliases, no duplicate keys, the line of every key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from watchdog.errors import ConfigError

Place = tuple[str | int, ...]

MAX_CHARACTERS = 1024 * 1024
MAX_DEPTH = 50

# What PyYAML gives to nodes that have no tag of their own.
_PLAIN_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("map", "seq", "str", "null", "bool", "int", "float", "timestamp", "merge", "value")
)

NULL = re.compile(r"(?:~|null|Null|NULL|)$")
BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
INTEGER = re.compile(r"[-+]?[0-9]+$")
REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$")


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says; `lines` gives the line (from 1) of each key or list item by its path."""

    value: Any
    lines: Mapping[Place, int]


class _Composer(yaml.SafeLoader):
    """Builds nodes only, and refuses aliases and deep nesting while it does (both can eat all memory)."""

    depth = 0

    def current_mark(self) -> yaml.Mark:
        """Where the next thing in the text starts."""
        mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return mark

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            _refuse("aliases (*name) are not allowed: write the value out", self.current_mark())
        if self.depth == MAX_DEPTH:
            _refuse(f"nested deeper than {MAX_DEPTH} levels", self.current_mark())
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read(text: str, name: str) -> Document:
    """Return the one document in `text`; raises ConfigError that says `name:line:column` and what is wrong.

    Plain words keep one meaning: only true/false are booleans (`yes` is text), numbers are decimal
    (`012` is 12, `1:30` is text, `1e3` is a number), and dates are text.
    """
    if len(text) > MAX_CHARACTERS:
        raise ConfigError([f"{name}: longer than {MAX_CHARACTERS} characters"])
    loader = None
    try:
        loader = _Composer(text)
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        return Document(None if node is None else _value(node, (), lines), lines)
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_text(error, name)]) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{name}:{line}: the character U+{error.character:04X} is not allowed"]) from None
    finally:
        if loader is not None:
            loader.dispose()


_MEANT = (
    (
        "mapping values",
        "a text with a colon in it stands in quotes; a key is not indented more than its neighbours",
    ),
    (
        "cannot start any token",
        "YAML is indented by spaces, not tabs; a text that begins with a sign stands in quotes",
    ),
    ("expected ':'", "a key is followed by a colon and a space"),
    ("unexpected end", "a quotation mark is not closed"),
    ("expected ','", "a bracket is not closed, or a comma is missing"),
    ("expected", "the line is not indented as its neighbours are, or a quotation mark above is not closed"),
)


def problem(error: yaml.YAMLError) -> tuple[str, str]:
    """What the parser says of a text that is no YAML, and what people mostly did where it says so."""
    text = str(getattr(error, "problem", None) or getattr(error, "context", None) or error)
    return text, next((meant for part, meant in _MEANT if part in text), "")


def _refuse(problem: str, mark: yaml.Mark) -> NoReturn:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _text(error: yaml.MarkedYAMLError, name: str) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
    text, meant = problem(error)
    return f"{place}: {text} ({meant})" if meant else f"{place}: {text}"


def _value(node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if node.tag not in _PLAIN_TAGS:
        _refuse(f"the tag {node.tag} is not allowed", node.start_mark)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, place, lines)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, index), lines) for index, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, place: Place, lines: dict[Place, int]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse("a key must be plain text", key.start_mark)
        if key.value in values:
            _refuse(f"the key {key.value!r} is here twice", key.start_mark)
        lines[(*place, key.value)] = key.start_mark.line + 1
        values[key.value] = _value(value, (*place, key.value), lines)
    return values


def _scalar(node: Any) -> Any:
    text: str = node.value
    if node.style is not None:
        return text
    if NULL.match(text):
        return None
    if BOOLEAN.match(text):
        return text.lower() == "true"
    if len(text) <= 40 and INTEGER.match(text):
        return int(text)
    if len(text) <= 40 and REAL.match(text):
        return float(text)
    return text
