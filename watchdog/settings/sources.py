"""Where settings come from: the command line, the environment, a YAML file; and where a fault came from."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from watchdog import strict_yaml
from watchdog.schema import Problem, bare, choices, dotted, field_at, is_model, keys, problems
from watchdog.strict_yaml import KEY, Kind, Word, YamlFile
from watchdog.text import first_harmful, nearest, one_line

PREFIX = "WATCHDOG_"
CONFIG_VARIABLE = "WATCHDOG_CONFIG"
KIND = Kind(
    "a settings file",
    "such as `targets:`",
    max_bytes=1024 * 1024,
    max_nesting=50,
    max_entries=10_000,
    may_be_empty=True,
)

_SERVICE_LINK = re.compile(
    r"WATCHDOG_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$"
)
"""What Kubernetes and Docker tell every container of a service called `watchdog`: not meant for us."""


class Layer(PydanticBaseSettingsSource):
    """The values of one source, and what was wrong or odd about the source itself."""

    def __init__(self, settings: type[BaseSettings]) -> None:
        super().__init__(settings)
        self.values: dict[str, Any] = {}
        self.faults: list[str] = []
        self.warnings: list[str] = []

    def __call__(self) -> dict[str, Any]:
        """All values, for pydantic-settings to merge."""
        return self.values

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Not used: a layer is given whole."""
        return self.values.get(field_name), field_name, False

    def decides(self, path: strict_yaml.Path) -> bool:
        """Whether the value at `path` comes from here and not from a layer below.

        A list is taken whole from one layer, so all below a list belongs to the layer that gave the list.
        """
        value: Any = self.values
        decided = False
        for step in path:
            decided = decided or not isinstance(value, dict)
            if step == KEY or not _inside(value, step):
                return decided or step == KEY
            value = value[step]
        return True

    def fault(self, path: strict_yaml.Path, message: str, hint: str = "") -> str:
        """A fault at `path`, with its place in this source."""
        raise NotImplementedError

    def _put(self, path: tuple[str, ...], value: Any) -> None:
        """Takes a value, unless a text in it would harm a reader."""
        harmful = [at for at, text in _texts(value, path) if first_harmful(text) is not None]
        self.faults += [self.fault(at, "must not contain control characters") for at in harmful]
        if not harmful:
            _put(self.values, path, value)


class CommandLine(Layer):
    """The command line's values; keys may be dotted, None means not given."""

    def __init__(self, settings: type[BaseSettings], overrides: Mapping[str, object]) -> None:
        super().__init__(settings)
        for key, value in overrides.items():
            if value is not None:
                self._put(tuple(key.split(".")), value)

    def fault(self, path: strict_yaml.Path, message: str, hint: str = "") -> str:
        """A fault at `path`."""
        return _told("command line", path, message, hint)


