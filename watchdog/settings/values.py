"""Single values of the settings: numbers, durations, one line of text, launch flags."""

import re
import shlex
from collections.abc import Sequence
from typing import Any

from watchdog.http.url import HIDDEN
from watchdog.strict_yaml import Word

_SECRET_FLAG = re.compile(r"(api-key|password|secret|-token)$")


def plain_number(value: Any) -> Any:
    """Refuses true and false, which Python would take for 1 and 0."""
    if isinstance(value, bool) or (isinstance(value, Word) and value.lower() in {"true", "false"}):
        raise ValueError("must be a number, not yes or no")
    return value


def on_one_line(text: str) -> str:
    """Refuses text of more than one line and control characters."""
    if not text.isprintable():
        raise ValueError("must not hold control characters or line breaks")
    return text


def parse_vllm_args(value: Any) -> Any:
    """Launch flags as a mapping flag -> value ("" for a bare flag), from a string, a list or a mapping.

    `vllm serve MODEL` before the flags is skipped; underscores in a flag become dashes, as vLLM does.
    Raises ValueError for quotes that do not close. Anything else is handed back for the model to refuse.
    """
    if isinstance(value, dict):
        named = {_flag(str(key)): "" if each is None else _word(each) for key, each in value.items()}
        return _without_secrets(named)
    words = shlex.split(value) if isinstance(value, str) else value
    if not isinstance(words, Sequence):
        return words
    return _without_secrets(_flag_values(list(map(_word, words))))


def _flag_values(words: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    last = ""
    for word in words:
        if re.match(r"--?[a-zA-Z]", word):
            name, given, text = word.partition("=")
            last = _flag(name)
            flags[last] = text
            last = "" if given else last
        elif last:
            flags[last] = f"{flags[last]} {word}".strip()
    return flags


def _without_secrets(flags: dict[str, str]) -> dict[str, str]:
    """Nothing needs a server's own keys, so they are dropped before they can be printed."""
    return {name: HIDDEN if _SECRET_FLAG.search(name) and text else text for name, text in flags.items()}


def _flag(name: str) -> str:
    dashes = name[: len(name) - len(name.lstrip("-"))] or "--"
    return dashes + name.lstrip("-").replace("_", "-")


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
