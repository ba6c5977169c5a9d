"""The spans of history that an engine is judged by, and the time it is compared with, kept from step to step."""

from collections.abc import Collection, Mapping, Sequence

from watchdog.history.baseline import BaselineKeeper
from watchdog.history.history import History
from watchdog.history.span import life_span, now_span, recent_span
from watchdog.model import Subject
from watchdog.signals.functions import View


class Engines:
    """The engines of one target, and the target as a whole, by subject."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._baselines: dict[Subject, BaselineKeeper] = {}

    def view(self, subject: Subject, facts: Mapping[str, float]) -> View:
        """What signals may look at: the subject's spans of history, and facts."""
        keeper = self._baselines.get(subject)
        if keeper is None:
            keeper = self._baselines[subject] = BaselineKeeper()
        return View(
            window=now_span(self._history, subject),
            recent=recent_span(self._history, subject),
            life=life_span(self._history, subject),
            past={"baseline": keeper.span(self._history, subject)},
            facts=facts,
        )

    def forget(self, subject: Subject) -> None:
        """A new process is not compared with the one before it."""
        self._baselines.pop(subject, None)

    def keep(self, at: float, active: Collection[Subject], present: Collection[Subject]) -> Sequence[Subject]:
        """After a step: freezes the baselines of what is wrong; returns those dropped, of which history knows no more.

        `active` are those on which a warning or worse is pending or firing, `present` those on the last page.
        """
        for subject, keeper in self._baselines.items():
            if self._history.overfull:
                keeper.forget()
            if self._history.frames:
                keeper.note(self._history, subject, at, subject in active)
        gone = [
            one
            for one in self._baselines
            if one not in present and self._history.epoch(one.model_name, one.engine) is None
        ]
        for subject in gone:
            self.forget(subject)
        return gone
