"""Where the files are that come with the package."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped_rules_directory() -> Path:
    """The folder of the shipped rules: inside an installed package, else `rules/` of the source tree."""
    installed = PACKAGE / "shipped" / "rules"
    return installed if installed.is_dir() else PACKAGE.parent / "rules"
