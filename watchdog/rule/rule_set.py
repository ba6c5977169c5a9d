"""The rule set: all rules of some directories, checked as a whole before any of them is used."""

import hashlib
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from watchdog.errors import Fault, RuleError
from watchdog.facts.flags import all_flags, known_versions
from watchdog.facts.gpus import all_gpus
from watchdog.model import Severity
from watchdog.rule.file import KIND, rule_file
from watchdog.rule.own_tests import test_rule
from watchdog.rule.reader import Read, read_rule
from watchdog.rule.remedies import FILE_NAME as SHARED_FILE
from watchdog.rule.remedies import read_shared, shared_file
from watchdog.rule.rule import EXPECTED_TRUTH, Complaint, Rule
from watchdog.strict_yaml import Path as Place
from watchdog.strict_yaml import YamlFile
from watchdog.text import nearest

MAX_FILES = 500
OVERRIDES = "rules.overrides"


@dataclass(frozen=True, slots=True)
class RuleOverride:
    """What settings change of a rule; None (and a parameter not named) leaves it as it is.

    A severity set here holds: the rule's own `raise_to` no longer applies. A rule not `enabled` is left out.
    """

    parameters: Mapping[str, float] = field(default_factory=dict)
    for_seconds: float | None = None
    keep_firing_seconds: float | None = None
    severity: Severity | None = None
    enabled: bool = True


Check = Callable[[Rule], Iterable[Complaint]]
"""What somebody who writes a rule should be told of it, beside its faults."""

NO_OVERRIDES: Mapping[str, RuleOverride] = MappingProxyType({})


class RuleSet:
    """Rules sorted by id; `digest` is the hash of the files they came from."""

    def __init__(self, rules: Sequence[Rule], digest: str) -> None:
        self.rules = tuple(sorted(rules, key=lambda rule: rule.id))
        self.digest = digest
        self._by_id = {rule.id: rule for rule in self.rules}

    def by_id(self, identity: str) -> Rule:
        """The rule of this id; raises KeyError where the set has none."""
        return self._by_id[identity]

    def find(self, identity: str) -> Rule | None:
        """The rule of this id; None where the set has none."""
        return self._by_id.get(identity)


class _Source(NamedTuple):
    """A rule file's path and content; `content` ends just beyond the size limit."""

    path: Path
    content: bytes


def load(
    directories: Sequence[Path],
    known_signals: Collection[str],
    overrides: Mapping[str, RuleOverride] = NO_OVERRIDES,
    allow_untested: bool = False,
    check: Check | None = None,
) -> RuleSet:
    """Reads and checks all rule files of the directories (`*.yaml`, not in folders below).

    Unless `allow_untested`, each rule must carry a test that fires, one that is silent and one that is
    unknown, and pass all of its tests with the parameters of its file. `check` is for those who write rules: what it
    complains of is refused, and so are clauses that are hard to read and numbers in them that no parameter explains.

    Raises:
        RuleError: with every fault of every file, of the directories and of the overrides.
    """
    _read_tables()
    faults: list[Fault] = []
    sources = _sources(directories, faults)
    signals = frozenset(known_signals)
    files, shared_files = _files(sources)
    shared = read_shared(shared_files)
    read = [
        found
        for file, path in files
        if (found := read_rule(file, path, signals, {}, strict=check is not None, shared=shared))
    ]
    _check_identities(read)
    _check_explained(read, whole=len(read) == len(files))
    for each in read:
        if not allow_untested:
            _check_tests(each)
        for complaint in check(each.rule) if check else ():
            each.fault(*complaint)
    faults += [fault for file in (*shared_files, *(file for file, _ in files)) for fault in file.faults]
    faults += _override_faults({each.rule.id: each.rule for each in read}, overrides, len(read) == len(files))
    if faults:
        raise RuleError(faults)
    disabled = {identity for identity, override in overrides.items() if not override.enabled}
    rules = [
        _overridden(each, signals, overrides.get(each.rule.id, RuleOverride()))
        for each in read
        if each.rule.id not in disabled
    ]
    return RuleSet(_related(rules), _digest(sources))


