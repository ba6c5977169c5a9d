"""What a remedy says to do, in one line, the same in every output."""

import re
from typing import Protocol


class Advice(Protocol):
    """The part of a remedy that fits in a line; `flag`, `value` and `direction` are None where there is none."""

    @property
    def action(self) -> str:
        """What to do."""

    @property
    def flag(self) -> str | None:
        """The launch flag to change."""

    @property
    def value(self) -> str | None:
        """The value to give it."""

    @property
    def direction(self) -> str | None:
        """Which way the flag moves: raise, lower, set, on, off."""


def instruction(remedy: Advice) -> str:
    """The action, with the flag and its value before it where the action does not name them itself."""
    setting = setting_text(remedy)
    return remedy.action if is_told(remedy) else f"{setting}: {remedy.action}"


def setting_text(remedy: Advice) -> str:
    """`--flag value`; `raise --flag` where the value is not known; empty for an action without a flag."""
    if not remedy.flag:
        return ""
    if remedy.value:
        return f"{remedy.flag} {remedy.value}"
    return f"{remedy.direction} {remedy.flag}" if remedy.direction in {"raise", "lower"} else remedy.flag


def is_told(remedy: Advice) -> bool:
    """Whether the action names the flag, if any, and its value."""
    return all(_names(remedy.action, each) for each in (remedy.flag, remedy.flag and remedy.value) if each)


def _names(action: str, what: str) -> bool:
    """Whether it stands there as a word of its own: 2 is not named by 2048, nor --max-loras by --max-loras-x."""
    return re.search(rf"(?<![\w.-]){re.escape(what)}(?![\w-]|\.\w)", action) is not None
