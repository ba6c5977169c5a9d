"""What the tests of the deployment files share: where things are, and the pinned kubectl and helm."""

from pathlib import Path

import pytest

from .programs import Programs, fetch

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "image: builds and runs the image; needs root, minutes, `-m image`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the image out unless it is asked for: a base system and a build take minutes."""
    if "image" in config.getoption("markexpr"):
        return
    left_out = [item for item in items if item.get_closest_marker("image")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def programs() -> Programs:
    return fetch()
