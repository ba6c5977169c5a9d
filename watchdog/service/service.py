"""The running service: watches on a schedule, what they publish, and the change from one configuration to the next."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from watchdog import logs
from watchdog.clock import steady_seconds, uptime
from watchdog.diagnosis.fleet import FLEET
from watchdog.discovery.discovery import Discovery
from watchdog.errors import ConfigError, RuleError
from watchdog.history.shapes import Shapes
from watchdog.http.url import host_and_port
from watchdog.model import NO_LABELS, Incident, Key, Pod, Snapshot, Subject, Target, Transition
from watchdog.notify.announcements import Ledger, MemoryLedger
from watchdog.notify.maintenance import Maintenance, Opening
from watchdog.notify.notifiers import Notifiers
from watchdog.notify.receiver import AlertReceiver, Answer, Received
from watchdog.probe.canary import Canary
from watchdog.probe.completion import CompletionProbe
from watchdog.report.course import Course, Line
from watchdog.report.day import Day
from watchdog.report.day_readings import DayReadings
from watchdog.report.metrics import Figures, Metrics
from watchdog.rule.in_force import RuleFiles, load_rules
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.service.fleet_watch import FleetWatch, Step
from watchdog.service.open_files import OpenFiles, open_files_notes
from watchdog.service.pace import Pace
from watchdog.service.peers import Peers
from watchdog.service.schedule import Schedule, share_of
from watchdog.service.source_watch import ServerWatch
from watchdog.service.sources import Household, Sources
from watchdog.service.watch import Watch, Watched
from watchdog.settings.model import Settings
from watchdog.settings.target import TargetSettings
from watchdog.state.database import Mode
from watchdog.state.store import FILE_NAME, DayOf, Restored, Store

# A cycle of some target has to end in this many intervals, else we are not alive.
INTERVALS_ALIVE = 3
# A reload that keeps less than half of the targets is told of.
FEWEST_KEPT = 0.5
# Targets that a line of the log names.
MOST_NAMED = 10
# For so long after its last answer a server that is silent may have left: later nobody is asked out of turn.
LEAVING_SECONDS = 60.0


log = logging.getLogger(__name__)


class Service:
    """All that runs; what the API and our metrics see of it is answered from memory.

    `load` reads the settings again, for a reload.
    """

    def __init__(self, settings: Settings, load: Callable[[], Settings]) -> None:
        self._load = load
        self._rules = load_rules(settings.rules)
        self._rule_files = RuleFiles(settings.rules)
        self._schedule = Schedule()
        self._pace = Pace()
        self._open_files = OpenFiles()
        self._store = _store(settings)
        self._restored = self._store.open(time.time()) if self._store else Restored()
        self._memory: defaultdict[str, Ledger] = defaultdict(MemoryLedger)
        self._discovery = Discovery(settings.discovery, self._ledger)
        # As they were read, and with the servers that were found.
        self._given = settings
        self._settings = settings = settings.with_targets(self._discovery.targets(settings.targets))
        self._notifiers = Notifiers(settings, self._ledger)
        self._receiver = self._receiver_of(settings)
        self._maintenance = Maintenance(settings.maintenance)
        self._days = {name: Day.read(text) for name, text in self._kept(DayOf.VERDICTS).items()}
        self._readings_of_day = {
            name: DayReadings.read(text) for name, text in self._kept(DayOf.READINGS).items()
        }
        self._watches: dict[str, Watch] = {}
        self._begun = False
        self._shapes = Shapes()
        household = Household(
            self._begin_server, self._end_server, self._ledger, self._names, self._addresses
        )
        self._sources = Sources(household, self._schedule)
        self._peers = Peers(self._schedule, self._known_names)
        self._fleet = FleetWatch(self._rules, self._all_snapshots, self._publish_fleet)
        self._schedule_fleet()
        self._changing = threading.Lock()
        self._reload_successful = True
        self._reloaded_at = time.time()
        self._last_fault = ""
        self._has_started = False
        self._started_at = steady_seconds()
        self._registry = Metrics(self)
        for index, entry in enumerate(settings.targets):
            self._watches[entry.name] = self._begin(entry, share_of(index, len(settings.targets)))
        self._sources.begin(settings.prometheus, self._restored.last_seen)
        self._peers.change(self._discovery.watchdogs(settings.watchdogs))
        self._begun = True

    # What the API and our metrics see.

    @property
    def reload_successful(self) -> bool:
        """Whether the last reading of settings and rules was taken; false keeps those of before in force."""
        return self._reload_successful

    @property
    def rules(self) -> RuleSet:
        """The rules in use."""
        return self._rules

    @property
    def registry(self) -> Metrics:
        """The watchdog's own metrics."""
        return self._registry

    @property
    def history(self) -> Store | None:
        """The store; None where no state directory is set."""
        return self._store

    @property
    def started(self) -> bool:
        """Whether there was a time when every target and every Prometheus had been looked at, well or badly.

        Targets that come later are no reason to begin again.
        """
        if not self._has_started:
            self._has_started = (
                self._discovery.has_answered
                and self._sources.have_looked
                and self._peers.have_looked
                and all(
                    watch.finished_at is not None or watch.errors for watch in tuple(self._watches.values())
                )
            )
        return self._has_started

    @property
    def is_configured(self) -> bool:
        """Whether anything is to be watched; what is found may be nothing yet."""
        found = (self._discovery.is_used, self._sources.is_used, self._peers.is_used)
        return bool(self._watches) or any(found)

    def pods(self) -> Mapping[str, Pod]:
        """What Kubernetes says of each target that is a pod, by the target's name."""
        return {**self._peers.pods(), **self._discovery.pods}

    def watchdogs(self) -> Mapping[str, str]:
        """The other watchdog that watches a target, by the target's name; our own are not in it."""
        return self._peers.watchdog_of()

    def targets(self) -> Sequence[Target]:
        """Every target: those of the settings in their order, then those found, in a Prometheus, by others."""
        return [*(watch.target for watch in self._all()), *self._peers.targets()]

    def snapshots(self) -> Mapping[str, Snapshot]:
        """The last snapshot of each target by its name."""
        pairs = ((watch.target.name, watch.snapshot) for watch in self._all())
        own = {name: snapshot for name, snapshot in pairs if snapshot is not None}
        return {**own, **self._peers.snapshots()}

    def courses(self) -> Mapping[str, Course]:
        """How the readings of each target went, by its name."""
        return {**{watch.target.name: watch.course for watch in self._all()}, **self._peers.courses()}

    def hindsight(self, subject: Subject, names: Collection[str]) -> Mapping[str, Line]:
        """How signals of an engine went over the pages that are remembered."""
        watch = self._find(subject.target)
        return watch.hindsight(subject, names) if watch is not None else {}

    def days(self) -> Mapping[str, Day]:
        """The last 24 hours of each target, by its name."""
        return {name: day for name in self._known_names() if (day := self._days.get(name)) is not None}

    def day_readings(self) -> Mapping[str, DayReadings]:
        """The readings of each target over the last 24 hours, by its name."""
        known = self._readings_of_day
        return {name: day for name in self._known_names() if (day := known.get(name)) is not None}

    def fleet_incidents(self) -> Sequence[Incident]:
        """What is wrong among the targets that serve one model."""
        return self._fleet.incidents

    def maintenance(self, wall: float) -> Mapping[str, Opening]:
        """The window of maintenance that each target is in at that unix second; those that are in none are left out."""
        pairs = ((name, self._maintenance.opening(name, wall)) for name in self._known_names())
        return {name: opening for name, opening in pairs if opening is not None}

    def cycle_alive(self) -> bool:
        """Whether scrapes still run: false where no cycle ended in three intervals of the fastest target."""
        settings, watches = self._settings, tuple(self._watches.values())
        looks = [(watch.finished_at, settings.interval_seconds(watch.target.name)) for watch in watches]
        looks += (*self._sources.looks(), *self._peers.looks())
        if not looks:
            return True
        ended = [at for at, _ in looks if at is not None]
        shortest = min(interval for _, interval in looks)
        return steady_seconds() - max(ended, default=self._started_at) <= INTERVALS_ALIVE * shortest

    def strains(self) -> Sequence[str]:
        """What is amiss with the watching itself, for people: time for scrapes, open files, servers not found."""
        own = (self._pace.note, self._open_files.note, *open_files_notes(len(self._watches)))
        found = (*self._discovery.notes(), *self._sources.notes(), *self._peers.notes())
        return tuple(note for note in (*own, *found) if note)

    def figures(self) -> Figures:
        """What we count of ourselves."""
        watches, skipped = self._all(), self._schedule.skipped
        return Figures(
            reload_successful=self._reload_successful,
            reloaded_at=self._reloaded_at,
            cycle_seconds={watch.target.name: watch.cycle_seconds for watch in watches},
            cycle_errors={watch.target.name: watch.errors for watch in watches},
            canaries={watch.target.name: watch.canary.outcomes for watch in watches if watch.canary},
            late_cycles=self._schedule.counts.late,
            skipped_cycles={watch.target.name: skipped.get(watch.target.name, 0) for watch in watches},
            notifications=(*self._notifiers.statistics(), *self._receiver.statistics()),
            alerts_unread=self._receiver.unread,
            external_url=self._settings.web.external_url or "",
            looks=self._discovery.looks,
            in_maintenance=frozenset(self.maintenance(time.time())),
            prometheus=self._sources.figures(),
            peers=self._peers.figures(),
            elsewhere=frozenset(self._peers.watchdog_of()),
            state_on_disk=self._store.health.mode is Mode.DISK if self._store else None,
        )

    def receive(self, payload: Mapping[str, Any]) -> Answer:
        """Takes Alertmanager's webhook; returns what we know of the targets its alerts mean.

        Raises PayloadError (a ValueError) for what is no such payload, ForwardError where it was not passed on.
        """
        return self._receiver.receive(payload, self.snapshots(), time.time())

    def received(self) -> Sequence[Received]:
        """The alerts that came so, each with the diagnosis of then, the newest first."""
        return self._receiver.received()

    # Its life.

    def start(self) -> None:
        """Takes up what an earlier life left, and begins to watch."""
        self._take_up()
        self._notifiers.run()
        self._started_at = steady_seconds()
        self._schedule.start()
        self._discovery.start()

    def look(self) -> None:
        """Called every second or so: notices servers that came or went, clocks that were set, changed rule files."""
        if self._discovery.is_new:
            self._follow_discovery()
        self._schedule.watch_clock()
        self._pace.look(self._schedule.counts, steady_seconds())
        self._open_files.look(steady_seconds())
        if self._store is not None and (found := self._store.found()) is not None:
            self._join(found)
        if self._rule_files.changed(steady_seconds()):
            self.reload()

    def stop(self, drain_seconds: float) -> None:
        """Ends the watching and sends what is queued; what fires is not resolved, for it may still be so."""
        self._discovery.stop()
        self._schedule.stop()
        for watch in tuple(self._watches.values()):
            watch.close()
        self._sources.close()
        self._peers.close()
        self._fleet.close()
        self._notifiers.stop(drain_seconds)
        if self._store is not None:
            self._store.learn(past for watch in self._all() for past in watch.pasts())
            for name, day in self.day_readings().items():
                self._store.keep_day(DayOf.READINGS, name, day.text())
            self._store.close()

    def reload(self) -> Sequence[str]:
        """Reads settings and rules again; all of it is built before any of the old goes.

        Returns the faults; where there are any, everything stays as it was.
        """
        with self._changing:
            try:
                settings = self._load()
                rules = load_rules(settings.rules)
                self._discovery.change(settings.discovery)
                self._given = settings
                self._change(settings.with_targets(self._discovery.targets(settings.targets)), rules)
            except (ConfigError, RuleError) as error:
                return self._refuse([str(fault) for fault in error.faults])
            except Exception as error:  # a reload must never end the service
                log.exception("reload_raised")
                return self._refuse([f"internal error: {type(error).__name__}"])
            self._reload_successful = True
            self._reloaded_at = time.time()
            self._last_fault = ""
            log.info("reloaded", extra={"rules": len(self._rules.rules), "targets": len(self._all())})
            return ()

    def _refuse(self, faults: Sequence[str]) -> Sequence[str]:
        self._reload_successful = False
        text = "; ".join(faults)
        # A bad file is looked at again and again: it is told once.
        if text != self._last_fault:
            # Without the excerpts of files, which want lines of their own.
            log.error(
                "reload_refused", extra={"faults": "; ".join(each.partition("\n")[0] for each in faults)}
            )
        self._last_fault = text
        return faults

    def _change(self, settings: Settings, rules: RuleSet) -> None:
        """Goes over to another configuration; what can fail comes first."""
        old, self._settings = self._settings, settings
        same_rules = rules.digest == self._rules.digest and settings.rules == old.rules
        self._rules = rules
        self._rule_files = RuleFiles(settings.rules)
        self._maintenance = Maintenance(settings.maintenance)
        before = set(self._watches)
        self._change_targets(old, settings)
        _tell_of_fewer(len(before), len(before & set(self._watches)))
        self._sources.change(settings.prometheus)
        self._peers.change(self._discovery.watchdogs(settings.watchdogs))
        if not same_rules:
            for watch in self._all():
                watch.replace_rules(rules)
            self._fleet.replace_rules(rules)
        self._change_notifiers(old, settings)
        if settings.scrape.interval_seconds != old.scrape.interval_seconds:
            self._schedule_fleet()
        self._receiver = self._receiver_of(settings)
        logs.set_up(settings.log.level, settings.log.format)
        if (old.web, old.state) != (settings.web, settings.state):
            log.warning("restart_needed", extra={"reason": "web and state settings are read at the start"})

    def _follow_discovery(self) -> None:
        """Watches the servers that are found now: new ones begin, those that left end their incidents."""
        with self._changing:
            old = self._settings
            self._settings = settings = self._given.with_targets(self._discovery.targets(self._given.targets))
            self._change_targets(old, settings)
            self._receiver.know(settings.targets)
            self._peers.change(self._discovery.watchdogs(settings.watchdogs))

    def _change_targets(self, old: Settings, settings: Settings) -> None:
        """Begins what is new or watched in another way, and ends what is gone; the others know nothing of it."""
        before, entries = self._watches, {each.name: each for each in old.targets}
        after: dict[str, Watch] = {}
        for index, entry in enumerate(settings.targets):
            watch = before.get(entry.name)
            if watch is None or entry != entries[entry.name] or settings.scrape != old.scrape:
                after[entry.name] = self._begin(entry, share_of(index, len(settings.targets)), watch)
            else:
                after[entry.name] = watch
        self._notifiers.know(settings)
        self._watches = after
        for name, watch in before.items():
            if name in after and after[name] is not watch:
                after[name].replace(watch)
            if name not in after:
                watch.close()
                self._schedule.remove(name)
                self._end(watch.live())
                self._days.pop(name, None)
                self._readings_of_day.pop(name, None)
        self._tell_of_changes(before.keys(), after.keys())

    def _tell_of_changes(self, before: Collection[str], after: Collection[str]) -> None:
        gone, new = sorted(set(before) - set(after)), sorted(set(after) - set(before))
        if gone or new:
            log.info("targets_changed", extra={"new": _few(new), "gone": _few(gone)})

    def _change_notifiers(self, old: Settings, settings: Settings) -> None:
        if not Notifiers.are_alike(old, settings):
            self._begin_notifiers(settings)

    def _begin_notifiers(self, settings: Settings) -> None:
        """Sends by these settings from now on, with what is kept of what was sent."""
        before = self._notifiers
        after = Notifiers(settings, self._ledger)
        after.run()
        self._notifiers = after
        before.stop(drain_seconds=1.0)

    # What it does with a target.

    def _begin(self, entry: TargetSettings, share: float, before: Watch | None = None) -> Watch:
        """A watch for a target, scheduled; it takes up the incidents of the one it replaces."""
        settings = self._settings
        scrape = settings.scrape
        limits = FetchLimits(settings.deadline_seconds(entry.name), scrape.max_body_bytes)
        fetcher = Fetcher(entry.endpoint(), limits)
        watch = Watch(
            entry.target(),
            fetcher,
            self._rules,
            self._publish_snapshot,
            scrape,
            self._shapes,
            start_seconds=self._start_seconds(entry),
        )
        watch.canary = _canary(entry)
        if before is not None:
            watch.take_over(before)
        elif self._begun and self._store is not None:
            watch.restore((), (), self._store.pasts(entry.name))
        self._schedule.add(entry.name, watch.cycle, settings.interval_seconds(entry.name), share)
        return watch

    def _begin_server(self, target: Target) -> ServerWatch:
        """A watch for a server of a Prometheus, with what an earlier life learnt of its engines."""
        scrape = self._settings.scrape
        server = ServerWatch(target, self._rules, self._publish_snapshot, scrape, self._shapes)
        if self._begun and self._store is not None:
            server.restore((), (), self._store.pasts(target.name))
        return server

    def _end_server(self, server: ServerWatch) -> None:
        server.close()
        self._end(server.live())
        self._days.pop(server.target.name, None)
        self._readings_of_day.pop(server.target.name, None)

    def _names(self) -> Collection[str]:
        """The names of targets, and of all together."""
        return {FLEET, *self._watches}

    def _addresses(self) -> Collection[str]:
        """Host and port of what we scrape ourselves."""
        return {host_and_port(entry.url) for entry in self._settings.targets}

    def _start_seconds(self, entry: TargetSettings) -> float:
        """What it has to load its model; nothing where an earlier life saw it at work."""
        seen = not self._begun and self._store is not None and self._store.pasts(entry.name)
        return 0.0 if seen else entry.start_seconds

    def _schedule_fleet(self) -> None:
        self._schedule.add(FLEET, self._fleet.cycle, self._settings.scrape.interval_seconds, share=1.0)

    def _publish_snapshot(self, snapshot: Snapshot) -> None:
        if self._store is not None and snapshot.pasts:
            self._store.learn(snapshot.pasts)
        if not snapshot.up and _answered_lately(snapshot):
            self._discovery.hurry(snapshot.target.name)
        self._note_day(snapshot)
        step = Step(snapshot.standing, snapshot.at, snapshot.wall)
        self._publish(snapshot.target.name, step, snapshot.target.labels)

    def _note_day(self, snapshot: Snapshot) -> None:
        name = snapshot.target.name
        day = self._days.setdefault(name, Day())
        if day.note(snapshot.verdict, snapshot.wall) and self._store is not None:
            self._store.keep_day(DayOf.VERDICTS, name, day.text())
        watch = self._find(name)
        readings = self._readings_of_day.setdefault(name, DayReadings())
        if readings.note(snapshot, watch.course.marks() if watch else ()) and self._store is not None:
            self._store.keep_day(DayOf.READINGS, name, readings.text())

    def _kept(self, of: DayOf) -> Mapping[str, str]:
        return self._store.days(of) if self._store is not None else {}

    def _all_snapshots(self) -> Collection[Snapshot]:
        """The last snapshots; none before every target has one: half a fleet would be judged as a whole."""
        return tuple(self.snapshots().values()) if self.started else ()

    def _publish_fleet(self, step: Step) -> None:
        self._publish(FLEET, step)

    def _publish(self, target: str, step: Step, labels: Mapping[str, str] = NO_LABELS) -> None:
        """Stores and sends what one step found; called from the threads of many targets."""
        standing = step.standing
        if self._store is not None:
            self._store.record(standing.transitions)
            self._store.checkpoint(standing.incidents, step.wall, step.at, [target])
        held = self._held(standing.with_ended, step.wall)
        pageable = standing.pageable
        self._notifiers.observe(standing.with_ended, step.at, step.wall, pageable, held, labels)

    def _held(self, incidents: Collection[Incident], wall: float) -> Collection[Key]:
        """What nobody is to be paged for now; of a fleet's model where any of its servers is in maintenance."""
        if not (incidents and self._maintenance.is_planned):
            return ()
        return {each.key for each in incidents if self._is_held(each.key, wall)}

    def _is_held(self, key: Key, wall: float) -> bool:
        if key.target != FLEET:
            return self._maintenance.opening(key.target, wall) is not None
        snapshots = self.snapshots()
        return any(
            readings.subject.model_name == key.model_name
            for name in self.maintenance(wall)
            if name in snapshots
            for readings in snapshots[name].readings
        )

    def _take_up(self) -> None:
        """Goes on with the incidents of the process before this one; those of nothing known end here."""
        kept, ends = self._restored.split(self._knows, time.time())
        over = [each for each in self._restored.ended if self._knows(each.key)]
        for watch in self._all():
            name = watch.target.name
            pasts = self._store.pasts(name) if self._store is not None else ()
            watch.restore(_of(name, kept), _of(name, over), pasts)
        self._fleet.restore(_of(FLEET, kept), _of(FLEET, over))
        if self._store is not None:
            self._store.record(ends)
        ended = (*self._restored.ended, *(each.incident for each in ends))
        if ended:
            self._notifiers.observe(ended, steady_seconds(), time.time(), ())

    def _join(self, found: Restored) -> None:
        """Goes on with the incidents of a predecessor that had the state file when we started."""
        with self._changing:
            wall = time.time()
            kept, ends = found.split(self._knows, wall)
            over = list(self._fleet.join(_of(FLEET, kept)))
            # Before any step: what the predecessor announced must not be announced again.
            self._begin_notifiers(self._settings)
            for watch in self._all():
                over += watch.join(_of(watch.target.name, kept))
            known_ends = [Transition.end_of(each, wall) for each in over]
            if self._store is not None:
                self._store.record([*ends, *known_ends])
            # An end that it wrote and may not have sent; what began again since is no end.
            live = {each.key for watch in self._all() for each in watch.live()}
            unsent = [each for each in found.ended if each.key not in live]
            ended = (*unsent, *(each.incident for each in (*ends, *known_ends)))
            self._notifiers.observe(ended, steady_seconds(), wall, ())

    def _knows(self, key: Key) -> bool:
        return key.target in {*self._known_names(), FLEET} and self._rules.find(key.rule) is not None

    def _end(self, incidents: Iterable[Incident]) -> None:
        """Resolves what belongs to a target that is watched no more."""
        wall = time.time()
        ends = [Transition.end_of(each, wall) for each in incidents]
        if self._store is not None:
            self._store.record(ends)
        self._notifiers.observe([each.incident for each in ends], steady_seconds(), wall, ())

    def _receiver_of(self, settings: Settings) -> AlertReceiver:
        return AlertReceiver(
            settings.receiver, settings.targets, settings.web.external_url, ledgers=self._ledger
        )

    def _ledger(self, sender: str) -> Ledger:
        return self._store.ledger(sender) if self._store is not None else self._memory[sender]

    def _all(self) -> Sequence[Watched]:
        """Every watch: of targets, and of the servers of a Prometheus."""
        return (*tuple(self._watches.values()), *self._sources.servers())

    def _known_names(self) -> Collection[str]:
        return [watch.target.name for watch in self._all()]

    def _find(self, name: str) -> Watched | None:
        """What watches the target of that name; None where nothing does."""
        own = self._watches.get(name)
        return own or next((each for each in self._sources.servers() if each.target.name == name), None)


def _of(target: str, incidents: Iterable[Incident]) -> list[Incident]:
    return [each for each in incidents if each.key.target == target]


def _canary(entry: TargetSettings) -> Canary | None:
    if not entry.canary.enabled:
        return None
    return Canary(CompletionProbe(entry.canary_endpoint()), steady_seconds)


def _store(settings: Settings) -> Store | None:
    state = settings.state
    if state.directory is None:
        return None
    return Store(
        state.directory / FILE_NAME,
        retention_days=state.retention_days,
        max_incidents=state.max_incidents,
        interval_seconds=settings.scrape.interval_seconds,
        uptime=uptime,
    )


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _tell_of_fewer(before: int, kept: int) -> None:
    """Warns of a reload that no longer watches most of what was watched: it may be a slip, and ends their alerts."""
    if before and kept < before * FEWEST_KEPT:
        log.warning(
            "targets_dropped",
            extra={"before": before, "kept": kept, "reason": "their alerts end; was this meant?"},
        )


def _answered_lately(snapshot: Snapshot) -> bool:
    """Whether a server that does not answer may have just left."""
    last = snapshot.last_success_wall
    return last is not None and snapshot.wall - last <= LEAVING_SECONDS
