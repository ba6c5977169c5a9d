"""The time an engine is compared with: the ten minutes before now, and while something is wrong, before that began."""

from dataclasses import dataclass

from watchdog.history.history import History
from watchdog.history.span import Span, baseline_span
from watchdog.model import Subject

# A state that lasts an hour is the new normal; what was before it says nothing any more.
LONGEST_FREEZE_SECONDS = 3600.0
# After an incident the time before it stays the measure until there is this much of the time after it.
LEAST_FRESH_SECONDS = 60.0


@dataclass(slots=True)
class BaselineKeeper:
    """Freezes the baseline of one engine; without it a long incident becomes its own baseline and ends itself."""

    frozen: Span | None = None
    frozen_at: float = 0.0
    fresh_from: float | None = None

    def span(self, history: History, subject: Subject) -> Span | None:
        """The span to compare with now; None where too little was seen."""
        if self.frozen is not None:
            return self.frozen
        return self._fresh(history, subject)

    def note(self, history: History, subject: Subject, at: float, active: bool) -> None:
        """Tells whether anything of warning or above is pending or firing after this step."""
        if active:
            self.fresh_from = None
            if self.frozen is None:
                self.frozen, self.frozen_at = self._fresh(history, subject), at
            elif at - self.frozen_at > LONGEST_FREEZE_SECONDS:
                self.frozen = None
        elif self.frozen is not None:
            if self.fresh_from is None:
                self.fresh_from = at
            fresh = self._fresh(history, subject)
            too_old = at - self.frozen_at > LONGEST_FREEZE_SECONDS
            if too_old or (fresh is not None and fresh.seconds >= LEAST_FRESH_SECONDS):
                self.frozen = None

    def forget(self) -> None:
        """A new process is not compared with the one before it."""
        self.frozen, self.fresh_from = None, None

    def _fresh(self, history: History, subject: Subject) -> Span | None:
        span = baseline_span(history, subject)
        if span is None or self.fresh_from is None:
            return span
        first = next((i for i, frame in enumerate(span.frames) if frame.at >= self.fresh_from), None)
        if first is None:
            return None
        fresh = Span(history, span.frames[first:], subject)
        return fresh if fresh.seconds > 0 else None
