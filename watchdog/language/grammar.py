"""The closed grammar of clauses: text to a checked tree.

    truth      = conjunct ("or" conjunct)*          conjunct = negated ("and" negated)*
    negated    = "not" negated | comparison         comparison = sum (("<" | "<=" | ...) sum)*
    sum        = product (("+" | "-") product)*     product = signed (("*" | "/") signed)*
    signed     = "-" signed | atom
    atom       = number | name | "(" truth ")" | min(sum, ...) | max(sum, ...) | known(name)

It is read by hand and not by Python's own parser, so that nothing of Python (attributes, calls, powers,
texts) has to be found and refused, and so that every error has its column.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from watchdog.errors import ExpressionError
from watchdog.text import nearest, one_line

MAX_LENGTH = 500
"""The characters of a clause as one text."""
MAX_WHOLE_LENGTH = 4000
"""The characters of a clause put together from groups and named parts."""
MAX_NESTING = 20
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!="})
FUNCTIONS = ("min", "max", "known")
RESERVED = frozenset({"and", "or", "not", *FUNCTIONS})

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r\n]+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<foreign>\*\*|//|&&|\|\||<>)"
    r"|(?P<symbol><=|>=|==|!=|[-+*/()<>,])"
    r"|(?P<stray>.)",
    re.DOTALL,
)
_INSTEAD = {
    "&&": "write `and`",
    "&": "write `and`",
    "||": "write `or`",
    "|": "write `or`",
    "!": "write `not` or `!=`",
    "=": "write `==`",
    "<>": "write `!=`",
    "%": "write a share as a number, such as 0.75",
    "**": "only + - * / are known",
    "^": "only + - * / are known",
    "//": "write `/`",
    "'": "clauses have no texts, only numbers and names",
    '"': "clauses have no texts, only numbers and names",
    ".": "names have no parts",
}


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written."""

    column: int
    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """A signal or a parameter."""

    column: int
    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """A number with its sign turned."""

    column: int
    operand: "NumberNode"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two numbers and one of + - * /."""

    column: int
    operator: str
    left: "NumberNode"
    right: "NumberNode"


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest of two or more numbers; `function` is min or max."""

    column: int
    function: str
    operands: tuple["NumberNode", ...]


@dataclass(frozen=True, slots=True)
class Known:
    """Whether a signal has a value."""

    column: int
    name: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two numbers and one of < <= > >= == !=."""

    column: int
    operator: str
    left: "NumberNode"
    right: "NumberNode"


@dataclass(frozen=True, slots=True)
class Not:
    """The contrary of a truth."""

    column: int
    operand: "TruthNode"


@dataclass(frozen=True, slots=True)
class Junction:
    """Two or more truths joined by `and` or by `or`.

    `spans` are where the operands stand in the text; none for a chain such as `0 < a < 1`.
    """

    column: int
    operator: str
    operands: tuple["TruthNode", ...]
    spans: tuple[tuple[int, int], ...] = ()


NumberNode = Number | Name | Negative | Arithmetic | Extreme
TruthNode = Known | Comparison | Not | Junction
Node = NumberNode | TruthNode


class Token(NamedTuple):
    """A piece of a clause; `kind` is number, name, symbol or end."""

    kind: str
    text: str
    column: int


class Tree(NamedTuple):
    """A clause read: its root, and each name in it in the order written (`Known` where in `known()`)."""

    root: Node
    names: tuple[Name | Known, ...]


def tree(
    text: str,
    signals: Collection[str],
    parameters: Collection[str],
    hints: Collection[str] = (),
    most_characters: int = MAX_LENGTH,
) -> Tree:
    """Reads a clause or a number; the names in it must be signals or parameters.

    `hints` are further names that a misspelt one may have been meant for.

    Raises:
        ExpressionError: for any text outside the grammar, with the column of the fault.
    """
    return _Reader(_tokens(text, most_characters), signals, parameters, hints).read()


def names_in(text: str) -> Iterator[tuple[int, str]]:
    """Each word of a text that may be a name, with its column; functions and `and`, `or`, `not` left out."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "name" and match.group() not in RESERVED:
            yield match.start(), match.group()


