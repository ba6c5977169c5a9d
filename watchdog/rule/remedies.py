"""Remedies as rule files write them: shared ones by their id, groups of which the first that fits counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchdog import schema
from watchdog.rule.file import RemedyPart
from watchdog.strict_yaml import KEY, Kind, Path, YamlFile

FILE_NAME = "remedies.yaml"
"""The file of a folder of rules that holds what its rules share; no rule can have this name."""
SHARED, FIRST = "shared", "first"
"""The key that names a shared remedy, and the key of a group of which the first that can be offered is."""
OF_ALL: Mapping[str, str] = {"when": "all", "unless": "any"}
"""The conditions that a group may have, and how each is joined with that of a remedy in it."""

_KIND = Kind(
    "a file of shared remedies",
    "it names each remedy by an id",
    max_bytes=256 * 1024,
    max_nesting=12,
    max_entries=200,
)

SharedRemedies = Mapping[str, Mapping[str, Any]]
"""The keys of each shared remedy by its id."""
NOTHING_SHARED: SharedRemedies = {}


def shared_file(path: str, content: bytes) -> YamlFile:
    """A file of shared remedies of that path and content."""
    return YamlFile(path, content, _KIND)


def read_shared(files: Sequence[YamlFile]) -> SharedRemedies:
    """What the files of shared remedies hold, in their order; their faults are noted in them.

    The texts are read where a rule uses them, since they may speak of its parameters.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for file in files:
        for identity, remedy in (file.read() or {}).items():
            if identity in found:
                file.fault((identity, KEY), f"a shared remedy has the id `{identity}` already")
            elif _is_remedy(file, identity, remedy):
                found[identity] = remedy
        file.forget()
    return found


def _is_remedy(file: YamlFile, identity: str, remedy: Any) -> bool:
    if not isinstance(remedy, dict):
        file.fault((identity,), "a remedy is a mapping of fields")
        return False
    known = schema.keys(RemedyPart)
    unknown = [key for key in remedy if key not in known or key == SHARED]
    for key in unknown:
        file.fault((identity, key, KEY), f"the key `{key}` is not known here", file.hint(key, known))
    return not unknown


@dataclass(frozen=True, slots=True)
class Expanded:
    """The content of a rule file with each remedy whole and by itself.

    `places` says where each remedy stands in the file, `groups` the number of its group, None for one by itself;
    `shared` is what it was made with.
    """

    shared: SharedRemedies
    content: dict[str, Any]
    places: tuple[Path, ...]
    groups: tuple[int | None, ...]

    def place(self, path: Path) -> Path:
        """Where in the file that is which has this path in the content."""
        if (
            len(path) >= 2
            and path[0] == "remedies"
            and isinstance(path[1], int)
            and path[1] < len(self.places)
        ):
            return (*self.places[path[1]], *path[2:])
        return path


def expand(file: YamlFile, content: dict[str, Any], shared: SharedRemedies) -> Expanded:
    """The content with shared remedies put in and groups taken apart; faults of either are noted in the file."""
    listed = content.get("remedies")
    if not isinstance(listed, list):
        return Expanded(shared, content, (), ())
    remedies, places, groups = [], [], []
    for place, group, remedy in _apart(file, listed, shared):
        remedies.append(remedy)
        places.append(place)
        groups.append(group)
    return Expanded(shared, {**content, "remedies": remedies}, tuple(places), tuple(groups))


def _apart(
    file: YamlFile, listed: Sequence[Any], shared: SharedRemedies
) -> Iterator[tuple[Path, int | None, Any]]:
    """Each remedy whole, with its place and the number of its group."""
    for index, entry in enumerate(listed):
        place: Path = ("remedies", index)
        if not (isinstance(entry, dict) and FIRST in entry):
            yield place, None, _whole(file, place, entry, shared)
            continue
        group = entry[FIRST]
        if {*entry} - {FIRST, *OF_ALL} or not isinstance(group, list) or len(group) < 2:
            file.fault(
                (*place, FIRST, KEY),
                "`first` is a list of two remedies or more, with nothing but `when` and `unless` beside it",
            )
            continue
        for number, remedy in enumerate(group):
            within: Path = (*place, FIRST, number)
            yield within, index, _conditioned(_whole(file, within, remedy, shared), entry)


def _conditioned(remedy: Any, group: Mapping[str, Any]) -> Any:
    """A remedy of a group with the conditions of the group added to its own."""
    if not isinstance(remedy, dict):
        return remedy
    joined = {
        key: {word: [group[key], remedy[key]]} if key in remedy else group[key]
        for key, word in OF_ALL.items()
        if key in group
    }
    return remedy | joined


def _whole(file: YamlFile, place: Path, remedy: Any, shared: SharedRemedies) -> Any:
    """A remedy with the keys of the shared one that it names; its own keys take their place."""
    if not (isinstance(remedy, dict) and SHARED in remedy):
        return remedy
    identity = str(remedy[SHARED])
    if identity not in shared:
        hint = file.hint(identity, shared) or f"shared remedies stand in {FILE_NAME} beside the rules"
        file.fault((*place, SHARED), f"there is no shared remedy `{identity}`", hint)
    own = {key: value for key, value in remedy.items() if key != SHARED}
    return {**shared.get(identity, {}), **own}