class Environment(Layer):
    """Values of WATCHDOG_* variables: `__` goes one level down, lists are JSON or comma-separated,
    and WATCHDOG_X_FILE gives X from a file."""

    def __init__(self, settings: type[BaseSettings], environment: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._variables: dict[strict_yaml.Path, str] = {}
        for variable in sorted(environment):
            if (
                variable.startswith(PREFIX)
                and variable != CONFIG_VARIABLE
                and not _SERVICE_LINK.match(variable)
            ):
                self._read(variable, environment[variable])

    def fault(self, path: strict_yaml.Path, message: str, hint: str = "") -> str:
        """A fault at `path`, with the variable that gave the value."""
        starts = (path[:end] for end in range(len(path), -1, -1))
        variable = next((self._variables[each] for each in starts if each in self._variables), "environment")
        return _told(variable, path, message, hint)

    def _read(self, variable: str, given: str) -> None:
        path, from_file = _variable_path(self.settings_cls, variable)
        if path is None:
            hint = _hinted(nearest(variable, _variables(self.settings_cls)))
            self.warnings.append(f"{variable}: no such setting, ignored{hint}")
            return
        try:
            text = _file_text(given) if from_file else given
            value = _parsed(text, field_at(self.settings_cls, path))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            self.faults.append(f"{variable}: the file it names cannot be read: {reason}")
        except ValueError:
            self.faults.append(f"{variable}: must be JSON, or plain items with commas between them")
        else:
            self._variables[path] = variable
            self._put(path, value)


class File(Layer):
    """A YAML file's values; a file that cannot be read or is no mapping is a fault, never an exception."""

    def __init__(self, settings: type[BaseSettings], path: Path) -> None:
        super().__init__(settings)
        self._file: YamlFile | None = None
        self.is_empty = False
        try:
            with path.open("rb") as file:
                content = file.read(KIND.max_bytes + 1)
        except OSError as error:
            self.faults.append(f"{path}: cannot be read: {error.strerror or type(error).__name__}")
            return
        self._file = YamlFile(str(path), content, KIND, self._shows)
        values = self._file.read()
        self.faults = self._taken()
        self.values = _without_nulls(values or {})
        # Half written or lost, as a rule: to take it for "watch nothing" would end every alert.
        self.is_empty = not values

    def fault(self, path: strict_yaml.Path, message: str, hint: str = "") -> str:
        """A fault at `path`, with its line."""
        if self._file is None:
            return _told("", path, message, hint)
        self._file.fault(path, f"{dotted(path)}: {message}" if path else message, hint)
        return self._taken()[-1]

    def _taken(self) -> list[str]:
        faults = list(map(str, self._file.faults)) if self._file else []
        if self._file:
            self._file.faults.clear()
        return faults

    def _shows(self, path: strict_yaml.Path, written: str) -> bool:
        """Whether an excerpt may show a value: only what is plainly a number, of a setting that is no text.

        Whatever else stands there may be a secret, also one that was put into the wrong place.
        """
        kind = field_at(self.settings_cls, path)
        return kind in {int, float, bool} and _PLAIN_VALUE.fullmatch(written) is not None


_PLAIN_VALUE = re.compile(
    r"[-+]?[0-9.:_]{1,20}(?:[eE][-+]?[0-9]{1,3})?(?:ms|[smhdw])?|true|false|yes|no|on|off", re.I
)


class Layers:
    """All layers, the strongest first."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        self.layers = layers

    def faults(self) -> list[str]:
        """What is wrong with the sources themselves."""
        return [fault for layer in self.layers for fault in layer.faults]

    def warnings(self) -> tuple[str, ...]:
        """What is odd about the sources."""
        return tuple(warning for layer in self.layers for warning in layer.warnings)

    def fault(self, path: strict_yaml.Path, message: str, hint: str = "") -> str:
        """A fault of the value at `path`, reported by the layer that gave the value."""
        layer = next((layer for layer in self.layers if layer.decides(path)), None)
        return layer.fault(path, message, hint) if layer else _told("", path, message, hint)

    def fault_texts(self, settings: type[BaseModel], error: ValidationError) -> list[str]:
        """A text a fault: where it was given, its key path, what is wrong, the nearest known key for a typo."""
        found = []
        for problem in problems(error):
            path = problem.path
            hint = nearest(str(self._value(path)), choices(problem))
            if problem.kind == "extra_forbidden":
                hint = nearest(str(path[-1]), keys(field_at(settings, path[:-1])))
                path = (*path, KEY)
            found.append(self.fault(path, _message(problem), hint))
        return sorted(found, key=_place)

    def _value(self, path: strict_yaml.Path) -> Any:
        """What was given at `path`, None where nothing was; it may be a secret."""
        layer = next((layer for layer in self.layers if layer.decides(path)), None)
        value: Any = layer.values if layer else None
        for step in path:
            value = value[step] if _inside(value, step) else None
        return value

    def unreadable_files(self, settings: type[BaseModel]) -> list[str]:
        """A fault for each file that the settings name and that cannot be read, or holds an empty secret."""
        merged: dict[str, Any] = {}
        for layer in reversed(self.layers):
            for key, value in layer.values.items():
                _put(merged, (key,), deepcopy(value))
        faults = []
        for path, value in _files(settings, merged):
            reason = _unreadable(Path(value), is_secret=str(path[-1]) in _SECRET_FILES)
            if reason:
                faults.append(self.fault(path, f"{one_line(str(value), 100)} {reason}"))
        return faults


def _told(place: str, path: strict_yaml.Path, message: str, hint: str) -> str:
    return ": ".join(part for part in (place, dotted(path), message) if part) + _hinted(hint)


def _hinted(hint: str) -> str:
    return f" ({hint})" if hint else ""


def _place(fault: str) -> tuple[int, int]:
    """Line and column as a person goes through the file, 0 for what has none."""
    match = re.match(r"[^\n]*?:(\d+):(\d+): ", fault)
    return (int(match[1]), int(match[2])) if match else (0, 0)


_WANTED = {
    "missing": "must be given",
    "extra_forbidden": "no such setting",
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


def _message(problem: Problem) -> str:
    """What a value must be, in words of a settings file instead of Python's types."""
    return _WANTED.get(problem.kind, problem.message)


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
        kept = {key: each for key, each in value.items() if not (isinstance(each, Word) and each.is_nothing)}
        return {key: _without_nulls(each) for key, each in kept.items()}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _file_text(path: str) -> str:
    with Path(path).open("rb") as file:
        return file.read(KIND.max_bytes).decode().strip()


def _parsed(text: str, annotation: Any) -> Any:
    """A variable's text as what its setting wants: JSON for lists and mappings, else the text itself."""
    kind = get_origin(annotation) or annotation
    if kind not in {list, dict} and not is_model(kind):
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
    if field_at(settings, path) is not None:
        return path, False
    if path[-1].endswith("_file"):
        shorter = (*path[:-1], path[-1].removesuffix("_file"))
        if field_at(settings, shorter) is not None:
            return shorter, True
    return None, False


def _inside(value: Any, step: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(step, int) and step < len(value)
    return isinstance(value, dict) and step in value


_SECRET_FILES = frozenset({"bearer_token_file", "password_file", "url_file"})


def _leaves(value: Any, path: strict_yaml.Path) -> Iterator[tuple[strict_yaml.Path, Any]]:
    """Every value that is neither mapping nor list, by its path; and every name of a mapping."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key, KEY), key
            yield from _leaves(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _leaves(each, (*path, index))
    else:
        yield path, value


def _texts(value: Any, path: strict_yaml.Path) -> Iterator[tuple[strict_yaml.Path, str]]:
    return ((at, str(each)) for at, each in _leaves(value, path) if isinstance(each, str | Path))


def _files(settings: type[BaseModel], values: Any) -> Iterable[tuple[strict_yaml.Path, str]]:
    """Every value that is meant to be a file's name, with its key path."""
    for path, text in _texts(values, ()):
        if str(path[-1]).endswith("_file") and field_at(settings, path) is Path:
            yield path, text


def _unreadable(path: Path, is_secret: bool) -> str:
    """Why the file is of no use; empty where it is. Its content goes nowhere."""
    try:
        with path.open("rb") as file:
            content = file.read(KIND.max_bytes)
    except (OSError, ValueError) as error:
        return f"cannot be read: {getattr(error, 'strerror', None) or 'not a path'}"
    return "is empty" if is_secret and not content.strip() else ""


def _variables(settings: type[BaseModel]) -> Iterator[str]:
    """Every variable that is read, but those inside lists and mappings."""
    yield CONFIG_VARIABLE
    yield from _below(settings, ())


def _below(kind: Any, path: tuple[str, ...]) -> Iterator[str]:
    for key, field in keys(kind).items():
        yield PREFIX + "__".join((*path, key)).upper()
        yield from _below(bare(field.annotation), (*path, key))
