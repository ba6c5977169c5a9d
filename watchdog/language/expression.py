"""An expression of a rule: a clause (yes, no, unknown) or a number, over signals and parameters."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchdog.history.number import finite
from watchdog.language.evaluation import number_function, truth_function
from watchdog.language.grammar import NumberNode, tree
from watchdog.language.shown import Shown, shown_of
from watchdog.model import Evidence, Lookup, Truth

NO_PARAMETERS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression ready to be evaluated.

    `names` are the signals it reads, in the order written; `parameters` the values bound into it.
    `truth` is for a clause and `number` for a number; the other one raises TypeError.
    """

    text: str
    names: tuple[str, ...]
    is_clause: bool
    parameters: Mapping[str, float] = field(hash=False)
    truth: Callable[[Lookup], Truth] = field(compare=False, repr=False)
    number: Callable[[Lookup], float | None] = field(compare=False, repr=False)
    shown: Shown = field(compare=False, repr=False)
    """How it is printed."""

    def missing(self, lookup: Lookup) -> tuple[str, ...]:
        """The signals it reads that have no value now."""
        return tuple(name for name in self.names if finite(lookup(name)) is None)


def parse(text: str, known: Collection[str], parameters: Mapping[str, float] = NO_PARAMETERS) -> Expression:
    """Reads an expression over known signals and parameters, whose values are bound into it.

    Raises:
        ExpressionError: for any text outside the grammar, with the column of the fault.
    """
    root, names = tree(text, known, parameters)
    used = dict.fromkeys(name.name for name in names)
    is_clause = not isinstance(root, NumberNode)
    return Expression(
        text=text,
        names=tuple(name for name in used if name not in parameters),
        is_clause=is_clause,
        parameters=MappingProxyType({name: parameters[name] for name in used if name in parameters}),
        truth=_no_truth if isinstance(root, NumberNode) else truth_function(root, parameters),
        number=number_function(root, parameters) if isinstance(root, NumberNode) else _no_number,
        shown=shown_of(text, root, names, parameters),
    )


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
