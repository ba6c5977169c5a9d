"""The declared ranges of dependencies, tried out: `python -m tests.compatible TESTS...`.

The tests run twice, each time in an environment of its own under build/compatible: with the lowest version of
everything that pyproject.toml names, and with the newest of everything. It needs nothing but Python and pip.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "compatible"
INSTALL_SECONDS = 900
TEST_SECONDS = 1200
_FLOOR = re.compile(r"([A-Za-z0-9_.-]+)[^>]*>=\s*([0-9][0-9A-Za-z.]*)")


def lowest(dependencies: Sequence[str]) -> Iterator[str]:
    """A pin of each dependency to the lowest version it allows; raises ValueError for one without."""
    for dependency in dependencies:
        match = _FLOOR.match(dependency)
        if match is None:
            raise ValueError(f"{dependency}: no lowest version")
        yield f"{match[1]}=={match[2]}"


def declared() -> list[str]:
    """The direct dependencies."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[str] = document["project"]["dependencies"]
    return found


def holds(kind: str, pins: Sequence[str], tests: Sequence[str]) -> bool:
    """Whether the tests pass in a fresh environment with these pins."""
    place = FOLDER / kind
    place.mkdir(parents=True, exist_ok=True)
    (place / "pins.txt").write_text("\n".join([*pins, ""]), encoding="utf-8")
    python = place / "venv" / "bin" / "python"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    steps: list[tuple[Sequence[str | Path], int]] = [
        ([sys.executable, "-m", "venv", "--clear", place / "venv"], INSTALL_SECONDS),
        ([*install, "--constraint", place / "pins.txt", "--editable", f"{ROOT}[quick]"], INSTALL_SECONDS),
        ([python, "-m", "watchdog", "diagnose", "--help"], 60),
        (
            [python, "-m", "pytest", "-m", "not slow", "--numprocesses", "2", "--dist", "loadfile", *tests],
            TEST_SECONDS,
        ),
    ]
    print(f"compatible: {kind}: {' '.join(pins) or 'no pins'}", flush=True)
    return all(_succeeds(command, seconds) for command, seconds in steps)


def _succeeds(command: Sequence[str | Path], seconds: int) -> bool:
    # What a command prints matters only where it is the tests.
    output = None if "pytest" in command else subprocess.DEVNULL
    try:
        return subprocess.run(command, cwd=ROOT, stdout=output, timeout=seconds, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"not done within {seconds} s: {' '.join(map(str, command))}")
        return False


def main(tests: Sequence[str]) -> int:
    """0 where both hold; says which do not."""
    failed = [
        kind
        for kind, pins in (("lowest", [*lowest(declared())]), ("newest", []))
        if not holds(kind, pins, tests)
    ]
    print(f"compatible: {', '.join(failed)} failed" if failed else "compatible: lowest and newest hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
