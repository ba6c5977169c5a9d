"""Clauses and numbers as a rule file writes them: a text, or a group of clauses of which any or all must hold."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from watchdog import schema
from watchdog.errors import ExpressionError
from watchdog.language.expression import NO_PARAMETERS, Expression, join, parse
from watchdog.language.grammar import RESERVED, names_in, numbers_in
from watchdog.language.template import TEXTS, VALUE
from watchdog.strict_yaml import KEY, Path, Word

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][-+]?[0-9]{1,3})?")
NAME = re.compile(r"[a-z][a-z0-9_]*")
GROUPS: Mapping[str, str] = {"any": "or", "all": "and"}
"""The keys of groups, and the word that joins the clauses of each."""
LONGEST_CLAUSE = 120
"""A clause of more characters is hard to read: it becomes a group, or gets named parts."""
_NO_THRESHOLDS = frozenset({0.0, 1.0})
"""Numbers that say what they mean: nothing and something, none and all."""

REFUSED = "refused"
"""The kind of a fault whose message is ready to be shown; its context may hold hint, offset and known names."""


@dataclass(slots=True)
class Names:
    """What a file may speak of while it is read, and what it did speak of.

    `overrides` are values that settings give to parameters; `parameters` are those of the file with their values,
    `parts` the texts of its named parts. Where `strict`, a long clause is refused.
    """

    file_name: str
    signals: Collection[str]
    overrides: Mapping[str, float]
    parameters: Mapping[str, float] = field(default_factory=lambda: NO_PARAMETERS)
    parts: dict[str, str] = field(default_factory=dict)
    broken_parts: set[str] = field(default_factory=set)
    """Those that have a fault themselves; a clause that uses one is not read."""
    used: set[str] = field(default_factory=set)
    tests: set[str] = field(default_factory=set)
    strict: bool = False
    suggests: bool = False
    """Whether the remedy that is being read computes its value."""
    has_value: bool = False
    """Whether that remedy has a value at all."""


def names_of(info: ValidationInfo) -> Names:
    """The names of the file that is validated."""
    return cast("Names", info.context)


def refused(message: str, hint: str = "", **context: Any) -> PydanticCustomError:
    """A fault with its message as people read it."""
    return PydanticCustomError(REFUSED, "{message}", {"message": message, "hint": hint, **context})


def text_of(value: Any) -> str:
    """A text that is not empty; raises PydanticCustomError for anything else."""
    if not isinstance(value, str):
        raise refused("a text is expected here", "put it in quotes")
    if not value.strip():
        raise refused("empty")
    found: str = schema.text(value)
    return found


def in_grammar(error: ExpressionError) -> PydanticCustomError:
    """A fault in the text of a clause or template, at its column."""
    return refused(error.message, error.hint, offset=error.column)


def own_name(name: str, what: str, names: Names) -> str:
    """A name that a rule file gives to something of its own; raises PydanticCustomError where it may not have it."""
    if not NAME.fullmatch(name) or name in {*RESERVED, *TEXTS, VALUE}:
        raise refused(f"`{name}` cannot name a {what}", "a-z, 0-9 and _")
    if name in names.signals:
        raise refused(f"the {what} `{name}` has the name of a signal")
    return name


def read_clause(value: Any, info: ValidationInfo) -> Expression:
    """A clause, or a group of them; raises ValidationError with every fault in it."""
    return _read(value, names_of(info), _clause)


def read_number(value: Any, info: ValidationInfo) -> Expression:
    """A number; raises ValidationError."""
    return _read(value, names_of(info), _number)


def read_parts(value: Any, info: ValidationInfo) -> dict[str, Expression]:
    """Clauses and numbers by the name under which those after them may use them; raises ValidationError."""
    if not isinstance(value, dict):
        raise PydanticCustomError("dict_type", "must be a mapping")
    names, faults = names_of(info), _Faults()
    found: dict[str, Expression] = {}
    for name, one in value.items():
        with faults.at(name, KEY):
            _part_name(name, names)
        part = _collect(one, names, _part, (name,), faults)
        if part is None:
            names.broken_parts.add(name)
        else:
            found[name] = part
            # What stands for it in a clause: parts in it are put in already.
            names.parts[name] = part.shown.text
    faults.raise_all()
    return found


class _Faults(list[InitErrorDetails]):
    """Faults with their places below the value that is read."""

    def add(self, path: Path, fault: PydanticCustomError) -> None:
        self.append(InitErrorDetails(type=fault, loc=path, input=None))

    def at(self, *path: str | int) -> "_Place":
        """Takes the fault that its block raises."""
        return _Place(self, path)

    def raise_all(self) -> None:
        if self:
            raise ValidationError.from_exception_data("clause", list(self))


@dataclass(frozen=True, slots=True)
class _Place:
    faults: _Faults
    path: Path

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, PydanticCustomError):
            self.faults.add(self.path, error)
            return True
        return False


_Reading = Callable[[Any, Names], Expression]


def _read(value: Any, names: Names, read: _Reading) -> Expression:
    faults = _Faults()
    found = _collect(value, names, read, (), faults)
    faults.raise_all()
    return cast("Expression", found)


def _collect(value: Any, names: Names, read: _Reading, path: Path, faults: _Faults) -> Expression | None:
    """What stands at a path below; None where it has faults, which are then noted."""
    if isinstance(value, dict) and read is not _number:
        return _group(value, names, path, faults)
    if isinstance(value, str) and any(name in names.broken_parts for _, name in names_in(value)):
        return None
    with faults.at(*path):
        return read(value, names)
    return None


def _group(value: Mapping[str, Any], names: Names, path: Path, faults: _Faults) -> Expression | None:
    key = next(iter(value), "")
    clauses = value.get(key)
    if len(value) != 1 or key not in GROUPS:
        faults.add(path, refused("a group has one key, `any` or `all`", "with a list of clauses"))
        return None
    if not isinstance(clauses, list) or len(clauses) < 2:
        faults.add((*path, key), refused(f"`{key}` is a list of two clauses or more"))
        return None
    found = [
        _collect(clause, names, _clause, (*path, key, index), faults) for index, clause in enumerate(clauses)
    ]
    known = [clause for clause in found if clause is not None]
    if len(known) < len(found):
        return None
    with faults.at(*path, key):
        try:
            return join(GROUPS[key], known, names.signals, names.parameters, names.parts)
        except ExpressionError as error:
            raise refused(error.message) from None
    return None


def _part_name(name: str, names: Names) -> None:
    own_name(name, "part", names)
    if name in names.parameters:
        raise refused(f"the part `{name}` has the name of a parameter")


def _clause(value: Any, names: Names) -> Expression:
    text = text_of(value)
    found = _expression(text, names)
    if not found.is_clause:
        raise refused("a clause compares", "such as x > 0")
    if names.strict:
        _check_thresholds(text)
    return found


def _number(value: Any, names: Names) -> Expression:
    found = _clause_or_number(value, names)
    if found.is_clause:
        raise refused("a number is expected here, this is a yes or no")
    return found


def _part(value: Any, names: Names) -> Expression:
    found = _clause_or_number(value, names)
    if names.strict:
        _check_thresholds(found.text)
    return found


def _clause_or_number(value: Any, names: Names) -> Expression:
    is_number = isinstance(value, Word) and NUMBER.fullmatch(value)
    return _expression(str(value) if is_number else text_of(value), names)


def _expression(text: str, names: Names) -> Expression:
    try:
        found = parse(text, names.signals, names.parameters, names.parts)
    except ExpressionError as error:
        raise in_grammar(error) from None
    names.used.update(found.parameters, found.parts)
    if names.strict:
        _check_readable(text)
    return found


def _check_readable(text: str) -> None:
    length = len(" ".join(text.split()))
    if length > LONGEST_CLAUSE:
        raise refused(
            f"a clause of {length} characters; {LONGEST_CLAUSE} are the most",
            "make it a group with `any:` or `all:`, or name a part of it under `where:`",
        )


def _check_thresholds(text: str) -> None:
    for column, number in numbers_in(text):
        if float(number) not in _NO_THRESHOLDS:
            raise refused(
                f"{number} is a bare threshold", "make it a parameter, with its unit and why", offset=column
            )
