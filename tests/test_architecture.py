"""The house: which room may import which, which touch nothing but their arguments, how few files lie loose."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.places import ROOT

PACKAGE = ROOT / "watchdog"
GROUND = frozenset({"model", "errors", "clock", "logs", "resources", "text", "strict_yaml", "schema"})
"""What every room stands on: the only files that lie loose at the top."""
FLOORS = (
    *("http", "settings", "history", "facts", "signals", "language", "rule", "remedy", "scrape", "diagnosis"),
    *("notify", "report", "state", "discovery", "replay", "probe", "web", "service", "cli"),
)
"""The rooms from the ground up: a room imports only from those below it."""
RANK = dict.fromkeys(GROUND, 0) | {name: rank for rank, name in enumerate(FLOORS, start=1)}

# What reads a clock, the network, the environment, a file or chance.
IMPURE_MODULES = frozenset(
    {"time", "datetime", "os", "sys", "socket", "ssl", "select", "selectors", "subprocess", "threading"}
    | {"asyncio", "concurrent", "random", "secrets", "uuid", "tempfile", "shutil", "pathlib", "io"}
    | {"requests", "urllib", "urllib3", "http", "httpx", "sqlite3", "logging"}
    | {"pkgutil", "importlib"}
)
IMPURE_CALLS = frozenset({"open", "input", "print", "__import__", "eval", "exec"})
READING_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob"})
PURE = (
    *("model", "errors", "history", "facts", "signals", "language", "rule", "remedy", "diagnosis"),
    *("scrape.exposition", "replay.replay", "replay.score"),
)
# Rules and tables are read once, at start and at a reload; doc pages are written by a command.
READ_AT_START = frozenset({"rule.rule_set", "rule.in_force", "facts.flags", "facts.gpus", "rule.docs"})
FILE_MODULES = frozenset({"pathlib", "os", "pkgutil", "sys"})
# A path as a value (a rule knows where it came from) is no access to a file.
PATH_AS_VALUE = frozenset({"pathlib"})


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(), str(path))


ALL = dict(modules())
ROOMED = sorted(name for name in ALL if name not in {"__init__", "__main__"})


def imported(tree: ast.Module) -> Iterator[str]:
    """The modules a tree imports, anywhere in it; of `from package import module` the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole.removeprefix("watchdog.") in ALL else node.module


def ours(name: str) -> list[str]:
    """The modules of this package that a module imports."""
    prefix = "watchdog."
    return [module.removeprefix(prefix) for module in imported(ALL[name]) if module.startswith(prefix)]


def room_of(name: str) -> str:
    return name.partition(".")[0]


def is_pure(name: str) -> bool:
    return any(name == pure or name.startswith(f"{pure}.") for pure in PURE)


def test_every_module_has_its_room() -> None:
    assert {room_of(name) for name in ROOMED} <= set(RANK)


def test_nothing_lies_loose_at_the_top_but_the_ground() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == GROUND | {"__init__", "__main__"}


@pytest.mark.parametrize("name", ROOMED)
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    above = sorted(module for module in ours(name) if RANK[room_of(module)] > RANK[room_of(name)])
    assert above == []


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: {module for module in ours(name) if module in ALL} - {name} for name in ROOMED}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


@pytest.mark.parametrize("name", sorted(filter(is_pure, ALL)))
def test_the_core_touches_nothing_but_its_arguments(name: str) -> None:
    roots = {module.partition(".")[0] for module in imported(ALL[name])}
    allowed = FILE_MODULES if name in READ_AT_START else PATH_AS_VALUE
    assert roots & (IMPURE_MODULES - allowed) == set()
    if name in READ_AT_START:
        return
    calls = [node.func for node in ast.walk(ALL[name]) if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    assert names & IMPURE_CALLS == set()
    methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    assert methods & READING_METHODS == set()


def test_nothing_in_the_core_keeps_state_between_calls() -> None:
    """No `global` statement: what is remembered is remembered in an object that somebody passed."""
    nodes = ((name, node) for name, tree in ALL.items() for node in ast.walk(tree))
    assert [name for name, node in nodes if isinstance(node, ast.Global)] == []
