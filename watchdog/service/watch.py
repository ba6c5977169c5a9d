"""One target under watch: step and publish, and fetch; whatever goes wrong in it ends with this cycle."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from watchdog.clock import steady_seconds
from watchdog.diagnosis.hindsight import hindsight
from watchdog.diagnosis.pages import is_unseen
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.history.shapes import Shapes
from watchdog.model import EnginePast, Incident, Reason, Scrape, Snapshot, State, Subject, Target, Verdict
from watchdog.probe.canary import Canary
from watchdog.report.course import Course, Line
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.fetch import Fetcher
from watchdog.settings.model import ScrapeSettings

# A diagnosis that raises this often in a row has lost its footing: begin with a fresh one.
RAISES_BEFORE_FRESH_START = 3
FACTS_PAUSE_SECONDS = 600.0
INTERNAL_ERROR_NOTE = "the last cycle failed inside the watchdog; see its log"

log = logging.getLogger(__name__)


class Watched:
    """A target's diagnosis and its last snapshot, whoever brings its scrapes.

    `errors` counts steps that raised, `finished_at` is the steady time when one last ended well (None: never).
    `course` is how its readings went.
    """

    def __init__(
        self,
        target: Target,
        rules: RuleSet,
        publish: Callable[[Snapshot], None],
        limits: ScrapeSettings | None = None,
        shapes: Shapes | None = None,
        *,
        steady: Callable[[], float] = steady_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.target = target
        self.canary: Canary | None = None
        self.snapshot: Snapshot | None = None
        self.course = Course()
        self.errors = 0
        self.cycle_seconds = 0.0
        self.finished_at: float | None = None
        self._rules = rules
        self._limits = limits or ScrapeSettings()
        self._shapes = shapes
        self._diagnosis = self._new_diagnosis()
        self._publish = publish
        self._steady = steady
        self._wall = wall
        self._raised_in_a_row = 0
        self._step = threading.Lock()
        self._closed = False
        self._taken_up: list[Incident] = []

    def _observe(self, scrape: Scrape) -> Snapshot:
        """One step; the lock is held."""
        before, now = self.snapshot, self._diagnosis.observe(scrape)
        self.snapshot = now
        # Where nobody could look there is a gap, until what was scraped meanwhile is read.
        if not is_unseen(scrape):
            self.course.note(now)
        _log_changes(before, now)
        self._raised_in_a_row = 0
        return now

    def _tell(self, now: Snapshot) -> None:
        """Publishes a snapshot; the lock is held."""
        try:
            self._publish(now)
        except Exception:  # what is known stays known, although it could not be published
            self.errors += 1
            log.exception("publish_failed", extra={"target": self.target.name})

    def replace_rules(self, rules: RuleSet) -> None:
        """Judges by other rules from the next cycle on; incidents keep their identity."""
        with self._step:
            self._rules = rules
            self._diagnosis.replace_rules(rules, self._wall())

    def restore(
        self,
        incidents: Iterable[Incident],
        ended: Iterable[Incident] = (),
        pasts: Iterable[EnginePast] = (),
    ) -> None:
        """Takes up incidents of an earlier life, those that ended in it, and what it learnt of the engines."""
        with self._step:
            if faults := self._diagnosis.recall(pasts, self._steady(), self._wall()):
                log.warning("past_unusable", extra={"target": self.target.name, "why": "; ".join(faults)})
            self._taken_up = list(incidents)
            self._diagnosis.restore(self._taken_up, self._steady(), ended, self._wall())

    def join(self, incidents: Iterable[Incident]) -> tuple[Incident, ...]:
        """Takes up incidents of another process while running; returns those that are known to be over."""
        with self._step:
            now = self.snapshot
            ended = {each.key for each in (now.incidents if now else ()) if each.state is State.RESOLVED}
            stored = tuple(incidents)
            self._diagnosis.join([each for each in stored if each.key not in ended], self._steady())
            return tuple(each for each in stored if each.key in ended)

    def hindsight(self, subject: Subject, names: Collection[str]) -> Mapping[str, Line]:
        """How signals of an engine went over the pages that are remembered; what was never known is left out."""
        with self._step:
            snapshot, history = self.snapshot, self._diagnosis.remembered()
        if snapshot is None:
            return {}
        offset = snapshot.wall - snapshot.at
        found = hindsight(history, subject, names)
        return {
            name: Line(name, [at + offset for at, _ in moments], [value for _, value in moments])
            for name, moments in found.items()
            if any(value is not None for _, value in moments)
        }

    def pasts(self) -> tuple[EnginePast, ...]:
        """What was learnt of the engines and not published yet."""
        with self._step:
            return self._diagnosis.pasts()

    def live(self) -> list[Incident]:
        """The incidents that are not over, as another watch can take them up."""
        with self._step:
            if self.snapshot is None:
                return self._taken_up
            return [each for each in self.snapshot.incidents if each.state is not State.RESOLVED]

    def close(self) -> None:
        """Takes no more steps; what is being published is waited for."""
        self._closed = True
        with self._step:
            pass

    def _new_diagnosis(self) -> TargetDiagnosis:
        return TargetDiagnosis(
            self.target,
            self._rules,
            self._limits.max_series,
            self._limits.max_line_bytes,
            shapes=self._shapes,
        )

    def _failed(self) -> None:
        if self._closed:
            return
        self.errors += 1
        self._raised_in_a_row += 1
        log.exception("cycle_failed", extra={"target": self.target.name, "in_a_row": self._raised_in_a_row})
        with self._step:
            # What was said last is no longer known to be so.
            if self.snapshot is not None and INTERNAL_ERROR_NOTE not in self.snapshot.notes:
                notes = (*self.snapshot.notes, INTERNAL_ERROR_NOTE)
                self.snapshot = replace(
                    self.snapshot, verdict=Verdict.UNKNOWN, why="", notes=notes, transitions=()
                )
        if self._raised_in_a_row % RAISES_BEFORE_FRESH_START == 0:
            self._begin_afresh()

    def _begin_afresh(self) -> None:
        """A diagnosis without the history that may have broken the old one, but with its incidents."""
        live = self.live()
        with self._step:
            self._diagnosis = self._new_diagnosis()
            self._diagnosis.restore(live, self._steady())


class Watch(Watched):
    """A target that is scraped; `cycle` is the job that runs each interval.

    `canary`, where there is one, is sent after a cycle whose snapshot wants it. A server that has never answered may
    take `start_seconds` to do so before anything is said of it.
    """

    def __init__(  # noqa: PLR0913 - what it is made of, and the clocks of a test
        self,
        target: Target,
        fetcher: Fetcher,
        rules: RuleSet,
        publish: Callable[[Snapshot], None],
        limits: ScrapeSettings | None = None,
        shapes: Shapes | None = None,
        *,
        start_seconds: float = 0.0,
        steady: Callable[[], float] = steady_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(target, rules, publish, limits, shapes, steady=steady, wall=wall)
        self._fetcher = fetcher
        self._facts_due_at = float("-inf")
        self._starts_until = steady() + start_seconds

    def cycle(self) -> None:
        """One scrape and what follows from it; never raises."""
        began = self._steady()
        try:
            suspects = self.snapshot is not None and self.snapshot.suspects_api_server
            scrape = self._fetcher.fetch(began, self._wall(), suspects)
            if not self._is_starting(scrape):
                self._follow(scrape)
        except Exception:  # the one place that catches all: the loop must go on
            self._failed()
            return
        self.finished_at = self._steady()
        self.cycle_seconds = self.finished_at - began

    def _follow(self, scrape: Scrape) -> None:
        """What follows from a scrape."""
        self._refresh_facts(scrape)
        if self.canary is not None:
            scrape = replace(scrape, canary=self.canary.reading)
        # Held until it is published: what ends this watch comes before a step or after it, never in its middle.
        with self._step:
            if self._closed:
                return
            self._tell(self._observe(scrape))
        self._send_canary()

    def _is_starting(self, scrape: Scrape) -> bool:
        """Whether it is new, does not answer yet and may still load its model."""
        if scrape.failure is None or self.snapshot is not None or self._taken_up:
            self._starts_until = float("-inf")
        return scrape.at < self._starts_until

    def _send_canary(self) -> None:
        now = self.snapshot
        if self.canary is not None and now is not None and now.wants_canary and now.vllm.models:
            self.canary.send(now.vllm.models[0])

    def _refresh_facts(self, scrape: Scrape) -> None:
        """Asks for version and models when a server has just come up, and now and then until it answers."""
        if scrape.failure is not None:
            self._facts_due_at = float("-inf")
        elif scrape.at >= self._facts_due_at:
            answered = self._fetcher.server_info()
            pause_seconds = FACTS_PAUSE_SECONDS if answered.version is None else float("inf")
            self._facts_due_at = scrape.at + pause_seconds

    def take_over(self, before: "Watch") -> None:
        """Goes on where another watch of the same target will end: with what it said last, and its incidents."""
        self.snapshot = before.snapshot
        self.restore(before.live())

    def replace(self, before: "Watch") -> None:
        """Ends the watch that was taken over; of the same server all that it saw is kept, not only its incidents."""
        diagnosis = before.hand_over()
        if before.target.url != self.target.url:
            return
        with self._step:
            self._diagnosis = diagnosis
            self.course = before.course
            self._diagnosis.reconfigure(self.target, self._limits.max_series, self._limits.max_line_bytes)
            self._diagnosis.replace_rules(self._rules, self._wall())

    def hand_over(self) -> TargetDiagnosis:
        """Closes it; the diagnosis, with all it remembers, is for another watch to go on with."""
        self.close()
        return self._diagnosis

    def close(self) -> None:
        """Gives the connection back; what is being published is waited for, a scrape under way never published."""
        self._closed = True
        self._fetcher.close()
        if self.canary is not None:
            self.canary.close()
        super().close()


def _log_changes(before: Snapshot | None, now: Snapshot) -> None:
    """State changes as events; each scrape only where somebody debugs."""
    name = now.target.name
    if now.failure is not None and now.failure.reason is Reason.NOT_SEEN:
        # Whoever could not look says so, once for all servers.
        return
    if before is None or before.up != now.up:
        failure = now.failure
        reason = {"reason": failure.reason, "detail": failure.detail} if failure is not None else {}
        log.info("target_up" if now.up else "target_down", extra={"target": name, **reason})
    if before is None or before.verdict is not now.verdict:
        lead = now.lead.rule if now.lead is not None else None
        log.info("verdict", extra={"target": name, "verdict": now.verdict, "lead": lead})
    for transition in now.transitions:
        incident = transition.incident
        fields = {"rule": incident.key.rule, "severity": incident.severity, **incident.labels}
        log.info(f"incident_{incident.state}", extra={**fields, "cause": incident.cause})
    log.debug(
        "scrape",
        extra={"target": name, "took_seconds": now.scrape_took_seconds, "samples": now.scrape_samples},
    )
