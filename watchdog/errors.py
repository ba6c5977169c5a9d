"""The errors a person can mend: each says where, what and what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass


class WatchdogError(Exception):
    """Root of all errors that a person sees without a stack trace."""


class ConfigError(WatchdogError):
    """Settings that cannot be used; `faults` holds every fault found, not only the first."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class ExpressionError(WatchdogError):
    """A clause outside the grammar; `column` counts from 0 in the clause's own text, `hint` may be empty."""

    def __init__(self, message: str, column: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.column = column
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a file that a person wrote; line and column count from 1, 0 where the place is not known.

    `snippet` is the line of the file with a caret below the place, empty where there is none.
    """

    path: str
    line: int
    column: int
    text: str
    hint: str = ""
    snippet: str = ""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        message = f"{place}: {self.text}" + (f" ({self.hint})" if self.hint else "")
        return message + (f"\n{self.snippet}" if self.snippet else "")


class RuleError(WatchdogError):
    """A rule set that cannot be loaded; `faults` holds every fault of every file."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class RecordingError(WatchdogError):
    """A recording that cannot be read; the message names the file, the line and what was expected there."""


class SourceError(WatchdogError):
    """A Prometheus, or another service that servers are read from, that is of no use; the text says what to do."""