def _files(sources: Sequence[_Source]) -> tuple[list[tuple[YamlFile, Path]], list[YamlFile]]:
    """The rule files, and those of the remedies that they share."""
    rules = [(rule_file(str(path), content), path) for path, content in sources if path.name != SHARED_FILE]
    return rules, [shared_file(str(path), content) for path, content in sources if path.name == SHARED_FILE]


def _read_tables() -> None:
    """Reads what rules and their remedies look up of vLLM and GPUs, so that no step reads a file."""
    all_flags()
    known_versions()
    all_gpus()


def digest(directories: Sequence[Path]) -> str:
    """The hash of the rule files as they are now, without reading their meaning; cheap enough for polling.

    Raises:
        RuleError: where a directory or a file cannot be read, or a directory has no rule.
    """
    faults: list[Fault] = []
    sources = _sources(directories, faults)
    if faults:
        raise RuleError(faults)
    return _digest(sources)


def _digest(sources: Sequence[_Source]) -> str:
    whole = hashlib.sha256()
    for path, content in sources:
        whole.update(f"{path.name}\n{len(content)}\n".encode(errors="surrogateescape"))
        whole.update(content)
    return whole.hexdigest()


def _sources(directories: Sequence[Path], faults: list[Fault]) -> list[_Source]:
    found: list[_Source] = []
    for directory in directories:
        try:
            before = len(found), len(faults)
            found += _in_directory(directory, faults)
            if before == (len(found), len(faults)):
                faults.append(Fault(str(directory), 0, 0, "no rule file here", "they end in .yaml"))
        except NotADirectoryError:
            faults.append(Fault(str(directory), 0, 0, "is a file", "name the folder that holds it"))
        except OSError as error:
            faults.append(Fault(str(directory), 0, 0, f"cannot be read: {error.strerror}"))
    return found


def _in_directory(directory: Path, faults: list[Fault]) -> Iterator[_Source]:
    # A mounted ConfigMap changes by swapping the link `..data`: read it once, so that files are of one age.
    data = directory / "..data"
    real = directory / data.readlink() if data.is_symlink() else directory
    names = sorted(path.name for path in real.iterdir() if not path.name.startswith("."))
    rule_names = [name for name in names if name.endswith(".yaml")]
    faults += [
        Fault(str(directory / name), 0, 0, "ends in .yml", "rule files end in .yaml")
        for name in names
        if name.endswith(".yml")
    ]
    if len(rule_names) > MAX_FILES:
        faults.append(Fault(str(directory), 0, 0, f"more than {MAX_FILES} rule files"))
        return
    for name in rule_names:
        try:
            yield _Source(directory / name, _content(real / name))
        except OSError as error:
            faults.append(Fault(str(directory / name), 0, 0, f"cannot be read: {error.strerror}"))


def _content(path: Path) -> bytes:
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
        raise OSError(0, "not a file")
    with path.open("rb") as file:
        return file.read(KIND.max_bytes + 1)


def _check_identities(read: Sequence[Read]) -> None:
    first: dict[str, Read] = {}
    for each in read:
        earlier = first.setdefault(each.rule.id, each)
        if earlier is not each:
            text = f"the rule `{each.rule.id}` is also in {earlier.file.path}"
            each.file.fault(("id",), text, "ids are unique over all directories")


def _check_explained(read: Sequence[Read], whole: bool) -> None:
    known = {each.rule.id: each for each in read}
    for each in read:
        for key, identities in (("explains", each.rule.explains), ("explained_by", each.rule.explained_by)):
            for index, identity in enumerate(identities):
                # Where some file could not be read, its id may be the one that is missing here.
                if identity not in known and whole:
                    text = f"`{key}` names the rule `{identity}`, which does not exist"
                    each.file.fault((key, index), text, each.file.hint(identity, known))
    for cycle in _cycles(_explained([each.rule for each in read])):
        first = known[cycle[0]]
        files = ", ".join(known[identity].file.path for identity in cycle[1:-1])
        text = f"`explains` goes in a circle: {' -> '.join(cycle)}"
        first.file.fault(_place_of(first.rule, cycle), text, f"the others are {files}" if files else "")


def _place_of(rule: Rule, cycle: Sequence[str]) -> Place:
    """Where a rule names the next or the one before it in a circle; its id where both are named by others."""
    for key, names, other in (
        ("explains", rule.explains, cycle[1]),
        ("explained_by", rule.explained_by, cycle[-2]),
    ):
        if other in names:
            return (key, names.index(other))
    return ("id",)


