"""The house's order: which stage may import which, and which parts touch nothing but their arguments."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "watchdog"

# From the ground up: a module imports only from its own stage and those below it.
STAGES: tuple[tuple[str, ...], ...] = (
    ("__version__", "encoding", "errors", "model", "logs", "strict_yaml", "resources", "shipped", "clock"),
    ("settings",),
    ("scrape",),
    ("signals",),
    ("diagnosis",),
    ("rulebook", "monitor", "fleet", "handbook"),
    ("replay",),
    ("score",),
    ("outputs",),
    ("demo",),
    ("web",),
    ("schedule", "watch", "fleet_watch", "notifiers"),
    ("service", "serving"),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, stage in enumerate(STAGES) for name in stage}

# What reads a clock, the network, the environment, a file or chance.
IMPURE_MODULES = frozenset(
    {"time", "datetime", "os", "sys", "socket", "ssl", "select", "selectors", "subprocess", "threading"}
    | {"asyncio", "concurrent", "random", "secrets", "uuid", "tempfile", "shutil", "pathlib", "io"}
    | {"requests", "urllib", "urllib3", "http", "httpx", "sqlite3", "logging"}
)
IMPURE_CALLS = frozenset({"open", "input", "print", "__import__", "eval", "exec"})
PURE = ("model", "errors", "scrape.exposition", "signals", "diagnosis", "monitor", "fleet", "replay", "score")
# The loader reads its folder, once, at start and reload.
MAY_READ_FILES = frozenset({"diagnosis.rules", "diagnosis.rule_files"})
FILE_MODULES = frozenset({"pathlib", "os"})
# A path as a value (a rule knows where it came from) is no access to a file.
PATH_AS_VALUE = frozenset({"pathlib"})


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(), str(path))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "watchdog":
                yield from (f"watchdog.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module


def stage_of(name: str) -> str:
    top = name.partition(".")[0]
    # One noun in several files: settings_sources, settings_page and the like.
    return "settings" if top.startswith("settings_") else top


def is_pure(name: str) -> bool:
    return any(name == pure or name.startswith(f"{pure}.") for pure in PURE)


ALL = dict(modules())


def test_every_module_has_its_stage() -> None:
    assert {stage_of(name) for name in ALL if name != "__init__"} <= set(RANK)


@pytest.mark.parametrize("name", sorted(name for name in ALL if name != "__init__"))
def test_a_stage_imports_only_stages_below_it(name: str) -> None:
    ours = [
        module.removeprefix("watchdog.") for module in imported(ALL[name]) if module.startswith("watchdog.")
    ]
    above = sorted(module for module in ours if RANK[stage_of(module)] > RANK[stage_of(name)])
    assert above == []


@pytest.mark.parametrize("name", sorted(filter(is_pure, ALL)))
def test_the_core_touches_nothing_but_its_arguments(name: str) -> None:
    roots = {module.partition(".")[0] for module in imported(ALL[name])}
    allowed = FILE_MODULES if name in MAY_READ_FILES else PATH_AS_VALUE
    assert roots & (IMPURE_MODULES - allowed) == set()
    calls = [node.func for node in ast.walk(ALL[name]) if isinstance(node, ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    assert names & IMPURE_CALLS == set()
    if name not in MAY_READ_FILES:
        methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        assert methods & {"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob"} == set()


def test_nothing_in_the_core_keeps_state_between_calls() -> None:
    """No `global` statement: what is remembered is remembered in an object that somebody passed."""
    nodes = ((name, node) for name, tree in ALL.items() for node in ast.walk(tree))
    assert [name for name, node in nodes if isinstance(node, ast.Global)] == []
