"""All servers of one Prometheus under watch: one look an interval, whatever the number of servers."""

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from watchdog.clock import steady_seconds
from watchdog.diagnosis.pages import is_unseen
from watchdog.errors import SourceError
from watchdog.history.shapes import Shapes
from watchdog.http.url import redact_url
from watchdog.model import EnginePast, Failure, Reason, Scrape, Snapshot, Subject, Target, Transition
from watchdog.notify.announcements import Ledger
from watchdog.report.metrics import PrometheusFigures
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.continued import Continued, Scraped
from watchdog.scrape.prometheus import WINDOW_SECONDS, PrometheusSource, QueryLimits
from watchdog.scrape.samples import ADDRESS, Fleet, Labels, labels_text
from watchdog.service.watch import Watched
from watchdog.settings.model import ScrapeSettings
from watchdog.settings.prometheus import SourceSettings
from watchdog.text import printable_labels

# Samples may come so late, through a remote write above all; a page that lacks series may be whole by then.
LATE_SECONDS = 30.0
LAGS = 10
# How much of the past one query reads: what a fleet's answer takes in memory stays bounded.
PART_SECONDS = 120.0
JOBS_SECONDS = 60.0
# One look may fail without a word about the servers: the next one reads what it has missed.
LOOKS_BEFORE_UNKNOWN = 2
# A server without a scrape for so many of its intervals, and some seconds for the way, is missed, then unknown.
MISSED_INTERVALS, UNSEEN_INTERVALS = 1.5, 3.0
WAY_SECONDS = 10.0
USUAL_INTERVAL_SECONDS = 30.0
# For so long a Prometheus shows what it has no newer sample of.
STALE_SECONDS = 300.0
# A target may leave service discovery for a moment and come back: until then nothing of it ends.
GONE_SECONDS = 120.0
# A Prometheus that says nothing of a server, not even that it left, may be away itself.
LOST_SECONDS = 3600.0

log = logging.getLogger(__name__)