def numbers_in(text: str) -> Iterator[tuple[int, str]]:
    """Each number of a text as it is written, with its column."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "number":
            yield match.start(), match.group()


def _tokens(text: str, most_characters: int) -> list[Token]:
    if len(text) > most_characters:
        raise ExpressionError(f"longer than {most_characters} characters", most_characters)
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind, piece, column = str(match.lastgroup), match.group(), match.start()
        if not piece.isascii():
            raise ExpressionError(f"{piece!a} is not ASCII", column, "names may look alike and differ")
        if kind in {"foreign", "stray"}:
            shown = one_line(piece)
            raise ExpressionError(f"`{shown}` is not part of a clause", column, _INSTEAD.get(piece, ""))
        if kind == "number":
            _check_number(text, match)
        if kind != "blank":
            found.append(Token(kind, piece, column))
    found.append(Token("end", "", len(text)))
    if len(found) == 1:
        raise ExpressionError("empty", 0, "write a comparison such as `x > 0`")
    return found


def _check_number(text: str, match: re.Match[str]) -> None:
    after = text[match.end() : match.end() + 1]
    if after.isalnum() or after in {"_", "."}:
        raise ExpressionError(
            f"`{match.group()}{after}` is not a number", match.start(), "digits, one point, e3"
        )
    if re.match(r"0[0-9]", match.group()):
        raise ExpressionError(f"`{match.group()}` starts with a zero", match.start(), "leave the zero out")
    if not isfinite(float(match.group())):
        raise ExpressionError("too large a number", match.start())


class _Reader:
    """Recursive descent over the tokens; one method a line of the grammar."""

    def __init__(
        self,
        tokens: list[Token],
        signals: Collection[str],
        parameters: Collection[str],
        hints: Collection[str],
    ) -> None:
        self._hints = hints
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._signals = signals
        self._parameters = parameters
        self._names: list[Name | Known] = []

    def read(self) -> Tree:
        root = self._junction("or")
        if self._next.kind != "end":
            raise self._unexpected()
        return Tree(root, tuple(self._names))

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    @property
    def _end(self) -> int:
        """Where the last token taken ends."""
        last = self._tokens[self._at - 1]
        return last.column + len(last.text)

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _unexpected(self) -> ExpressionError:
        token = self._next
        if token.kind == "end":
            return ExpressionError("ends where a value is expected", token.column)
        return ExpressionError(f"`{token.text}` is not expected here", token.column)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise ExpressionError(f"nested deeper than {MAX_NESTING}", self._next.column)

    def _junction(self, operator: str) -> Node:
        begin = self._next.column
        first = self._conjunct() if operator == "or" else self._negated()
        if self._next.text != operator:
            return first
        operands, spans = [_truth(first)], [(begin, self._end)]
        while self._next.text == operator:
            self._take()
            begin = self._next.column
            operands.append(_truth(self._conjunct() if operator == "or" else self._negated()))
            spans.append((begin, self._end))
        return Junction(first.column, operator, tuple(operands), tuple(spans))

    def _conjunct(self) -> Node:
        return self._junction("and")

    def _negated(self) -> Node:
        if self._next.text != "not":
            return self._comparison()
        column = self._take().column
        self._deeper()
        operand = _truth(self._negated())
        self._depth -= 1
        return Not(column, operand)

    def _comparison(self) -> Node:
        first = self._sum()
        if self._next.text not in COMPARISONS:
            return first
        left, links = _number(first), list[TruthNode]()
        while self._next.text in COMPARISONS:
            operator = self._take().text
            right = _number(self._sum())
            links.append(Comparison(left.column, operator, left, right))
            left = right
        return links[0] if len(links) == 1 else Junction(first.column, "and", tuple(links))

    def _sum(self) -> Node:
        node = self._product()
        while self._next.text in {"+", "-"}:
            operator = self._take().text
            node = Arithmetic(node.column, operator, _number(node), _number(self._product()))
        return node

    def _product(self) -> Node:
        node = self._signed()
        while self._next.text in {"*", "/"}:
            operator = self._take().text
            node = Arithmetic(node.column, operator, _number(node), _number(self._signed()))
        return node

    def _signed(self) -> Node:
        if self._next.text != "-":
            return self._atom()
        column = self._take().column
        self._deeper()
        operand = _number(self._signed())
        self._depth -= 1
        return Negative(column, operand)

    def _atom(self) -> Node:
        token = self._next
        if token.kind == "number":
            return Number(self._take().column, float(token.text))
        if token.kind == "name" and token.text not in {"and", "or", "not"}:
            return self._call() if self._tokens[self._at + 1].text == "(" else self._name()
        if token.text == "(":
            self._take()
            self._deeper()
            inner = self._junction("or")
            self._close()
            return inner
        raise self._unexpected()

    def _close(self) -> None:
        if self._next.text != ")":
            if self._next.kind == "end":
                raise ExpressionError("`)` is missing", self._next.column)
            raise self._unexpected()
        self._take()
        self._depth -= 1

    def _name(self) -> Name:
        token = self._take()
        if token.text in FUNCTIONS:
            raise ExpressionError(f"`{token.text}` wants its arguments", token.column, f"{token.text}(...)")
        if token.text not in self._signals and token.text not in self._parameters:
            raise self._unknown(token, {*self._signals, *self._parameters, *self._hints})
        name = Name(token.column, token.text)
        self._names.append(name)
        return name

    def _unknown(self, token: Token, known: Collection[str]) -> ExpressionError:
        shown = token.text if len(token.text) <= 80 else token.text[:80] + "..."
        return ExpressionError(f"no signal is named `{shown}`", token.column, nearest(token.text, known))

    def _call(self) -> Node:
        token = self._take()
        if token.text not in FUNCTIONS:
            raise ExpressionError(
                f"`{token.text[:80]}` is not a function", token.column, "only min, max, known"
            )
        self._take()
        self._deeper()
        if token.text == "known":
            return self._known(token)
        operands = [_number(self._junction("or"))]
        while self._next.text == ",":
            self._take()
            operands.append(_number(self._junction("or")))
        self._close()
        if len(operands) == 1:
            raise ExpressionError(f"`{token.text}` wants two numbers or more", token.column)
        return Extreme(token.column, token.text, tuple(operands))

    def _known(self, call: Token) -> Known:
        token = self._next
        if token.kind != "name":
            raise ExpressionError("`known` wants the name of a signal", token.column)
        if token.text not in self._signals:
            raise self._unknown(token, self._signals)
        self._take()
        self._close()
        known = Known(call.column, token.text)
        self._names.append(known)
        return known


def _number(node: Node) -> NumberNode:
    if isinstance(node, NumberNode):
        return node
    raise ExpressionError("a number is expected here, this is a yes or no", node.column)


def _truth(node: Node) -> TruthNode:
    if isinstance(node, TruthNode):
        return node
    hint = f"compare it: `{node.name} > 0`" if isinstance(node, Name) else "compare it with something"
    raise ExpressionError("a yes or no is expected here, this is a number", node.column, hint)
