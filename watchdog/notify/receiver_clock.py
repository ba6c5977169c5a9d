"""A receiver's clock, learnt from the dates of its answers: it says what is over, and may be a day away from ours."""

import logging

_log = logging.getLogger(__name__)

# Less is a slow answer, or what a clock that nobody disciplines is off: a small part of the time an alert lives.
AGREE_WITHIN_SECONDS = 5.0


class ReceiverClock:
    """By how much a receiver's clock is ahead of ours. Not safe for threads: one outbox asks it.

    `at` is steady and `wall` unix seconds of one moment of ours.
    """

    def __init__(self, receiver: str) -> None:
        self._receiver = receiver
        # Wall clock minus steady clock, ours when it was last compared and theirs.
        self._ours: float | None = None
        self._theirs: float | None = None
        self._differs = False

    def is_in_doubt(self, at: float, wall: float) -> bool:
        """Whether it was never read, or ours was set since."""
        return self._ours is None or abs(wall - at - self._ours) > AGREE_WITHIN_SECONDS

    def learn(self, date: float | None, asked_at: float, answered_at: float, at: float, wall: float) -> None:
        """Takes the date of an answer (unix seconds, cut to whole ones; None where it has none)."""
        self._ours = wall - at
        if date is None:
            self._theirs = None
        else:
            least, most = date - answered_at, date + 1.0 - asked_at
            # Kept while it fits: the same moment gets the same time again.
            if self._theirs is None or not least <= self._theirs <= most:
                self._theirs = (least + most) / 2
            # An answer that was long under way says little: what may agree does.
            if least - AGREE_WITHIN_SECONDS <= self._ours <= most + AGREE_WITHIN_SECONDS:
                self._theirs = None
        self._report()

    def ahead_seconds(self, at: float, wall: float) -> float:
        """By how much it is ahead of ours at that moment, below zero where it is behind; 0 where both agree."""
        return 0.0 if self._theirs is None else at + self._theirs - wall

    def _report(self) -> None:
        if self._theirs is not None and self._ours is not None and not self._differs:
            _log.warning(
                "clocks_differ",
                extra={
                    "receiver": self._receiver,
                    "ours_ahead_seconds": round(self._ours - self._theirs),
                    "note": "alerts are sent in the receiver's time; set this machine's clock, or that of the receiver",
                },
            )
        elif self._theirs is None and self._differs:
            _log.info("clocks_agree_again", extra={"receiver": self._receiver})
        self._differs = self._theirs is not None
