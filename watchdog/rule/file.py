"""A rule file as a tree of texts that know their place, and the faults found in it.

YAML is read by its events only: nothing is built from tags, nothing is shared by anchors, and what a plain
word means is decided by the reader of a field, so `yes`, `012` and `1:30` never turn into something else.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
import yaml.resolver

from watchdog import strict_yaml
from watchdog.errors import RuleFault
from watchdog.text import nearest, one_line

MAX_BYTES = 256 * 1024
MAX_NESTING = 12
MAX_ENTRIES = 200
MAX_FAULTS = 50
MAX_SHOWN = 100
MAX_TOLD = 300

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_TEXT_TAG = "tag:yaml.org,2002:str"
_CONTROL = re.compile("[^\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")


@dataclass(slots=True)
class Node:
    """A scalar (`text`; `plain` without quotes), a list (`items`) or a mapping (`entries`).

    Line and column count from 1.
    """

    kind: str
    line: int
    column: int
    text: str = ""
    plain: bool = False
    items: list["Node"] = field(default_factory=list)
    entries: dict[str, tuple["Node", "Node"]] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether every reader of YAML takes it for a text, and not for a number, a truth or nothing."""
        if not self.plain:
            return True
        return bool(_RESOLVER.resolve(yaml.ScalarNode, self.text, (True, False)) == _TEXT_TAG)


class RuleFile:
    """One rule file: `faults` are all that was found so far."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.faults: list[RuleFault] = []
        self._content = content
        self._lines: list[str] = []

    def fault(self, node: Node | None, text: str, hint: str = "", offset: int | None = None) -> None:
        """Note a fault: of the file, at a node, or `offset` characters into a node's text."""
        if len(self.faults) > MAX_FAULTS:
            return
        if len(self.faults) == MAX_FAULTS:
            self.faults.append(RuleFault(self.path, 0, 0, f"more than {MAX_FAULTS} faults"))
            return
        if node is None:
            self.faults.append(RuleFault(self.path, 0, 0, one_line(text, MAX_TOLD), one_line(hint, MAX_TOLD)))
            return
        line, column, snippet = self._place(node, offset)
        told, meant = one_line(text, MAX_TOLD), one_line(hint, MAX_TOLD)
        self.faults.append(RuleFault(self.path, line, column, told, meant, snippet))

    def hint(self, name: str, known: Collection[str]) -> str:
        """The nearest known name; not looked for any more where a file is full of faults."""
        return nearest(name, known) if len(self.faults) < MAX_FAULTS else ""

    def _place(self, node: Node, offset: int | None) -> tuple[int, int, str]:
        source = self._lines[node.line - 1] if node.line <= len(self._lines) else ""
        column = node.column - 1
        if offset is not None:
            column += 0 if node.plain else 1  # after the quotation mark
            if not source.startswith(node.text, column):
                # A folded or escaped text: its columns are not those of the file, so show the text itself.
                return node.line, node.column, _snippet("", " ".join(node.text.splitlines()), offset)
            column += offset
        return node.line, column + 1, _snippet(str(node.line), source, column)

    def read(self) -> Node | None:
        """The file's mapping, read anew: it is many times as large as the file, and not kept.

        None where the file is not one mapping; why is then noted.
        """
        content = self._content
        if len(content) > MAX_BYTES:
            self.fault(None, f"larger than {MAX_BYTES // 1024} KiB", "one rule a file")
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.fault(None, f"not UTF-8 at byte {error.start}")
            return None
        self._lines = [line.rstrip("\r") for line in text.split("\n")]
        control = _CONTROL.search(text)
        if control:
            line = text.count("\n", 0, control.start()) + 1
            column = control.start() - text.rfind("\n", 0, control.start())
            found = f"the character U+{ord(control.group()):04X} is not allowed"
            self.faults.append(RuleFault(self.path, line, column, found))
            return None
        return self._document(text)

    def _document(self, text: str) -> Node | None:
        try:
            roots = _Builder(self, yaml.parse(text, Loader=_Loader)).roots()
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = Node("scalar", mark.line + 1, mark.column + 1) if mark else None
            text, meant = strict_yaml.problem(error)
            self.fault(place, f"not YAML: {text}", meant)
            return None
        if len(roots) != 1 or roots[0].kind != "mapping":
            self.fault(roots[-1] if roots else None, "a rule file is one mapping", "it starts with `id:`")
        return None if self.faults else roots[0]


class _Builder:
    """Builds nodes from YAML's events, and notes aliases, anchors, tags and duplicate keys on the way."""

    def __init__(self, file: RuleFile, events: Iterator[Any]) -> None:
        self._file = file
        self._events = events

    def roots(self) -> list[Node]:
        """The root of each document in the file."""
        return [self._node(event, 0) for event in self._events if isinstance(event, yaml.NodeEvent)]

    def _node(self, event: Any, depth: int) -> Node:
        mark = event.start_mark
        node = Node("scalar", mark.line + 1, mark.column + 1)
        if depth > MAX_NESTING:
            raise yaml.MarkedYAMLError(problem=f"nested deeper than {MAX_NESTING}", problem_mark=mark)
        if isinstance(event, yaml.AliasEvent):
            self._file.fault(node, f"the alias *{event.anchor} is not allowed", "write it out")
            return node
        if event.anchor is not None:
            self._file.fault(
                node, f"the anchor &{event.anchor} is not allowed", "write it out where it is used"
            )
        if event.tag is not None:
            self._file.fault(node, f"the tag {event.tag} is not allowed")
        if isinstance(event, yaml.ScalarEvent):
            node.text, node.plain = event.value, not event.style
        elif isinstance(event, yaml.SequenceStartEvent):
            self._fill_list(node, depth)
        else:
            self._fill_mapping(node, depth)
        return node

    def _fill_list(self, node: Node, depth: int) -> None:
        node.kind = "list"
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node.items.append(self._node(event, depth + 1))
            _check_entries(len(node.items), node.items[-1])

    def _fill_mapping(self, node: Node, depth: int) -> None:
        node.kind = "mapping"
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if key.kind != "scalar":
                self._file.fault(key, "a key must be a plain word")
            elif key.text in node.entries:
                first = node.entries[key.text][0].line
                self._file.fault(key, f"the key `{key.text}` is here twice", f"first on line {first}")
            else:
                node.entries[key.text] = (key, value)
            _check_entries(len(node.entries), key)


def _check_entries(count: int, node: Node) -> None:
    if count > MAX_ENTRIES:
        mark = yaml.Mark("", 0, node.line - 1, node.column - 1, None, 0)
        raise yaml.MarkedYAMLError(problem=f"more than {MAX_ENTRIES} entries", problem_mark=mark)


def _snippet(number: str, source: str, column: int) -> str:
    """The line with a caret under the word at `column`; of a long line what is around it."""
    start = max(0, column - MAX_SHOWN // 2)
    shown = source[start : start + MAX_SHOWN].replace("\t", " ")
    word = _WORD.match(source, column)
    carets = "^" * min(len(word.group()) if word else 1, MAX_SHOWN // 2)
    margin = " " * len(number)
    return f"  {number} | {one_line(shown)}\n  {margin} | {' ' * (column - start)}{carets}"
