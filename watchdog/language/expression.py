"""An expression of a rule: a clause (yes, no, unknown) or a number, over signals and parameters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from watchdog.errors import ExpressionError
from watchdog.history.number import finite
from watchdog.language.evaluation import number_function, truth_function
from watchdog.language.grammar import MAX_LENGTH, MAX_WHOLE_LENGTH, Junction, NumberNode, names_in, tree
from watchdog.language.shown import Shown, shown_of
from watchdog.model import Evidence, Lookup, Truth

NO_PARAMETERS: Mapping[str, float] = MappingProxyType({})
NO_PARTS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression ready to be evaluated.

    `text` is what was written, `names` are the signals it reads, in the order written; `parameters` the values
    bound into it. `operator` is `and` or `or` where it joins clauses, else empty; `parts` are the named parts in it.
    `truth` is for a clause and `number` for a number; the other one raises TypeError.
    """

    text: str
    names: tuple[str, ...]
    is_clause: bool
    operator: str
    parts: frozenset[str]
    parameters: Mapping[str, float] = field(hash=False)
    truth: Callable[[Lookup], Truth] = field(compare=False, repr=False)
    number: Callable[[Lookup], float | None] = field(compare=False, repr=False)
    shown: Shown = field(compare=False, repr=False)
    """How it is printed."""

    def missing(self, lookup: Lookup) -> tuple[str, ...]:
        """The signals it reads that have no value now."""
        return tuple(name for name in self.names if finite(lookup(name)) is None)


def parse(
    text: str,
    known: Collection[str],
    parameters: Mapping[str, float] = NO_PARAMETERS,
    parts: Mapping[str, str] = NO_PARTS,
) -> Expression:
    """Reads an expression over known signals and parameters, whose values are bound into it.

    `parts` are texts by name: where the name stands, its text is meant, in brackets.

    Raises:
        ExpressionError: for any text outside the grammar, with the column of the fault.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"longer than {MAX_LENGTH} characters", MAX_LENGTH)
    return _parse(text, known, parameters, parts)


def join(
    word: str,
    expressions: Sequence[Expression],
    known: Collection[str],
    parameters: Mapping[str, float] = NO_PARAMETERS,
    parts: Mapping[str, str] = NO_PARTS,
) -> Expression:
    """One clause of several, joined by `and` or `or`, which were read with the same names.

    Raises:
        ExpressionError: where it is longer or nested deeper than a clause may be.
    """
    texts = (f"({one.text})" if one.operator not in {"", word} else one.text for one in expressions)
    return _parse(f" {word} ".join(texts), known, parameters, parts)


def _parse(
    text: str, known: Collection[str], parameters: Mapping[str, float], parts: Mapping[str, str]
) -> Expression:
    whole, replaced = _put_in(text, parts)
    try:
        root, names = tree(whole, known, parameters, parts, MAX_WHOLE_LENGTH)
    except ExpressionError as error:
        raise ExpressionError(error.message, _column_in(text, error.column, replaced), error.hint) from None
    used = dict.fromkeys(name.name for name in names)
    is_clause = not isinstance(root, NumberNode)
    return Expression(
        text=text,
        names=tuple(name for name in used if name not in parameters),
        is_clause=is_clause,
        operator=root.operator if isinstance(root, Junction) and root.spans else "",
        parts=frozenset(name for _, name in names_in(text) if name in parts),
        parameters=MappingProxyType({name: parameters[name] for name in used if name in parameters}),
        truth=_no_truth if isinstance(root, NumberNode) else truth_function(root, parameters),
        number=number_function(root, parameters) if isinstance(root, NumberNode) else _no_number,
        shown=shown_of(whole, root, names, parameters),
    )


class _Replaced(NamedTuple):
    """A named part in a text: the column of the name, the length of that, and of what stands there instead."""

    column: int
    name_length: int
    length: int


def _put_in(text: str, parts: Mapping[str, str]) -> tuple[str, list[_Replaced]]:
    """The text with each named part put in, and where."""
    pieces, replaced, start = [], [], 0
    for column, name in names_in(text) if parts else ():
        if name in parts:
            piece = f"({parts[name]})"
            pieces += [text[start:column], piece]
            replaced.append(_Replaced(column, len(name), len(piece)))
            start = column + len(name)
    return "".join([*pieces, text[start:]]), replaced


def _column_in(text: str, column: int, replaced: Sequence[_Replaced]) -> int:
    """The column in a text of what stands at `column` once the parts are put in; of a part its name."""
    for one in replaced:
        if column < one.column:
            break
        if column < one.column + one.length:
            return one.column
        column -= one.length - one.name_length
    return min(column, len(text))


def render(expression: Expression, lookup: Lookup) -> Evidence:
    """The clause with each name's value behind it: `kv_usage_peak_ratio (0.98) > 0.75`.

    Of a clause that holds, only the alternatives that hold are printed.
    """
    values = {name: finite(lookup(name)) for name in expression.names} | dict(expression.parameters)
    holds = expression.is_clause and expression.truth(lookup) is Truth.YES
    text = expression.shown.held(values, lookup) if holds else expression.shown.whole(values)
    return Evidence(expression.text, values, " ".join(text.split()))


def _no_truth(_lookup: Lookup) -> Truth:
    raise TypeError("a number has no truth")


def _no_number(_lookup: Lookup) -> float | None:
    raise TypeError("a clause has no number")
