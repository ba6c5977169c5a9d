"""All targets together under watch: one step over their last snapshots, on a schedule of its own."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from watchdog.clock import steady_seconds
from watchdog.diagnosis.fleet import FleetDiagnosis
from watchdog.model import Incident, Snapshot, Standing, State
from watchdog.rule.rule_set import RuleSet

log = logging.getLogger(__name__)


class Step(NamedTuple):
    """What one step found: how incidents stand, and when (steady and unix seconds)."""

    standing: Standing
    at: float
    wall: float


class FleetWatch:
    """`cycle` is the job that runs each interval; `errors` counts those that raised."""

    def __init__(
        self, rules: RuleSet, snapshots: Callable[[], Collection[Snapshot]], publish: Callable[[Step], None]
    ) -> None:
        self.incidents: tuple[Incident, ...] = ()
        self.errors = 0
        self._fleet = FleetDiagnosis(rules)
        self._snapshots = snapshots
        self._publish = publish
        self._step = threading.Lock()
        self._closed = False

    def cycle(self) -> None:
        """One step and what follows from it; never raises."""
        at, wall = steady_seconds(), time.time()
        try:
            snapshots = self._snapshots()
            # One target is no fleet; what was found while there were several is still to be ended.
            if len(snapshots) < 2 and not self.incidents:
                return
            # Held until it is published, as by a target's watch.
            with self._step:
                if self._closed:
                    return
                standing = self._fleet.observe(snapshots, at, wall)
                self.incidents = standing.incidents
                self._publish(Step(standing, at, wall))
        except Exception:  # the loop must go on
            self.errors += 1
            log.exception("fleet_cycle_failed")

    def close(self) -> None:
        """Judges no more; what is being published is waited for."""
        with self._step:
            self._closed = True

    def replace_rules(self, rules: RuleSet) -> None:
        """Judges by other rules from the next cycle on."""
        with self._step:
            self._fleet.replace_rules(rules, time.time())

    def join(self, stored: Iterable[Incident]) -> tuple[Incident, ...]:
        """Takes up incidents of another process while running; returns those that are known to be over."""
        theirs = tuple(stored)
        ended = {each.key for each in self.incidents if each.state is State.RESOLVED}
        kept = tuple(each for each in theirs if each.key not in ended)
        if kept:
            with self._step:
                self._fleet.restore(kept, steady_seconds(), (), time.time())
                keys = {each.key for each in kept}
                self.incidents = (*kept, *(each for each in self.incidents if each.key not in keys))
        return tuple(each for each in theirs if each.key in ended)

    def restore(self, stored: Iterable[Incident], ended: Iterable[Incident] = ()) -> None:
        """Takes up incidents of an earlier life, and those that ended in it."""
        kept = tuple(stored)
        with self._step:
            self._fleet.restore(kept, steady_seconds(), ended, time.time())
            self.incidents = kept
