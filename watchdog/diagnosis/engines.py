"""What an engine is judged by: the spans of its history, and its past, kept from step to step."""

from collections.abc import Collection, Mapping, Sequence

from watchdog.history.history import History
from watchdog.history.span import life_span, now_span, recent_span
from watchdog.history.stretches import Stretches
from watchdog.model import Subject
from watchdog.signals.catalogue import REMEMBERED, REQUEST_RATE, Signals, remembered
from watchdog.signals.functions import View
from watchdog.signals.past import Past


class Engines:
    """The engines of one target, and the target as a whole, by subject."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._stretches: dict[Subject, Stretches] = {}

    def signals(self, subject: Subject, facts: Mapping[str, float]) -> Signals:
        """The signals of one engine, or of the whole target, on the newest page."""
        view = View(
            window=now_span(self._history, subject),
            recent=recent_span(self._history, subject),
            life=life_span(self._history, subject),
            facts=facts,
        )
        return Signals(view, self._past(subject))

    def forget(self, subject: Subject) -> None:
        """A new process is not compared with the one before it."""
        self._stretches.pop(subject, None)

    def keep(self, hurting: Collection[Subject], present: Collection[Subject]) -> Sequence[Subject]:
        """After a step: adds what is calm to the past of each engine; returns those of which history knows no more.

        `hurting` are those on which a warning or worse holds, `present` those on the last page.
        """
        if self._history.frames:
            at = self._history.times[-1]
            for subject in present:
                stretches = self._stretches.setdefault(subject, Stretches(REMEMBERED, REQUEST_RATE))
                hurts = subject in hurting or Subject(subject.target) in hurting
                stretches.note(self._history, subject, at, hurts, remembered)
        gone = [
            one
            for one in self._stretches
            if one not in present and self._history.epoch(one.model_name, one.engine) is None
        ]
        for subject in gone:
            self.forget(subject)
        return gone

    def _past(self, subject: Subject) -> Past | None:
        """None for the target as a whole, and for an engine on its first page."""
        stretches = self._stretches.get(subject)
        since = self._history.epoch(subject.model_name, subject.engine)
        if stretches is None or since is None:
            return None
        at = self._history.times[-1]
        open_span = stretches.open_span(self._history, subject, at)
        return Past(stretches, open_span, at - since, remembered)
