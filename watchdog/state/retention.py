"""The clock by which old things are deleted: one that is set wrongly for a while deletes nothing."""

from collections.abc import Callable

# A wall clock this far ahead of what went by was set, not corrected.
_CORRECTION_SECONDS = 3600.0
# One that has stood there for as long is right: nobody leaves it wrong for a day.
_PROOF_SECONDS = 86_400.0


class RetentionClock:
    """Unix seconds that follow the wall clock at once where it goes back, and forward only with the time that went by.

    Further ahead it is believed after a day: a clock that was set 40 days on for a minute would delete for good
    what is kept for 30.
    """

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        self._at = steady()
        self._wall: float | None = None
        self._ahead_since: float | None = None

    def begin(self, wall: float) -> None:
        """Goes on from what it said last, in a run before."""
        self._at, self._wall = self._steady(), wall

    def now(self, wall: float) -> float:
        """What it says while the wall clock says `wall`."""
        at = self._steady()
        expected = wall if self._wall is None else self._wall + (at - self._at)
        if wall - expected <= _CORRECTION_SECONDS:
            self._ahead_since = None
        elif self._ahead_since is None:
            self._ahead_since = at
        is_believed = self._ahead_since is None or at - self._ahead_since >= _PROOF_SECONDS
        self._at, self._wall = at, wall if is_believed else expected
        return self._wall
