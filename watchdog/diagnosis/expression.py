"""An expression of a rule: a clause (yes, no, unknown) or a number, over signals and parameters."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchdog.diagnosis.evaluation import Lookup, finite, number_function, truth_function
from watchdog.diagnosis.grammar import Name, NumberNode, tree
from watchdog.model import Evidence, Truth
from watchdog.signals.number import AtLeast

__all__ = ["Expression", "Lookup", "number_text", "parse", "render"]

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
    shown: tuple[tuple[int, str], ...] = field(compare=False, repr=False)
    """Where a value is put when it is printed: the column after a name, and the name."""

    def missing(self, lookup: Lookup) -> tuple[str, ...]:
        """The signals it reads that have no value now."""
        return tuple(name for name in self.names if finite(lookup(name)) is None)


def parse(text: str, known: Collection[str], parameters: Mapping[str, float] = NO_PARAMETERS) -> Expression:
    """Read an expression over known signals and parameters, whose values are bound into it.

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
        shown=tuple((name.column + len(name.name), name.name) for name in names if isinstance(name, Name)),
    )


def render(expression: Expression, lookup: Lookup) -> Evidence:
    """The clause as written, with each name's value behind it: `kv_usage_peak_ratio (0.98) > 0.75`."""
    values = {name: finite(lookup(name)) for name in expression.names} | dict(expression.parameters)
    pieces, start = [], 0
    for end, name in expression.shown:
        pieces.append(f"{expression.text[start:end]} ({number_text(values[name])})")
        start = end
    pieces.append(expression.text[start:])
    return Evidence(expression.text, MappingProxyType(values), " ".join("".join(pieces).split()))


def number_text(value: float | None) -> str:
    """A number as a person writes it: four digits or all of a whole part; "unknown", ">= x" for a bound."""
    if value is None:
        return "unknown"
    mark = ">= " if isinstance(value, AtLeast) else ""
    plain = float(value)
    if plain == int(plain) or abs(plain) >= 1000:
        return mark + (f"{plain:.0f}" if abs(plain) < 1e15 else f"{plain:.4g}")
    return mark + f"{plain:.4g}"


def _no_truth(_lookup: Lookup) -> Truth:
    raise TypeError("a number has no truth")


def _no_number(_lookup: Lookup) -> float | None:
    raise TypeError("a clause has no number")
