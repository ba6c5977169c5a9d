"""What documents tell a reader to type, and what they show: fenced blocks and the files they name."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"(?:^<!-- (?P<marker>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
_PATH = re.compile(r"`((?:deploy|docs|tests|rules|watchdog|components|examples|\.ci)/[\w./-]*)`")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
_ASSIGNMENT = re.compile(r"\w+=")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, the comment right above it, and its text."""

    language: str
    marker: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a shell block, without sudo and without variables before it."""

    line: str
    words: tuple[str, ...]

    @property
    def program(self) -> str:
        """The name of what is run, without its folder."""
        return Path(self.words[0]).name

    def option(self, name: str) -> str | None:
        """The value of `--name value` or `--name=value`; None where it is not given."""
        for index, word in enumerate(self.words):
            if word == f"--{name}":
                return self.words[index + 1]
            if word.startswith(f"--{name}="):
                return word.partition("=")[2]
        return None


def blocks(text: str) -> Iterator[Block]:
    """Every fenced block of a document."""
    for match in _FENCE.finditer(text):
        yield Block(match["language"], match["marker"] or "", match["text"])


def commands(text: str) -> Iterator[Command]:
    """Every command of the shell blocks of a document; a backslash at a line's end goes on.

    In a `sh` block each line is a command, in a `console` block each line after a `$`.
    """
    for block in blocks(text):
        typed = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            typed = [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
        elif block.language != "sh":
            continue
        for line in typed:
            words = shlex.split(line, comments=True)
            while words and (words[0] == "sudo" or _ASSIGNMENT.match(words[0])):
                words = words[1:]
            if ">" in words:
                words = words[: words.index(">")]
            if words:
                yield Command(line, tuple(words))


def named_files(text: str) -> Iterator[str]:
    """Paths of the repository in code marks, and targets of relative links."""
    prose = _FENCE.sub("", text)
    yield from _PATH.findall(prose)
    yield from _LINK.findall(prose)
