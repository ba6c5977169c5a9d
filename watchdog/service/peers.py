"""Other watchdogs: their servers as they see them, beside our own and compared with them, judged by them alone."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from watchdog.clock import steady_seconds
from watchdog.errors import SourceError
from watchdog.http.get import Getter
from watchdog.http.url import redact_url
from watchdog.model import Pod, Snapshot, Target, Verdict
from watchdog.report.course import Course
from watchdog.report.metrics import PeerFigures
from watchdog.report.told import Told, own_servers, read_diagnosis, renamed
from watchdog.service.schedule import Schedule
from watchdog.settings.watchdogs import WatchdogSettings

# One look may fail without a word: what was said ten seconds ago still counts.
LOOKS_BEFORE_UNKNOWN = 2

log = logging.getLogger(__name__)


class Peer:
    """One other watchdog; `look` is the job that runs each interval."""

    def __init__(self, settings: WatchdogSettings) -> None:
        self.settings = settings
        self.told: Mapping[str, Told] = {}
        """Its servers by their names there."""
        self.courses: Mapping[str, Course] = {}
        """How their readings went since we look."""
        self.finished_at: float | None = None
        self.error = ""
        self.failures = 0
        self._failed_in_a_row = 0
        self._stopped = False
        self._getter = Getter(settings.endpoint_at(settings.diagnosis_url), what="diagnosis")

    def look(self) -> None:
        """Asks it; never raises."""
        try:
            self._take(self._asked())
            self._recovered()
        except SourceError as error:
            self._failed(str(error))
        except Exception as error:  # the loop must go on
            log.exception("watchdog_raised", extra={"watchdog": self.settings.name})
            self._failed(f"internal error: {type(error).__name__}")
        self.finished_at = steady_seconds()

    def stop(self) -> None:
        """Asks no more."""
        self._stopped = True
        self._getter.close()

    def _asked(self) -> Mapping[str, Told]:
        settings = self.settings
        try:
            answer = self._getter.get(
                self._getter.url, "application/json", settings.deadline_seconds, settings.max_answer_bytes
            )
        except Exception as error:  # whatever libraries raise, a person is told what it means
            detail = self._getter.failure(error, settings.deadline_seconds).detail
            raise SourceError(f"{redact_url(settings.url)}: {detail}") from None
        told = own_servers(read_diagnosis(answer.body), steady_seconds(), time.time())
        return {each.snapshot.target.name: each for each in told}

    def _take(self, told: Mapping[str, Told]) -> None:
        courses = {name: self.courses.get(name) or Course() for name in told}
        for name, each in told.items():
            before = self.told.get(name)
            if before is None or before.snapshot.wall != each.snapshot.wall:
                courses[name].note(each.snapshot)
        self.told, self.courses = told, courses

    def _recovered(self) -> None:
        if self.error:
            log.info("watchdog_answers_again", extra={"watchdog": self.settings.name})
        self.error, self._failed_in_a_row = "", 0

    def _failed(self, error: str) -> None:
        if self._stopped:
            return
        self.failures += 1
        self._failed_in_a_row += 1
        if not self.error:
            log.warning("watchdog_failed", extra={"watchdog": self.settings.name, "why": error})
        self.error = error
        if self._failed_in_a_row >= LOOKS_BEFORE_UNKNOWN:
            why = f"its watchdog {self.settings.name} does not answer"
            self.told = {name: _unseen(each, why) for name, each in self.told.items()}


class PeerServer(NamedTuple):
    """A server of another watchdog: whose it is, what that says of it, and how its readings went."""

    watchdog: str
    told: Told
    course: Course


class Peers:
    """All other watchdogs, each with its job on the schedule; one thread changes them, others read."""

    def __init__(self, schedule: Schedule, taken: Callable[[], Collection[str]]) -> None:
        self._schedule = schedule
        self._taken = taken
        self._peers: dict[str, Peer] = {}

    def change(self, entries: Iterable[WatchdogSettings]) -> None:
        """Goes over to others; those that stay know nothing of it."""
        before, after = self._peers, dict[str, Peer]()
        for entry in entries:
            peer = before.get(entry.name)
            if peer is None or peer.settings != entry:
                peer = Peer(entry)
                self._schedule.add(_job_of(entry.name), peer.look, entry.interval_seconds, 0.0)
            after[entry.name] = peer
        self._peers = after
        for name, peer in before.items():
            if after.get(name) is not peer:
                peer.stop()
            if name not in after:
                self._schedule.remove(_job_of(name))

    def close(self) -> None:
        """Asks no more."""
        for peer in self._peers.values():
            peer.stop()

    @property
    def is_used(self) -> bool:
        """Whether there is any."""
        return bool(self._peers)

    @property
    def have_looked(self) -> bool:
        """Whether the first look at each has ended, well or badly."""
        return all(peer.finished_at is not None for peer in self._peers.values())

    def looks(self) -> list[tuple[float | None, float]]:
        """When each was last looked at (steady seconds, None: never), and its interval."""
        return [(peer.finished_at, peer.settings.interval_seconds) for peer in self._peers.values()]

    def notes(self) -> Iterator[str]:
        """Which of them cannot be read, for people."""
        for peer in self._peers.values():
            if peer.error:
                yield f"the watchdog {peer.settings.name} cannot be read: {peer.error}"

    def figures(self) -> Sequence[PeerFigures]:
        """What is counted of each."""
        return [
            PeerFigures(
                peer.settings.name,
                None if peer.finished_at is None else not peer.error,
                peer.failures,
                len(peer.told),
            )
            for peer in self._peers.values()
        ]

    def servers(self) -> Mapping[str, PeerServer]:
        """Every server by its name.

        Where two have one name, as all sidecars may call theirs by a loopback address, the later one is named by its
        watchdog as well.
        """
        taken, servers = set(self._taken()), dict[str, PeerServer]()
        for name, peer in tuple(self._peers.items()):
            courses = peer.courses
            for own, told in peer.told.items():
                shown = own if own not in taken else f"{own} of {name}"
                if shown not in taken:
                    course = courses.get(own) or Course()
                    servers[shown] = PeerServer(name, told if shown == own else renamed(told, shown), course)
                    taken.add(shown)
        return servers

    def targets(self) -> Sequence[Target]:
        """Every server as a target."""
        return [each.told.snapshot.target for each in self.servers().values()]

    def snapshots(self) -> Mapping[str, Snapshot]:
        """What is known of each server, by its name."""
        return {name: each.told.snapshot for name, each in self.servers().items()}

    def pods(self) -> Mapping[str, Pod]:
        """The pod of each server whose watchdog knows it, by the server's name."""
        pods = ((name, each.told.pod) for name, each in self.servers().items())
        return {name: pod for name, pod in pods if pod is not None}

    def watchdog_of(self) -> Mapping[str, str]:
        """The watchdog of each server, by the server's name."""
        return {name: each.watchdog for name, each in self.servers().items()}

    def courses(self) -> Mapping[str, Course]:
        """How the readings of each server went since we look, by its name."""
        return {name: server.course for name, server in self.servers().items()}


def _unseen(told: Told, why: str) -> Told:
    """The server while nobody says how it is: what was said before may be so no longer."""
    snapshot = replace(
        told.snapshot,
        up=False,
        verdict=Verdict.UNKNOWN,
        why=why,
        failure=None,
        incidents=(),
        lead=None,
        readings=(),
        blind=(),
    )
    return told._replace(snapshot=snapshot)


def _job_of(name: str) -> str:
    """The name of its job: no target is called so, for a slash parts the words of a key."""
    return f"watchdog/{name}"
