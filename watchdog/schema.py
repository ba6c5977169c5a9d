"""Pydantic models as the shape of people's files: values that several share, their keys, and their faults."""

import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from watchdog.strict_yaml import KEY, Path, Word
from watchdog.text import duration_seconds, one_line

LONGEST_SECONDS = 366 * 86400.0


def text(value: Any) -> Any:
    """Refuses what is no text to every reader of YAML; what is no scalar is handed back for the field to refuse."""
    if isinstance(value, Word) and not value.is_text:
        raise PydanticCustomError(
            "text_ambiguous", "must be text, in quotes where it looks like something else"
        )
    return value


def duration(value: Any) -> Any:
    """Seconds from a number or a text such as `90`, `5s` or `1m30s`; the fault says what is one."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    try:
        return duration_seconds(value if isinstance(value, str) else "")
    except ValueError:
        raise PydanticCustomError("duration", "must be a duration such as 5s, 1m30s or 2h") from None


_DURATION = BeforeValidator(duration)
Text = Annotated[str, BeforeValidator(text)]
Duration = Annotated[
    float,
    _DURATION,
    Field(ge=0, le=LONGEST_SECONDS),
    WithJsonSchema({"type": ["string", "number"], "format": "duration", "minimum": 0}),
]


class Problem(NamedTuple):
    """A fault that pydantic found: `path` leads to it, `kind` is pydantic's name for it, `context` its details."""

    path: Path
    kind: str
    message: str
    context: Mapping[str, Any]


def problems(error: ValidationError) -> Iterator[Problem]:
    """The faults of an error; no value is in them, unless whoever refused it put it there."""
    for fault in error.errors(include_url=False, include_input=False):
        message = fault["msg"].removeprefix("Value error, ")
        message = re.sub(
            "^(?:input|string|list|dictionary) should ", "must ", message[:1].lower() + message[1:]
        )
        yield Problem(tuple(fault["loc"]), fault["type"], message, fault.get("ctx", {}))


def choices(problem: Problem) -> tuple[str, ...]:
    """What may be chosen where the choice is the fault; empty for any other."""
    if problem.kind not in {"enum", "literal_error"}:
        return ()
    return tuple(re.findall("'([^']*)'", str(problem.context["expected"])))


def dotted(path: Path) -> str:
    """A path as people write it: `targets[0].url`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path if step != KEY)
    return one_line("".join(steps).lstrip("."), 200)


def bare(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `| None`."""
    if hasattr(annotation, "__metadata__"):
        return bare(annotation.__origin__)
    if get_origin(annotation) in {Union, UnionType}:
        return bare(next(each for each in get_args(annotation) if each is not type(None)))
    return annotation


def is_duration(annotation: Any) -> bool:
    """Whether it takes a duration, or nothing."""
    parts = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    return any(_DURATION in getattr(part, "__metadata__", ()) for part in parts)


def is_model(annotation: Any) -> bool:
    """Whether it is a model: a mapping with known keys."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def key_of(name: str, field: FieldInfo) -> str:
    """A field's key as people write it."""
    return field.validation_alias if isinstance(field.validation_alias, str) else name


def keys(model: Any) -> dict[str, FieldInfo]:
    """The keys that a model knows; none for what is no model."""
    return {key_of(name, each): each for name, each in model.model_fields.items()} if is_model(model) else {}


def field_at(model: type[BaseModel], path: Path) -> Any:
    """The bare annotation of the value at `path`; None where the model knows of no such key."""
    annotation: Any = model
    for step in path:
        kind = get_origin(annotation) or annotation
        if is_model(kind):
            found = keys(kind).get(str(step))
            if found is None:
                return None
            annotation = bare(found.annotation)
        elif kind in {list, tuple, dict}:
            annotation = bare(get_args(annotation)[-1 if kind is dict else 0])
        else:
            return None
    return annotation
