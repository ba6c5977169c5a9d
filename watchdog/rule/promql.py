"""A rule's clauses as PromQL over recorded signals, with yes, no and unknown kept apart.

A truth is two queries: one has a value for each engine of which it is yes, one for each of which it is no; an engine in
neither is unknown. A signal that PromQL cannot say is unknown for every engine, as it is to the service where the page
lacks it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from watchdog.history.number import calculation
from watchdog.language.expression import Expression
from watchdog.language.grammar import (
    MAX_WHOLE_LENGTH,
    Arithmetic,
    Comparison,
    Extreme,
    Junction,
    Known,
    Name,
    Negative,
    Node,
    Not,
    Number,
    NumberNode,
    TruthNode,
    tree,
)
from watchdog.rule.rule import Rule
from watchdog.signals.catalogue import signal_names

EVERY_ENGINE = "vllm_watchdog:engine"
"""The recorded series that has a 1 for each engine on the page."""

_CONTRARY = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}
# Queries for which engines something is: a text, or all (True), or none (False).
Engines = str | bool


class Query(NamedTuple):
    """A clause: the engines of which it is yes, and those of which it is no."""

    yes: Engines
    no: Engines


@dataclass(frozen=True, slots=True)
class Translator:
    """`series_of` gives the series that has a signal's values, None where PromQL cannot say it."""

    series_of: Callable[[str], str | None]

    def rule(self, rule: Rule) -> Engines:
        """For which engines the rule is yes: all of `when`, and of `unless` none that is yes."""
        found = _all(self.clause(clause).yes for clause in rule.when)
        guards = [self.clause(clause).yes for clause in rule.unless]
        if isinstance(found, bool) or True in guards:
            return found and True not in guards
        return found + "".join(f"\nunless\n{_bracketed(guard)}" for guard in guards if isinstance(guard, str))

    def clause(self, clause: Expression) -> Query:
        """The two queries of a clause."""
        read = tree(clause.shown.text, signal_names(), clause.parameters, most_characters=MAX_WHOLE_LENGTH)
        return self._truth(_as_truth(read.root), clause)

    def _truth(self, node: TruthNode, clause: Expression) -> Query:
        if isinstance(node, Known):
            series = self.series_of(node.name)
            return Query(series, f"{EVERY_ENGINE} unless {series}") if series else Query(False, True)
        if isinstance(node, Not):
            inner = self._truth(node.operand, clause)
            return Query(inner.no, inner.yes)
        if isinstance(node, Comparison):
            return self._comparison(node, clause)
        parts = [self._truth(each, clause) for each in node.operands]
        yes, no = [each.yes for each in parts], [each.no for each in parts]
        return Query(_all(yes), _any(no)) if node.operator == "and" else Query(_any(yes), _all(no))

    def _comparison(self, node: Comparison, clause: Expression) -> Query:
        left, right = self._number(node.left, clause), self._number(node.right, clause)
        if left is None or right is None:
            return Query(False, False)
        if isinstance(left, float) and isinstance(right, float):
            holds = _COMPARE[node.operator](left, right)
            return Query(holds, not holds)
        one, other = _written(left), _written(right)
        return Query(f"{one} {node.operator} {other}", f"{one} {_CONTRARY[node.operator]} {other}")

    def _number(self, node: NumberNode, clause: Expression) -> str | float | None:
        """A query, or a number, or None where it is unknown for every engine."""
        if isinstance(node, Number):
            return node.value
        if isinstance(node, Name):
            bound = clause.parameters.get(node.name)
            return float(bound) if bound is not None else self.series_of(node.name)
        if isinstance(node, Negative):
            inner = self._number(node.operand, clause)
            return inner if inner is None else -inner if isinstance(inner, float) else f"(-1 * {inner})"
        if isinstance(node, Extreme):
            return _extreme(node.function, [self._number(each, clause) for each in node.operands])
        return _arithmetic(node, self._number(node.left, clause), self._number(node.right, clause))


def _arithmetic(node: Arithmetic, left: str | float | None, right: str | float | None) -> str | float | None:
    if left is None or right is None:
        return None
    if isinstance(left, float) and isinstance(right, float):
        found = calculation(node.operator)(left, right)
        return found if found is not None and isfinite(found) else None
    if node.operator == "/":
        if right == 0:
            return None
        if isinstance(right, str):
            right = f"({right} != 0)"
    return f"({_written(left)} {node.operator} {_written(right)})"


def _extreme(function: str, operands: list[str | float | None]) -> str | float | None:
    numbers = [each for each in operands if isinstance(each, float)]
    queries = [each for each in operands if isinstance(each, str)]
    if len(numbers) + len(queries) < len(operands):
        return None
    bound = (max(numbers) if function == "max" else min(numbers)) if numbers else None
    if not queries:
        return bound
    # Of two, the first where it is the one, else the second: where one is unknown, so is this.
    sign, contrary = (">=", "<") if function == "max" else ("<=", ">")
    found = queries[0]
    for each in queries[1:]:
        found = f"(({found} {sign} {each}) or ({each} and {found} {contrary} {each}))"
    return found if bound is None else f"clamp_{'min' if function == 'max' else 'max'}({found}, {bound:.12g})"


def _written(number: str | float) -> str:
    return number if isinstance(number, str) else f"{number:.12g}"


def _all(parts: Iterable[Engines]) -> Engines:
    queries = []
    for each in parts:
        if each is False:
            return False
        if isinstance(each, str):
            queries.append(each)
    return _joined("and", queries) if queries else True


def _any(parts: Iterable[Engines]) -> Engines:
    queries = []
    for each in parts:
        if each is True:
            return True
        if isinstance(each, str):
            queries.append(each)
    return _joined("or", queries) if queries else False


def _joined(word: str, queries: list[str]) -> str:
    return queries[0] if len(queries) == 1 else f"\n{word}\n".join(map(_bracketed, queries))


def _bracketed(query: str) -> str:
    """The query in brackets, indented where it has several lines."""
    if "\n" not in query:
        return f"({query})"
    return "(\n  " + query.replace("\n", "\n  ") + "\n)"


def _as_truth(node: Node) -> TruthNode:
    assert isinstance(node, Known | Comparison | Not | Junction)  # noqa: S101 - clauses are yes or no
    return node
