"""YAML for people's files: one reader, which knows the place of everything and finds every fault at once.

YAML is read by its events only: nothing is built from tags, nothing is shared by anchors, and what a word without
quotes means is decided by the field that takes it, so `yes`, `012` and `1:30` never turn into something else.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
import yaml.resolver

from watchdog.errors import Fault
from watchdog.text import first_harmful, nearest, one_line

Path = tuple[str | int, ...]
"""Keys and positions from the root of a document down to a value."""

KEY = "[key]"
"""As the last step of a path: the key before it itself, not its value (as pydantic says it)."""

MAX_FAULTS = 50
MAX_SHOWN = 100
MAX_TOLD = 300

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_TEXT_TAG = "tag:yaml.org,2002:str"
# What readers of YAML 1.2 take for a number beside what those of 1.1 do.
_LATER_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+")
_WORD = re.compile(r"[A-Za-z0-9_.-]+|\*{3}")
_NOTHING = frozenset({"", "~", "null", "Null", "NULL"})
_FIRST_KEY = re.compile(r"[\s{-]*[\w.-]+\s*:")
HIDDEN = "***"


class Kind(NamedTuple):
    """What a kind of file may be: its name and example for people, and the sizes beyond which it is refused."""

    name: str
    example: str
    max_bytes: int
    max_nesting: int
    max_entries: int
    may_be_empty: bool = False


class Word(str):
    """A scalar without quotes: a text, a number, a truth or nothing, as the field that takes it decides."""

    __slots__ = ()

    @property
    def is_text(self) -> bool:
        """Whether every reader of YAML takes it for a text, and not for a number, a truth or nothing."""
        as_text = bool(_RESOLVER.resolve(yaml.ScalarNode, str(self), (True, False)) == _TEXT_TAG)
        return as_text and not _LATER_NUMBER.fullmatch(self)

    @property
    def is_nothing(self) -> bool:
        """Whether it stands for no value, as a key with nothing after it does."""
        return self in _NOTHING


@dataclass(slots=True)
class _Node:
    """A scalar (`text`; `plain` without quotes), a list (`items`) or a mapping (`entries`).

    Lines and columns count from 1; the end is that of a scalar, behind its last character.
    """

    kind: str
    line: int
    column: int
    end_line: int = 0
    end_column: int = 0
    text: str = ""
    plain: bool = False
    items: list["_Node"] = field(default_factory=list)
    entries: dict[str, tuple["_Node", "_Node"]] = field(default_factory=dict)

    def value(self) -> Any:
        """It as dict, list, Word (without quotes) or str."""
        if self.kind == "list":
            return [item.value() for item in self.items]
        if self.kind == "mapping":
            return {name: node.value() for name, (_, node) in self.entries.items()}
        return Word(self.text) if self.plain else self.text

    def scalars(self, path: Path = ()) -> "Iterator[tuple[Path, _Node]]":
        """Every scalar in it by its path, keys included."""
        if self.kind == "scalar":
            yield path, self
        for index, item in enumerate(self.items):
            yield from item.scalars((*path, index))
        for name, (key, node) in self.entries.items():
            yield (*path, name, KEY), key
            yield from node.scalars((*path, name))


class YamlFile:
    """A file of one kind; `faults` are all that was found so far.

    Its tree is many times as large as its content: `forget` drops it, and it is read again if a place is asked
    for. Where `shows` is given, an excerpt has HIDDEN in place of every scalar that it is not true of.
    """

    def __init__(
        self, path: str, content: bytes, kind: Kind, shows: Callable[[Path, str], bool] | None = None
    ) -> None:
        self.path = path
        self.faults: list[Fault] = []
        self._content = content
        self._kind = kind
        self._shows = shows
        self._lines: list[str] = []
        self._root: _Node | None = None

    def read(self) -> dict[str, Any] | None:
        """The file's mapping, its scalars as Word or (quoted) as str.

        None where the file is not one mapping, or has a fault: that is then noted. An empty file gives an empty
        mapping where its kind may be empty.
        """
        self._root = self._tree()
        if self._root is None or self.faults:
            return None
        value: dict[str, Any] = self._root.value()
        return value

    def forget(self) -> None:
        """Drops the tree."""
        self._root, self._lines = None, []

    def fault(self, path: Path, text: str, hint: str = "", offset: int | None = None) -> None:
        """Notes a fault at a path, or `offset` characters into the text there."""
        if self._root is None:
            noted, self.faults = self.faults, []
            self._root = self._tree()
            self.faults = noted
        self._note(self._node(path), text, hint, offset)

    def hint(self, name: str, known: Collection[str]) -> str:
        """The nearest known name; not looked for any more where a file is full of faults."""
        return nearest(name, known) if len(self.faults) < MAX_FAULTS else ""

    def written(self, path: Path) -> str:
        """The text of the scalar at a path as it is written; empty for a list or mapping."""
        node = self._node(path)
        return node.text if node else ""

    def _node(self, path: Path) -> _Node | None:
        """What a fault at a path is about: the scalar, or the key of a list or mapping below it.

        Where the path leads beyond the document (a key is missing), what it leads to last.
        """
        key, node = None, self._root
        for step in path:
            if node is None or step == KEY:
                return key or node
            if isinstance(step, int):
                if step >= len(node.items):
                    break
                key, node = None, node.items[step]
            elif step in node.entries:
                key, node = node.entries[step]
            else:
                break
        is_below = key is not None and node is not None and node.kind != "scalar" and node.line > key.line
        return key if is_below else node

    def _note(self, node: _Node | None, text: str, hint: str, offset: int | None = None) -> None:
        if len(self.faults) > MAX_FAULTS:
            return
        if len(self.faults) == MAX_FAULTS:
            self.faults.append(Fault(self.path, 0, 0, f"more than {MAX_FAULTS} faults"))
            return
        line, column, snippet = self._place(node, offset) if node else (0, 0, "")
        told, meant = one_line(text, MAX_TOLD), one_line(hint, MAX_TOLD)
        self.faults.append(Fault(self.path, line, column, told, meant, snippet))

    def _place(self, node: _Node, offset: int | None) -> tuple[int, int, str]:
        source = self._lines[node.line - 1] if node.line <= len(self._lines) else ""
        column = node.column - 1
        if offset is not None:
            column += 0 if node.plain else 1  # after the quotation mark
            if not source.startswith(node.text, column):
                # A folded or escaped text: its columns are not those of the file, so show the text itself.
                return node.line, node.column, _snippet("", " ".join(node.text.splitlines()), offset)
            column += offset
        shown, at = (source, column) if self._shows is None else self._masked(node.line, source, column)
        return node.line, column + 1, _snippet(str(node.line), shown, at)

    def _masked(self, line: int, source: str, column: int) -> tuple[str, int]:
        """A line without the scalars that are not to be shown, and where `column` is in it."""
        if self._root is None:
            # No YAML: all after the first key may be anything.
            first = _FIRST_KEY.match(source)
            known = f"{first[0]} " if first else ""
            return known + HIDDEN, min(column, len(known))
        shown, at, position = "", 0, 0
        for start, end, text in [*self._spans(line, source), (len(source), len(source), "")]:
            for begin, piece in ((position, _marks(source[position:start])), (start, text)):
                if begin <= column:
                    at = len(shown) + min(column - begin, max(len(piece) - 1, 0) if piece != HIDDEN else 0)
                shown += piece
            position = end
        return shown.rstrip(), at

    def _may_show(self, path: Path, text: str) -> bool:
        return self._shows is None or self._shows(path, text)

    def _spans(self, line: int, source: str) -> Iterator[tuple[int, int, str]]:
        """Where the scalars of a line begin and end in it, and what is shown of each."""
        scalars = self._root.scalars() if self._root else ()
        for path, node in sorted(scalars, key=lambda each: (each[1].line, each[1].column)):
            start = node.column - 1 if node.line == line else 0
            end = node.end_column - 1 if node.end_line == line else len(source)
            if node.line <= line <= node.end_line and start < end:
                is_shown = node.line == node.end_line and (path[-1] == KEY or self._may_show(path, node.text))
                yield start, end, source[start:end] if is_shown else HIDDEN

    def _tree(self) -> _Node | None:
        content, most = self._content, self._kind.max_bytes
        if len(content) > most:
            self._note(None, f"larger than {most // 1024} KiB", "")
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            column = error.start - content.rfind(b"\n", 0, error.start)
            self.faults.append(Fault(self.path, line, column, "not UTF-8 text"))
            return None
        text = text.replace("\r\n", "\n")
        self._lines = text.split("\n")
        found = first_harmful(text)
        if found is not None:
            line = text.count("\n", 0, found) + 1
            column = found - text.rfind("\n", 0, found)
            self.faults.append(Fault(self.path, line, column, _not_allowed(text[found])))
            return None
        return self._document(text)

    def _document(self, text: str) -> _Node | None:
        try:
            roots = _Builder(self._kind, self._note, yaml.parse(text, Loader=_Loader)).roots()
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            place = _Node("scalar", mark.line + 1, mark.column + 1) if mark else None
            problem, meant = _problem(error)
            self._note(place, f"not YAML: {problem}", meant)
            return None
        if not roots and self._kind.may_be_empty:
            return _Node("mapping", 1, 1)
        if len(roots) != 1 or roots[0].kind != "mapping":
            self._note(roots[-1] if roots else None, f"{self._kind.name} is one mapping", self._kind.example)
            return None
        return roots[0]


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


def _problem(error: yaml.YAMLError) -> tuple[str, str]:
    """What the parser says of a text that is no YAML, and its usual cause."""
    text = str(getattr(error, "problem", None) or getattr(error, "context", None) or error)
    return text, next((meant for part, meant in _MEANT if part in text), "")


def _not_allowed(character: str) -> str:
    return f"the character U+{ord(character):04X} is not allowed"


class _Builder:
    """Builds nodes from YAML's events, and notes aliases, anchors, tags and duplicate keys on the way."""

    def __init__(self, kind: Kind, note: Callable[[_Node, str, str], None], events: Iterator[Any]) -> None:
        self._kind = kind
        self._note = note
        self._events = events

    def roots(self) -> list[_Node]:
        """The root of each document in the file."""
        return [self._node(event, 0) for event in self._events if isinstance(event, yaml.NodeEvent)]

    def _node(self, event: Any, depth: int) -> _Node:
        start, end = event.start_mark, event.end_mark
        node = _Node("scalar", start.line + 1, start.column + 1, end.line + 1, end.column + 1)
        if depth > self._kind.max_nesting:
            problem = f"nested deeper than {self._kind.max_nesting}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=start)
        if isinstance(event, yaml.AliasEvent):
            self._note(node, f"the alias *{event.anchor} is not allowed", "write it out")
            return node
        if event.anchor is not None:
            self._note(node, f"the anchor &{event.anchor} is not allowed", "write it out where it is used")
        if event.tag is not None:
            self._note(node, f"the tag {event.tag} is not allowed", "")
        if isinstance(event, yaml.ScalarEvent):
            self._fill_scalar(node, event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._fill_list(node, depth)
        else:
            self._fill_mapping(node, depth)
        return node

    def _fill_scalar(self, node: _Node, event: Any) -> None:
        node.text, node.plain = event.value, not event.style
        found = first_harmful(node.text)
        if found is not None:
            self._note(node, _not_allowed(node.text[found]), "an escape in quotes writes it")

    def _fill_list(self, node: _Node, depth: int) -> None:
        node.kind = "list"
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            node.items.append(self._node(event, depth + 1))
            self._check_entries(len(node.items), node.items[-1])

    def _fill_mapping(self, node: _Node, depth: int) -> None:
        node.kind = "mapping"
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if key.kind != "scalar":
                self._note(key, "a key must be a plain word", "")
            elif key.text in node.entries:
                first = node.entries[key.text][0].line
                self._note(key, f"the key `{key.text}` is here twice", f"first on line {first}")
            else:
                node.entries[key.text] = (key, value)
            self._check_entries(len(node.entries), key)

    def _check_entries(self, count: int, node: _Node) -> None:
        most = self._kind.max_entries
        if count > most:
            mark = yaml.Mark("", 0, node.line - 1, node.column - 1, None, 0)
            raise yaml.MarkedYAMLError(problem=f"more than {most} entries", problem_mark=mark)


def _marks(source: str) -> str:
    """What YAML itself writes between scalars; no comment."""
    return "".join(each if each in "-:?,{}[]" else " " for each in source.partition("#")[0])


def _snippet(number: str, source: str, column: int) -> str:
    """The line with a caret under the word at `column`; of a long line what is around it, of an empty one none."""
    if not source.strip():
        return ""
    start = max(0, column - MAX_SHOWN // 2)
    shown = source[start : start + MAX_SHOWN].replace("\t", " ")
    word = _WORD.match(source, column)
    carets = "^" * min(len(word.group()) if word else 1, MAX_SHOWN // 2)
    margin = " " * len(number)
    return f"  {number} | {one_line(shown)}\n  {margin} | {' ' * (column - start)}{carets}"
