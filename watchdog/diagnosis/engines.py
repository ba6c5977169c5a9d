"""What an engine is judged by: the spans of its history, and its past, kept from step to step."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from watchdog.facts.restarts import PROCESS_AGE
from watchdog.history.archive import ArchiveError, Life, Unpacked, pack, unpack
from watchdog.history.history import History
from watchdog.history.span import life_span, now_span, recent_span, request_span, span_since_start
from watchdog.history.stretches import Stretches
from watchdog.model import EnginePast, Subject
from watchdog.signals.catalogue import (
    FIRST_TOKENS,
    REMEMBERED,
    REQUEST_RATE,
    Signals,
    remembered,
    since_start,
)
from watchdog.signals.functions import View
from watchdog.signals.past import Past

# The past of a server is packed again once it is longer by this part: what that costs stays in proportion.
_PART_ADDED = 0.05
# And once it is longer by a minute: each write of a young fleet's pasts costs more of the disk than all else.
_LEAST_ADDED = 4


def view_of(history: History, subject: Subject, facts: Mapping[str, float]) -> View:
    """What signals look at on the newest page: the stretches of one engine, or of the whole target, and the facts."""
    now = now_span(history, subject)
    requests = request_span(now, FIRST_TOKENS)
    return View(
        window=now,
        recent=recent_span(history, subject),
        life=life_span(history, subject),
        facts=facts,
        requests=None if requests is now else requests,
    )


@dataclass(frozen=True, slots=True)
class Server:
    """Who answers: the URL that is asked, and the version it reported (None: not yet)."""

    url: str
    version: str | None


class Engines:
    """The engines of one target, and the target as a whole, by subject."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._stretches: dict[Subject, Stretches] = {}
        # What an earlier process learnt, until its engine is on a page; then its life, until a version confirms it.
        self._recalled: dict[Subject, Unpacked] = {}
        self._unconfirmed: dict[Subject, Life] = {}
        # How many stretches had been added when they were last packed.
        self._packed: dict[Subject, int] = {}

    def recall(self, pasts: Iterable[EnginePast], at: float, wall: float) -> Sequence[str]:
        """Takes what an earlier process learnt, to go on with where the same server answers.

        Returns why some of it cannot be used. `at` is monotonic, `wall` unix seconds.
        """
        faults = []
        for past in pasts:
            try:
                empty = Stretches(REMEMBERED, REQUEST_RATE)
                self._recalled[past.subject] = unpack(past.packed, empty, at, wall)
            except ArchiveError as error:
                faults.append(str(error))
        return tuple(dict.fromkeys(faults))

    def resume(self, server: Server) -> None:
        """After a page, before anything is judged: goes on with the past of the engines on it, if it is theirs."""
        for subject in [*self._recalled, *self._unconfirmed]:
            marks = self._history.marks(subject.model_name, subject.engine)
            if marks is None or subject[1:] not in self._history.subjects():
                continue
            now = Life.of(server.url, server.version, marks)
            recalled = self._recalled.pop(subject, None)
            if recalled is not None and recalled.life.is_continued_by(now):
                self._stretches[subject] = recalled.stretches
                self._unconfirmed[subject] = recalled.life
            elif subject in self._unconfirmed and not self._unconfirmed[subject].is_continued_by(now):
                self.forget(subject)
            if server.version is not None:
                self._unconfirmed.pop(subject, None)

    def signals(self, subject: Subject, facts: Mapping[str, float]) -> Signals:
        """The signals of one engine, or of the whole target, on the newest page."""
        self._begin(subject, facts)
        view = view_of(self._history, subject, facts)
        return Signals(view, self._past(subject))

    def forget(self, subject: Subject) -> None:
        """A new process is not compared with the one before it."""
        for kept in (self._stretches, self._recalled, self._unconfirmed, self._packed):
            kept.pop(subject, None)

    def pasts(
        self, server: Server, at: float, wall: float, *, everything: bool = False
    ) -> Iterator[EnginePast]:
        """The past of each engine that has grown by enough to be saved again, or at all where `everything` is wanted.

        An onset is kept at once: what was before it is what a process that starts in its middle needs.
        """
        for subject, stretches in self._stretches.items():
            added = stretches.added - self._packed.get(subject, 0)
            is_due = (
                everything
                or stretches.hurt_from == at
                or added >= max(_LEAST_ADDED, _PART_ADDED * len(stretches.ends))
            )
            marks = self._history.marks(subject.model_name, subject.engine)
            if added and is_due and marks is not None:
                self._packed[subject] = stretches.added
                life = Life.of(server.url, server.version, marks)
                yield EnginePast(subject, wall, pack(stretches, life, at, wall))

    def keep(self, hurting: Collection[Subject], present: Collection[Subject]) -> Sequence[Subject]:
        """After a step: adds what is calm to the past of each engine; returns those of which history knows no more.

        `hurting` are those on which a warning or worse holds, `present` those on the last page.
        """
        if self._history.frames:
            at = self._history.times[-1]
            for subject in present:
                stretches = self._stretches[subject]
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

    def _begin(self, subject: Subject, facts: Mapping[str, float]) -> None:
        """The stretches of an engine that is on its first page here: none yet, beside what its counters tell."""
        if subject in self._stretches or subject[1:] not in self._history.subjects():
            return
        span = span_since_start(self._history, subject, facts.get(PROCESS_AGE.name, 0.0))
        before = {} if span is None else since_start(span, facts)
        self._stretches[subject] = Stretches(REMEMBERED, REQUEST_RATE, since_start=before)

    def _past(self, subject: Subject) -> Past | None:
        """None for the target as a whole, and for an engine on its first page."""
        stretches = self._stretches.get(subject)
        since = self._history.epoch(subject.model_name, subject.engine)
        if stretches is None or since is None:
            return None
        at = self._history.times[-1]
        open_span = stretches.open_span(self._history, subject, at)
        return Past(stretches, open_span, at - since, remembered)