def _explained(rules: Sequence[Rule]) -> dict[str, tuple[str, ...]]:
    """What each rule explains: what it names itself, then those that name it."""
    found = {rule.id: dict.fromkeys(rule.explains) for rule in rules}
    for rule in rules:
        for cause in rule.explained_by:
            if cause in found:
                found[cause].setdefault(rule.id)
    return {identity: tuple(names) for identity, names in found.items()}


def _cycles(explains: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Circles, each from its first id by name and back to it; every id is gone through once."""
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in sorted(explains):
        trail = {} if start in done else {start: iter(explains[start])}
        while trail:
            identity, rest = next(reversed(trail.items()))
            step = next(rest, None)
            if step is None:
                done.add(identity)
                del trail[identity]
            elif step in trail:
                found.append(_from_first(list(trail)[list(trail).index(step) :]))
            elif step in explains and step not in done:
                trail[step] = iter(explains[step])
    return list(dict.fromkeys(found))


def _from_first(circle: Sequence[str]) -> tuple[str, ...]:
    turn = circle.index(min(circle))
    return (*circle[turn:], *circle[:turn], circle[turn])


def lacking_tests(rule: Rule) -> str:
    """Which kinds of test a rule lacks, as a sentence without its end; empty where it has all three."""
    expected = {test.expect for test in rule.tests if test.recording is None}
    lacking = [str(each) for each in EXPECTED_TRUTH if each not in expected]
    return f"the rule `{rule.id}` has no test that expects {', nor '.join(lacking)}" if lacking else ""


def _check_tests(read: Read) -> None:
    rule = read.rule
    lacking = lacking_tests(rule)
    if lacking:
        read.file.fault(("id",), lacking, "each rule is tested firing, silent and unknown")
    places = {test.name: index for index, test in enumerate(rule.tests)}
    for result in test_rule(rule):
        for problem in result.problems:
            read.file.fault(("tests", places[result.test]), f"the test `{result.test}` fails: {problem}")


def _override_faults(
    rules: Mapping[str, Rule], overrides: Mapping[str, RuleOverride], whole: bool
) -> Iterator[Fault]:
    for identity, override in overrides.items():
        place = f"{OVERRIDES}.{identity}"
        rule = rules.get(identity)
        if rule is None and whole:
            yield Fault(place, 0, 0, "there is no such rule", nearest(identity, rules))
        if rule is None:
            continue
        for name, value in override.parameters.items():
            if name not in rule.parameters:
                text = f"the rule has no parameter `{name}`"
                yield Fault(place, 0, 0, text, nearest(name, rule.parameters))
            elif not isfinite(value):
                yield Fault(place, 0, 0, f"`{name}` is not a finite number")
        for seconds in (override.for_seconds, override.keep_firing_seconds):
            if seconds is not None and not 0 <= seconds < float("inf"):
                yield Fault(place, 0, 0, "a duration is not negative and has an end")


def _overridden(read: Read, signals: Collection[str], override: RuleOverride) -> Rule:
    rule = read.rule
    if override.parameters:
        again = read_rule(read.file, rule.path, signals, override.parameters, shared=read.expanded.shared)
        rule = again.rule if again else rule
    if override.severity is not None:
        rule = replace(rule, severity=override.severity, raise_to=None)
    if override.for_seconds is not None:
        rule = replace(rule, for_seconds=override.for_seconds)
    if override.keep_firing_seconds is not None:
        rule = replace(rule, keep_firing_seconds=override.keep_firing_seconds)
    return rule


def _related(rules: Sequence[Rule]) -> list[Rule]:
    """The rules with both sides of what explains what, as far as it is among them."""
    known = {rule.id for rule in rules}
    explains = _explained(rules)
    causes: dict[str, list[str]] = {identity: [] for identity in known}
    for cause in sorted(known):
        for effect in explains[cause]:
            if effect in known:
                causes[effect].append(cause)
    return [
        replace(
            rule,
            explains=tuple(each for each in explains[rule.id] if each in known),
            explained_by=tuple(causes[rule.id]),
        )
        for rule in rules
    ]
