"""Where settings come from: layers that remember the place of every value, and faults told by place."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from watchdog import strict_yaml
from watchdog.errors import ConfigError
from watchdog.strict_yaml import Place
from watchdog.text import nearest, one_line

PREFIX = "WATCHDOG_"
CONFIG_VARIABLE = "WATCHDOG_CONFIG"

_SERVICE_LINK = re.compile(
    r"WATCHDOG_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$"
)
"""What Kubernetes and Docker tell every container of a service called `watchdog`: not meant for us."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values of one source, the place each came from, and what was wrong or odd about the source itself."""

    values: Mapping[str, Any] = field(default_factory=dict)
    places: Mapping[Place, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def place(self, path: Place) -> str | None:
        """Where the value at `path` was given; None when this layer leaves it to the layers below.

        A list is taken whole from one layer, so all below a list belongs to the layer that gave the list.
        """
        value: Any = self.values
        decided = False
        for depth, step in enumerate(path):
            decided = decided or not isinstance(value, dict)
            if not _inside(value, step):
                return self._nearest(path[:depth]) if decided else None
            value = value[step]
        return self._nearest(path)

    def _nearest(self, path: Place) -> str | None:
        ends = range(len(path), -1, -1)
        return next((self.places[path[:end]] for end in ends if path[:end] in self.places), None)


class _Source(PydanticBaseSettingsSource):
    """A layer as pydantic-settings wants it."""

    def __init__(self, settings: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.values = dict(values)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Not used: a layer is given whole."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return self.values


@dataclass(frozen=True, slots=True)
class Layers:
    """All layers, the strongest first."""

    layers: tuple[Layer, ...]

    def sources(self, settings: type[BaseSettings]) -> tuple[PydanticBaseSettingsSource, ...]:
        """The layers for pydantic-settings, which merges them."""
        return tuple(_Source(settings, layer.values) for layer in self.layers)

    def faults(self) -> list[str]:
        """What is wrong with the sources themselves."""
        return [fault for layer in self.layers for fault in layer.faults]

    def warnings(self) -> tuple[str, ...]:
        """What is odd about the sources."""
        return tuple(warning for layer in self.layers for warning in layer.warnings)

    def unreadable_files(self, settings: type[BaseModel]) -> list[str]:
        """A fault for each file that the settings name and that cannot be read, or holds an empty secret."""
        merged: dict[str, Any] = {}
        for layer in reversed(self.layers):
            for key, value in layer.values.items():
                _put(merged, (key,), deepcopy(value))
        faults = []
        for path, value in _files(settings, (), merged):
            reason = _unreadable(Path(value), is_secret=str(path[-1]) in _SECRET_FILES)
            if reason:
                place = self.place(path)
                text = f"{dotted(path)}: {one_line(str(value), 100)} {reason}"
                faults.append(f"{place}: {text}" if place else text)
        return faults

    def place(self, path: Place) -> str:
        """Where the value at `path` was given, by the strongest layer that has it; empty for a default."""
        return next((place for layer in self.layers if (place := layer.place(path))), "")


def command_line(overrides: Mapping[str, object]) -> Layer:
    """The command line's values; keys may be dotted, None means not given."""
    values: dict[str, Any] = {}
    for key, value in overrides.items():
        if value is not None:
            _put(values, tuple(key.split(".")), value)
    return Layer(values=values, places={(): "command line"})


def file_layer(path: Path) -> Layer:
    """A YAML file's values; a file that cannot be read or is no mapping is a fault, never an exception."""
    try:
        with path.open("rb") as file:
            content = file.read(strict_yaml.MAX_CHARACTERS + 1)
        document = strict_yaml.read(content.decode("utf-8-sig"), str(path))
    except OSError as error:
        return Layer(faults=(f"{path}: cannot be read: {error.strerror or type(error).__name__}",))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Layer(faults=(f"{path}:{line}: not UTF-8 text",))
    except ConfigError as error:
        return Layer(faults=error.faults)
    places = {place: f"{path}:{line}" for place, line in document.lines.items()}
    if document.value is None:
        return Layer(warnings=(f"{path}: the file is empty",))
    if not isinstance(document.value, dict):
        return Layer(faults=(f"{path}:1: must be a mapping of settings, such as `targets:`",))
    return Layer(values=_without_nulls(document.value), places=places)


def environment_layer(settings: type[BaseModel], environment: Mapping[str, str]) -> Layer:
    """Values of WATCHDOG_* variables: `__` goes one level down, lists are JSON or comma-separated,
    and WATCHDOG_X_FILE gives X from a file."""
    values: dict[str, Any] = {}
    places: dict[Place, str] = {}
    faults: list[str] = []
    warnings: list[str] = []
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE or _SERVICE_LINK.match(variable):
            continue
        path, from_file = _variable_path(settings, variable)
        if path is None:
            warnings.append(f"{variable}: no such setting, ignored{_meant(variable, _variables(settings))}")
            continue
        try:
            text = _file_text(environment[variable]) if from_file else environment[variable]
            _put(values, path, _parsed(text, _field(settings, path)))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            faults.append(f"{variable}: the file it names cannot be read: {reason}")
        except ValueError:
            faults.append(f"{variable}: must be JSON, or plain items with commas between them")
        else:
            places[path] = variable
    return Layer(values=values, places=places, faults=tuple(faults), warnings=tuple(warnings))


def fault_texts(settings: type[BaseModel], error: ValidationError, layers: Layers) -> list[str]:
    """One line a fault: where it was given, its key path, what is wrong, the nearest known key for a typo."""
    found: list[tuple[int, str]] = []
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        path: Place = tuple(fault["loc"])
        if fault["type"] == "extra_forbidden":
            names = _names(_field(settings, path[:-1]))
            message = f"no such setting{_meant(str(path[-1]), names)}"
        else:
            message = _message(fault["type"], fault["msg"])
        place = layers.place(path)
        text = f"{place}: {dotted(path)}: {message}" if place else f"{dotted(path)}: {message}"
        line = place.rpartition(":")[2]
        found.append((int(line) if line.isdecimal() else 0, text))
    # As a person goes through the file.
    return [text for _, text in sorted(found, key=lambda each: each[0])]


_WANTED = {
    "missing": "must be given",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping, such as {name: value}",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "list_type": "must be a list, such as [a, b]",
    "model_type": "must be a mapping of settings",
    "string_type": "must be text, in quotes where it looks like a number",
}


def _message(kind: str, text: str) -> str:
    """What a value must be, in words of a settings file instead of Python's types."""
    if kind in _WANTED:
        return _WANTED[kind]
    message = text.removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return re.sub("^input should be ", "must be ", message)


def dotted(path: Iterable[str | int]) -> str:
    """A key path as people write it: `targets[0].url`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{one_line(step, 100)}"
    return text.lstrip(".")


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f" ({near})" if near else ""


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        inner = values.setdefault(step, {})
        if not isinstance(inner, dict):
            inner = values[step] = {}
        values = inner
    last = path[-1]
    old = values.get(last)
    if isinstance(old, dict) and isinstance(value, Mapping):
        for key, each in value.items():
            _put(old, (key,), each)
    else:
        values[last] = value


def _without_nulls(value: Any) -> Any:
    """A key with nothing after it means its default, as in `rules:` with all lines below commented out."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _file_text(path: str) -> str:
    with Path(path).open("rb") as file:
        return file.read(strict_yaml.MAX_CHARACTERS).decode().strip()


def _parsed(text: str, annotation: Any) -> Any:
    """A variable's text as what its setting wants: JSON for lists and mappings, else the text itself."""
    kind = get_origin(annotation) or annotation
    if kind not in {list, dict} and not _is_model(kind):
        return text
    stripped = text.strip()
    if stripped[:1] in {"[", "{"}:
        return json.loads(stripped)
    items = [item.strip() for item in stripped.split(",") if item.strip()]
    if kind is list:
        return items
    pairs = [item.partition("=") for item in items]
    if not all(mark for _, mark, _ in pairs):
        raise ValueError
    return {key.strip(): value.strip() for key, _, value in pairs}


def _variable_path(settings: type[BaseModel], variable: str) -> tuple[tuple[str, ...] | None, bool]:
    path = tuple(variable.removeprefix(PREFIX).lower().split("__"))
    if _field(settings, path) is not None:
        return path, False
    if path[-1].endswith("_file"):
        shorter = (*path[:-1], path[-1].removesuffix("_file"))
        if _field(settings, shorter) is not None:
            return shorter, True
    return None, False


def _inside(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


_SECRET_FILES = frozenset({"bearer_token_file", "password_file"})


def _files(settings: type[BaseModel], path: Place, value: Any) -> Iterator[tuple[Place, str | Path]]:
    """Every value that is meant to be a file's name, with its key path."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _files(settings, (*path, key), each)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _files(settings, (*path, index), each)
    elif isinstance(value, str | Path) and _field(settings, path) is Path and str(path[-1]).endswith("_file"):
        yield path, value


def _unreadable(path: Path, is_secret: bool) -> str:
    """Why the file is of no use; empty where it is. Its content goes nowhere."""
    try:
        with path.open("rb") as file:
            content = file.read(strict_yaml.MAX_CHARACTERS)
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or 'not a path'}"
    return "is empty" if is_secret and not content.strip() else ""


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _bare(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `| None`."""
    if hasattr(annotation, "__metadata__"):
        return _bare(annotation.__origin__)
    if get_origin(annotation) in {Union, UnionType}:
        kinds = [each for each in get_args(annotation) if each is not type(None)]
        return _bare(kinds[0])
    return annotation


def _key(name: str, field: FieldInfo) -> str:
    return field.validation_alias if isinstance(field.validation_alias, str) else name


def _names(annotation: Any) -> list[str]:
    """The keys that a model knows, as people write them."""
    if not _is_model(annotation):
        return []
    return [_key(name, field) for name, field in annotation.model_fields.items()]


def _field(settings: type[BaseModel], path: Place) -> Any:
    """What the models say of the value at `path`; None where they know of no such key."""
    annotation: Any = settings
    for step in path:
        kind = get_origin(annotation) or annotation
        if _is_model(kind):
            fields = {_key(name, field): field for name, field in kind.model_fields.items()}
            if step not in fields:
                return None
            annotation = _bare(fields[str(step)].annotation)
        elif kind in {list, dict}:
            annotation = _bare(get_args(annotation)[-1])
        else:
            return None
    return annotation


def _variables(settings: type[BaseModel]) -> Iterator[str]:
    """Every variable that is read, but those inside lists and mappings."""
    yield CONFIG_VARIABLE
    for name in settings.model_fields:
        yield from _below(settings, (name,))


def _below(settings: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    kind = _field(settings, path)
    yield PREFIX + "__".join(path).upper()
    if _is_model(kind):
        for name in _names(kind):
            yield from _below(settings, (*path, name))
