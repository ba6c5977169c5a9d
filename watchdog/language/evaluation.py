"""A clause's tree as plain functions: three-valued, total, quick.

An unknown operand makes the result unknown; so do a division by zero and a result that is not finite.
Of a value known only as a bound (`AtLeast`, `AtMost`) a comparison says yes or no where every value within the bound
agrees, else unknown. The arithmetic is that of signals (`history/number.py`).
"""

import operator
from collections.abc import Callable, Mapping
from math import isfinite

from watchdog.history.number import calculation, ends, finite, greatest, least, negated
from watchdog.language.grammar import (
    Arithmetic,
    Comparison,
    Extreme,
    Junction,
    Known,
    Name,
    Negative,
    Not,
    Number,
    NumberNode,
    TruthNode,
)
from watchdog.model import Lookup, Truth

NumberFunction = Callable[[Lookup], float | None]
TruthFunction = Callable[[Lookup], Truth]

_YES, _NO, _UNKNOWN = Truth.YES, Truth.NO, Truth.UNKNOWN
_CONTRARY = {_YES: _NO, _NO: _YES, _UNKNOWN: _UNKNOWN}
_HOLDS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MIRRORED = {">": "<", ">=": "<="}


def number_function(node: NumberNode, parameters: Mapping[str, float]) -> NumberFunction:
    """A function that computes the number; parameters are bound into it."""
    constant = _constant(node, parameters)
    match node:
        case Number(value=value):
            return lambda _lookup: value
        case _ if constant is not None:
            return lambda _lookup: constant
        case Name(name=name):
            return _signal(name)
        case Negative(operand=operand):
            return _negative(number_function(operand, parameters))
        case Arithmetic(operator=sign, left=left, right=right):
            return _arithmetic(sign, number_function(left, parameters), number_function(right, parameters))
        case Extreme(function=function, operands=operands):
            return _extreme(function, [number_function(operand, parameters) for operand in operands])


def truth_function(node: TruthNode, parameters: Mapping[str, float]) -> TruthFunction:
    """A function that answers yes, no or unknown; parameters are bound into it."""
    match node:
        case Comparison():
            return _comparison(node, parameters)
        case Known(name=name):
            return lambda lookup: _NO if finite(lookup(name)) is None else _YES
        case Not(operand=operand):
            inner = truth_function(operand, parameters)
            return lambda lookup: _CONTRARY[inner(lookup)]
        case Junction(operator=word, operands=operands):
            decisive = _NO if word == "and" else _YES
            return _junction(decisive, [truth_function(operand, parameters) for operand in operands])


def _constant(node: NumberNode, parameters: Mapping[str, float]) -> float | None:
    """The value of a number that no signal is part of; None for any other, and for a division by zero."""
    match node:
        case Number(value=value):
            return value
        case Name(name=name):
            return parameters.get(name)
        case Negative(operand=operand):
            turned = _constant(operand, parameters)
            return None if turned is None else -turned
        case Arithmetic(operator=sign, left=left, right=right):
            first, second = _constant(left, parameters), _constant(right, parameters)
            return _arithmetic(sign, lambda _: first, lambda _: second)(parameters.get)
    return None


def _signal(name: str) -> NumberFunction:
    def signal(lookup: Lookup) -> float | None:
        value = lookup(name)
        return value if type(value) is float and isfinite(value) else finite(value)

    return signal


def _negative(operand: NumberFunction) -> NumberFunction:
    def negative(lookup: Lookup) -> float | None:
        value = operand(lookup)
        return None if value is None else negated(value)

    return negative


def _arithmetic(sign: str, left: NumberFunction, right: NumberFunction) -> NumberFunction:
    calculate = calculation(sign)

    def arithmetic(lookup: Lookup) -> float | None:
        first = left(lookup)
        if first is None:
            return None
        second = right(lookup)
        return None if second is None else calculate(first, second)

    return arithmetic


def _extreme(function: str, operands: list[NumberFunction]) -> NumberFunction:
    choose = least if function == "min" else greatest

    def extreme(lookup: Lookup) -> float | None:
        values = []
        for operand in operands:
            value = operand(lookup)
            if value is None:
                return None
            values.append(value)
        return choose(values)

    return extreme


def _comparison(node: Comparison, parameters: Mapping[str, float]) -> TruthFunction:
    sign, limit = node.operator, _constant(node.right, parameters)
    if isinstance(node.left, Name) and node.left.name not in parameters and limit is not None:
        return _against_constant(sign, node.left.name, limit)
    left, right = number_function(node.left, parameters), number_function(node.right, parameters)
    holds = _HOLDS[sign]

    def comparison(lookup: Lookup) -> Truth:
        first = left(lookup)
        if first is None:
            return _UNKNOWN
        second = right(lookup)
        if type(first) is float and type(second) is float:
            return _YES if holds(first, second) else _NO
        return _UNKNOWN if second is None else _compare(sign, first, second)

    return comparison


def _against_constant(sign: str, name: str, limit: float) -> TruthFunction:
    """The common clause, a signal against a number, without the detours of the others."""
    holds = _HOLDS[sign]

    def comparison(lookup: Lookup) -> Truth:
        value = lookup(name)
        if type(value) is float and isfinite(value):
            return _YES if holds(value, limit) else _NO
        known = finite(value)
        return _UNKNOWN if known is None else _compare(sign, known, limit)

    return comparison


def _compare(sign: str, left: float, right: float) -> Truth:
    """Of what the true values can be: yes where all agree, no where none does."""
    if sign in {">", ">="}:
        return _compare(_MIRRORED[sign], right, left)
    (least_left, most_left), (least_right, most_right) = ends(left), ends(right)
    if sign in {"<", "<="}:
        holds, fails = _HOLDS[sign], _HOLDS[">=" if sign == "<" else ">"]
        return _YES if holds(most_left, least_right) else _NO if fails(least_left, most_right) else _UNKNOWN
    apart = most_left < least_right or most_right < least_left
    same = least_left == most_left == least_right == most_right
    equal = _NO if apart else _YES if same else _UNKNOWN
    return equal if sign == "==" else _CONTRARY[equal]


def _junction(decisive: Truth, operands: list[TruthFunction]) -> TruthFunction:
    otherwise = _CONTRARY[decisive]

    def junction(lookup: Lookup) -> Truth:
        result = otherwise
        for operand in operands:
            truth = operand(lookup)
            if truth is decisive:
                return decisive
            if truth is _UNKNOWN:
                result = _UNKNOWN
        return result

    return junction
