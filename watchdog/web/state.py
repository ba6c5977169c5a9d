"""What the API needs to know of the running service, and nothing else of it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from watchdog.model import Incident, Pod, Snapshot, State, Subject, Target, Transition
from watchdog.notify.maintenance import Opening
from watchdog.notify.receiver import Answer, Received
from watchdog.report.course import Course, Line
from watchdog.report.day import Day
from watchdog.report.day_readings import DayReadings
from watchdog.report.metrics import Metrics
from watchdog.rule.rule_set import RuleSet


class IncidentHistory(Protocol):
    """The store of incidents, where there is one."""

    @property
    def warning(self) -> str:
        """What is wrong with it, such as a disk that failed; empty where nothing is."""
        ...

    def query(
        self, since: float | None, state: State | None, rule: str | None, limit: int
    ) -> Sequence[Incident]:
        """Incidents that began or changed since that unix time, the newest first."""
        ...

    def timeline(self, key: str) -> Sequence[Transition]:
        """Every transition of the incident whose key reads `key`, the oldest first; empty for none."""
        ...


class ServiceState(Protocol):
    """The running service as the API sees it. All methods answer from memory; `reload` may take a moment."""

    @property
    def started(self) -> bool:
        """Whether the first cycle of every target has ended."""
        ...

    @property
    def reload_successful(self) -> bool:
        """Whether the last reading of settings and rules was taken; false keeps those of before in force."""
        ...

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        ...

    @property
    def registry(self) -> Metrics:
        """The watchdog's own metrics."""
        ...

    @property
    def history(self) -> IncidentHistory | None:
        """The store; None where nothing is kept."""
        ...

    @property
    def is_configured(self) -> bool:
        """Whether anything is to be watched; what is found may be nothing yet."""
        ...

    def pods(self) -> Mapping[str, Pod]:
        """What Kubernetes says of each target that is a pod, by the target's name."""
        ...

    def watchdogs(self) -> Mapping[str, str]:
        """The other watchdog that watches a target, by the target's name; our own are not in it."""
        ...

    def targets(self) -> Sequence[Target]:
        """Every target: those of the settings in their order, then those that were found."""
        ...

    def snapshots(self) -> Mapping[str, Snapshot]:
        """The last snapshot of each target by its name; a target that has none yet is not in it."""
        ...

    def courses(self) -> Mapping[str, Course]:
        """How the readings of each target went, by its name."""
        ...

    def hindsight(self, subject: Subject, names: Collection[str]) -> Mapping[str, Line]:
        """How signals of an engine went over the pages that are remembered; what was never known is left out."""
        ...

    def days(self) -> Mapping[str, Day]:
        """The last 24 hours of each target, by its name; a target of which nothing is known is not in it."""
        ...

    def day_readings(self) -> Mapping[str, DayReadings]:
        """The readings of each target over the last 24 hours, by its name; as `days`."""
        ...

    def fleet_incidents(self) -> Sequence[Incident]:
        """What is wrong among the targets that serve one model."""
        ...

    def maintenance(self, wall: float) -> Mapping[str, Opening]:
        """The window of maintenance that each target is in at that unix second; those that are in none are left out."""
        ...

    def cycle_alive(self) -> bool:
        """Whether scrapes still run: false where no cycle ended in three intervals."""
        ...

    def strains(self) -> Sequence[str]:
        """What is amiss with the watching itself, for people: time for scrapes, open files, servers not found."""
        ...

    def reload(self) -> Sequence[str]:
        """Reads settings and rules again; returns the faults, and keeps what was where there are any."""
        ...

    def receive(self, payload: Mapping[str, Any]) -> Answer:
        """Takes Alertmanager's webhook; returns what we know of the targets its alerts mean.

        Raises ValueError, its text safe to show, for a payload that is not of that form, and ForwardError
        where it was not passed on.
        """
        ...

    def received(self) -> Sequence[Received]:
        """The alerts that came so, each with the diagnosis of then, the newest first."""
        ...
