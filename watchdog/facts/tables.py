"""The tables of facts that are part of the package, as code is: read once, never a file of the user's."""

from pkgutil import get_data
from typing import Any

import yaml


def table(name: str) -> dict[str, Any]:
    """What a table of this package says, such as `gpus.yaml`."""
    found: dict[str, Any] = yaml.safe_load(get_data(__package__, name) or b"")
    return found