class ServerWatch(Watched):
    """One server of a Prometheus: takes its scrapes as they are read, and publishes them together.

    What began and was over within one look is kept, and nobody is called for it.
    """

    def __init__(
        self,
        target: Target,
        rules: RuleSet,
        publish: Callable[[Snapshot], None],
        limits: ScrapeSettings | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        super().__init__(target, rules, publish, limits, shapes)
        self.interval_seconds = USUAL_INTERVAL_SECONDS
        """How far its last two scrapes were apart."""
        self.gone_since: float | None = None
        """Since when its Prometheus says that it is no target of it (steady seconds)."""
        self.watched_until = float("-inf")
        """Up to when an earlier life has judged its scrapes (unix seconds)."""
        self._scraped_at: float | None = None
        self._untold: list[Transition] = []
        self._untold_pasts: dict[Subject, EnginePast] = {}

    def take(self, scrapes: Iterable[Scrape]) -> None:
        """A step for each of the scrapes, in order; never raises."""
        for scrape in scrapes:
            try:
                with self._step:
                    if self._closed:
                        return
                    if scrape.wall <= self.watched_until:
                        self._diagnosis.recollect(scrape)
                        continue
                    now = self._observe(scrape)
                    self._untold += now.transitions
                    self._untold_pasts |= {past.subject: past for past in now.pasts}
            except Exception:  # one server must not end the look at all others
                self._failed()
            self._note_interval(scrape)

    def unseen(self, why: str) -> None:
        """A step in which nobody could look."""
        failure = Failure(Reason.NOT_SEEN, why)
        self.take([Scrape(self._steady(), self._wall(), 0.0, 0, b"", failure)])

    def tell(self) -> None:
        """Publishes how it stands, with all that changed since the last publication."""
        with self._step:
            if self.snapshot is None or self._closed:
                return
            changes, pasts = tuple(self._untold), tuple(self._untold_pasts.values())
            self._untold.clear()
            self._untold_pasts.clear()
            self._tell(replace(self.snapshot, transitions=changes, pasts=pasts))

    def rename(self, target: Target) -> None:
        """Goes on watching it at another address."""
        with self._step:
            self.target = target
            self._diagnosis.reconfigure(target, self._limits.max_series, self._limits.max_line_bytes)

    def _note_interval(self, scrape: Scrape) -> None:
        if is_unseen(scrape):
            return
        if self._scraped_at is not None and scrape.at > self._scraped_at:
            self.interval_seconds = scrape.at - self._scraped_at
        self._scraped_at = scrape.at


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a source needs of the service: how a server is begun and ended, and what is somebody else's.

    `names` are names that are taken, `addresses` those that are scraped by ourselves.
    """

    begin: Callable[[Target], ServerWatch]
    end: Callable[[ServerWatch], None]
    names: Callable[[], Collection[str]]
    addresses: Callable[[], Collection[str]]


class SourceWatch:
    """Watches what one Prometheus scrapes; `poll` is the job that runs each interval.

    `servers` are those known now by their names, of an earlier life too; `since` is when that one last watched (unix
    seconds, None where there was none).
    """

    def __init__(
        self, settings: SourceSettings, around: Surroundings, ledger: Ledger, since: float | None = None
    ) -> None:
        self.settings = settings
        self.servers: Mapping[str, ServerWatch] = {}
        self.looking = threading.Lock()
        """Held during a look."""
        self.finished_at: float | None = None
        """The steady time when a look last ended, well or badly, with all read; None for never."""
        self.alive_at: float | None = None
        """The steady time when anything was last read, or could not be."""
        self._around = around
        self._ledger = ledger
        limits = QueryLimits(settings.deadline_seconds, settings.max_answer_bytes)
        endpoint = settings.endpoint_at(settings.url)
        self._source = PrometheusSource(
            endpoint, settings.match, settings.tenant, limits, settings.replica_labels
        )
        kept = dict(_kept(ledger))
        # A clock that was set back since then says nothing of what was read.
        is_past = since is not None and since <= time.time()
        self.joined = Continued(0.0, kept, around.names)
        for name, labels in kept.items():
            self._add(name, labels).watched_until = since if since is not None and is_past else float("-inf")
        self._jobs_at = float("-inf")
        # From the clock of the Prometheus to ours, and to the steady one; None until it answered.
        self._skew_seconds: float | None = None
        self._to_steady_seconds = steady_seconds() - time.time()
        # How old the newest scrape of all was, in the last looks that brought one.
        self._lags: deque[float] = deque(maxlen=LAGS)
        self._error = ""
        self._failures = self._failed_in_a_row = 0
        self._stopped = False
        self._seconds = 0.0
        self._told: set[str] = set()

    # What others see.

    @property
    def figures(self) -> PrometheusFigures:
        """What is counted of it."""
        return PrometheusFigures(
            name=self.settings.name,
            up=None if self.finished_at is None else not self._error,
            look_seconds=self._seconds,
            bytes_read=self._source.bytes_read,
            failures=self._failures,
            servers=len(self.servers),
        )

    @property
    def note(self) -> str:
        """Why nothing of it is seen, for people; empty while something is."""
        name = self.settings.name
        if self._error:
            return f"no server of the Prometheus {name} is seen: {self._error}"
        if self.finished_at is not None and not self.servers:
            return f"the Prometheus {name} scrapes no vLLM server that its matchers find"
        return ""

    # Its life.

    def poll(self) -> None:
        """One look, what it says of each server, and what follows; never raises."""
        began = steady_seconds()
        with self.looking:
            if self._stopped:
                return
            try:
                if not self._look(time.time() + self._source.skew_seconds, began + self._patience_seconds):
                    return
                self._recovered()
            except SourceError as error:
                self._failed(str(error))
            except Exception:  # the loop must go on
                log.exception("look_failed", extra={"prometheus": self.settings.name})
                self._failed("the last look failed inside the watchdog; see its log")
            for server in self.servers.values():
                server.tell()
        self.finished_at = self.alive_at = steady_seconds()
        self._seconds = self.finished_at - began

    def adopt(self, before: "SourceWatch") -> None:
        """Goes on with the servers of a source that had other settings, and ends that one."""
        before.stop()
        with before.looking:
            self.servers, self.joined = before.servers, before.joined

    def stop(self) -> None:
        """Looks no more; its servers stay as they are."""
        self._stopped = True
        self._source.close()

    def close(self) -> None:
        """Looks no more; what is being published is waited for."""
        self.stop()
        for server in self.servers.values():
            server.close()

    def end_all(self) -> None:
        """Ends every server of it, whose incidents end with it."""
        with self.looking:
            for name, server in self.servers.items():
                self._drop(name, server, "its Prometheus is no longer watched")

    # A look.

    @property
    def _patience_seconds(self) -> float:
        """How long one look may go on reading a long past; the next one goes on with it."""
        return self.settings.interval_seconds / 2

    def _look(self, at: float, until: float) -> bool:
        """Reads up to now; False where there is still some past to be read at that steady time."""
        newest = self.joined.newest
        begin = max(at - WINDOW_SECONDS, newest - LATE_SECONDS if newest is not None else 0.0)
        if not self.servers or steady_seconds() - self._jobs_at >= JOBS_SECONDS:
            self._source.find_jobs(at, at - begin)
            self._jobs_at = steady_seconds()
        while begin < at:
            seconds = min(PART_SECONDS, at - begin)
            begin += seconds
            # Some count the sample at the far edge of a range in, others do not.
            fleet = self._source.fleet(begin, seconds + 1, finds_jobs=False)
            if self._skew_seconds is None:
                self._skew_seconds = self._source.skew_seconds
            self._take(fleet, begin - LATE_SECONDS)
            self.alive_at = steady_seconds()
            if self.alive_at > until and begin < at:
                return False
        latest = self.joined.newest
        if newest is not None:
            if latest is not None and latest > newest:
                self._lags.append(at - latest)
            self._miss(at)
        return True

    def _take(self, fleet: Fleet, settled: float) -> None:
        ours = self._around.addresses()
        servers = {name: one for name, one in fleet.servers.items() if one.labels.get(ADDRESS) not in ours}
        self._say(
            (
                *self._source.warnings,
                *fleet.notes,
                *(
                    f"{name} is scraped directly by the watchdog, and not watched twice"
                    for name in fleet.servers.keys() - servers.keys()
                ),
            )
        )
        for name, scraped in _by_server(self.joined.new(Fleet(servers), settled)).items():
            server = self.servers.get(name) or self._add(name, scraped[0].labels)
            target = self._target(name, scraped[-1].labels)
            if server.target != target:
                self._keep(name, scraped[-1].labels)
                server.rename(target)
            server.gone_since = None
            server.take([self._ours(each.scrape) for each in scraped])

    def _ours(self, scrape: Scrape) -> Scrape:
        """A scrape by our clocks."""
        wall = scrape.wall - (self._skew_seconds or 0.0)
        return replace(scrape, at=wall + self._to_steady_seconds, wall=wall)

    def _miss(self, at: float) -> None:
        """Finds servers of which nothing came: those that left, and those that nobody scrapes any more."""
        missed = {
            name: seconds
            for name, server in self.servers.items()
            if (seconds := self._silent_seconds(name, at))
            > MISSED_INTERVALS * server.interval_seconds + WAY_SECONDS
        }
        if not missed:
            return
        present = self._source.present(at)
        is_partial = self._source.is_partial
        for name, seconds in missed.items():
            server = self.servers[name]
            pairs = server.target.labels.items()
            if is_partial or any(pairs <= labels for labels in present):
                server.gone_since = None
            elif server.gone_since is None:
                server.gone_since = steady_seconds()
            self._attend(name, server, seconds)

    def _attend(self, name: str, server: ServerWatch, silent_seconds: float) -> None:
        """Says what a server is that was not scraped, and ends it once that is certain."""
        gone = server.gone_since
        gone_seconds = 0.0 if gone is None else steady_seconds() - gone
        # Nobody is shown as a target for longer than five minutes after its last scrape: that is no sign of leaving.
        was_shown = self.joined.last(name) is None or silent_seconds - gone_seconds < STALE_SECONDS
        left = gone is not None and was_shown
        if silent_seconds > LOST_SECONDS or (left and gone_seconds >= GONE_SECONDS):
            self._drop(name, server, "it is no longer a target" if left else "it was not scraped for an hour")
        elif left:
            server.unseen("it is no longer a target of its Prometheus")
        elif silent_seconds > UNSEEN_INTERVALS * server.interval_seconds + WAY_SECONDS:
            server.unseen("its Prometheus no longer scrapes it")

    def _silent_seconds(self, name: str, at: float) -> float:
        last = self.joined.last(name)
        # What was not scraped in the past that was read is not scraped now; what comes late to all is missed by none.
        return WINDOW_SECONDS if last is None else at - last - min(self._lags, default=0.0)

    # Servers that come and go.

    def _add(self, name: str, labels: Labels) -> ServerWatch:
        server = self._around.begin(self._target(name, labels))
        # Whoever reads meanwhile sees the servers of before, or of after.
        self.servers = {**self.servers, name: server}
        self._keep(name, labels)
        return server

    def _drop(self, name: str, server: ServerWatch, why: str) -> None:
        log.info("server_gone", extra={"target": name, "prometheus": self.settings.name, "why": why})
        self.servers = {each: one for each, one in self.servers.items() if each != name}
        self.joined.forget(name)
        self._ledger.save({name: None})
        self._around.end(server)

    def _keep(self, name: str, labels: Labels) -> None:
        self._ledger.save({name: json.dumps(dict(labels))})

    def _target(self, name: str, labels: Labels) -> Target:
        url = f"{redact_url(self.settings.url)} {labels_text(labels)}"
        return Target(name, url, labels=printable_labels(labels))

    # What is said of the Prometheus itself.

    def _failed(self, error: str) -> None:
        if self._stopped:
            return
        self._failures += 1
        self._failed_in_a_row += 1
        if not self._error:
            log.warning("prometheus_failed", extra={"prometheus": self.settings.name, "why": error})
        self._error = error
        if self._failed_in_a_row >= LOOKS_BEFORE_UNKNOWN:
            for server in self.servers.values():
                server.unseen(f"its Prometheus cannot be read: {error}")

    def _recovered(self) -> None:
        if self._error:
            log.info("prometheus_answers_again", extra={"prometheus": self.settings.name})
        self._error, self._failed_in_a_row = "", 0

    def _say(self, notes: Iterable[str]) -> None:
        """Says once each what is not as it should be about the answers."""
        for note in notes:
            if note not in self._told:
                self._told.add(note)
                log.warning("prometheus_note", extra={"prometheus": self.settings.name, "note": note})


def _by_server(scraped: Iterable[Scraped]) -> Mapping[str, list[Scraped]]:
    found: dict[str, list[Scraped]] = {}
    for each in scraped:
        found.setdefault(each.name, []).append(each)
    return found


def _kept(ledger: Ledger) -> Iterator[tuple[str, Labels]]:
    """The servers that an earlier life knew, by name."""
    for name, text in ledger.load().items():
        with suppress(ValueError):
            labels = json.loads(text)
            if isinstance(labels, dict) and all(isinstance(each, str) for each in labels.values()):
                yield name, labels
