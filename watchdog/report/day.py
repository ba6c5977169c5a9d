"""The last 24 hours of one server: the worst verdict of each ten minutes, in 144 bytes."""

from collections.abc import Sequence
from itertools import groupby

from watchdog.model import Verdict
from watchdog.report.bodies import WORST_FIRST
from watchdog.text import seconds_text

SLOT_SECONDS = 600.0
SLOTS = 144
_NOT_KNOWN = "."
# One letter each, which texts on disk hold: never to be changed, only added to.
_LETTERS = {
    Verdict.CRITICAL: "c",
    Verdict.DEGRADED: "d",
    Verdict.UNKNOWN: "n",
    Verdict.UNSETTLED: "u",
    Verdict.RECOVERING: "r",
    Verdict.STARTING: "s",
    Verdict.IDLE: "i",
    Verdict.HEALTHY: "h",
}
_VERDICTS = {letter: verdict for verdict, letter in _LETTERS.items()}


class Day:
    """Verdicts by ten minutes of the wall clock, the oldest forgotten; a clock set back takes what was seen along."""

    def __init__(self) -> None:
        self._last = -1
        self._letters = _NOT_KNOWN * SLOTS

    @classmethod
    def read(cls, text: str) -> "Day":
        """What `text` wrote; an empty day for anything else."""
        day = cls()
        last, _, letters = text.partition(":")
        if last.isascii() and last.isdigit() and len(last) < 12 and len(letters) == SLOTS:
            day._last = int(last)
            day._letters = "".join(each if each in _VERDICTS else _NOT_KNOWN for each in letters)
        return day

    def text(self) -> str:
        """All of it in a line, the number of the last slot first."""
        return f"{self._last}:{self._letters}"

    def note(self, verdict: Verdict, wall: float) -> bool:
        """Takes the verdict of a moment (unix seconds); returns whether that changed anything."""
        before = (self._last, self._letters)
        slot = int(wall // SLOT_SECONDS)
        # Where the clock was set back, what was seen was seen just now all the same.
        self._last = min(self._last, slot)
        letters = self._until(slot)
        seen = _VERDICTS.get(letters[-1])
        if seen is None or WORST_FIRST.index(verdict) < WORST_FIRST.index(seen):
            letters = letters[:-1] + _LETTERS[verdict]
        self._last, self._letters = slot, letters
        return before != (slot, letters)

    def verdicts(self, wall: float) -> Sequence[Verdict | None]:
        """The 24 hours until now (unix seconds), the oldest first; None where nothing is known."""
        return [_VERDICTS.get(letter) for letter in self._until(int(wall // SLOT_SECONDS))]

    def _until(self, slot: int) -> str:
        passed = min(SLOTS, max(0, slot - self._last)) if self._last >= 0 else SLOTS
        return (self._letters + _NOT_KNOWN * passed)[-SLOTS:]


def day_text(verdicts: Sequence[Verdict | None]) -> str:
    """How long each verdict held, the worst first, in words."""
    told = [
        f"{word} {seconds_text(count * SLOT_SECONDS)}"
        for verdict in (*WORST_FIRST, None)
        if (count := sum(each is verdict for each in verdicts))
        for word in ("not known" if verdict is None else verdict,)
    ]
    return "last 24 hours: " + ", ".join(told)


def runs(verdicts: Sequence[Verdict | None]) -> list[tuple[Verdict | None, int]]:
    """Each verdict with how many slots it held without a change, the oldest first."""
    return [(verdict, len(list(same))) for verdict, same in groupby(verdicts)]
