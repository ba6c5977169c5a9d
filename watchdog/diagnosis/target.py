"""One target's pipeline as a pure step: a scrape in, a Snapshot out. No clock, no network, no file.

scrape -> page -> history -> signals and facts -> findings -> incidents -> snapshot, in this order below.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from watchdog.diagnosis.engines import Engines, Server
from watchdog.diagnosis.incidents import IncidentBook
from watchdog.diagnosis.inherited import Inherited
from watchdog.diagnosis.judge import Case, Judge, blind_rules
from watchdog.diagnosis.limits import Limits
from watchdog.diagnosis.moments import moment
from watchdog.diagnosis.pages import PageOrFailure, PageReader, is_unseen
from watchdog.diagnosis.quotes import Quotes
from watchdog.diagnosis.readings import read
from watchdog.diagnosis.verdict import Proof, ruling
from watchdog.facts import balance
from watchdog.facts.fact import Known, by_name
from watchdog.facts.gauge_ranges import GaugeRanges
from watchdog.facts.hints import missing_expectations
from watchdog.facts.host_memory import HostMemory
from watchdog.facts.inflight import InFlight
from watchdog.facts.pool import InferredPools
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import KnownServer
from watchdog.facts.watching import Watching
from watchdog.history.history import START_TIME, History, Reset
from watchdog.history.layout import WHOLE_TARGET, Layout
from watchdog.history.shapes import Shapes
from watchdog.model import (
    BlindRule,
    EnginePast,
    Finding,
    Incident,
    Page,
    Readings,
    Ruling,
    Scope,
    Scrape,
    ServerInfo,
    Snapshot,
    Standing,
    State,
    Subject,
    Target,
    Verdict,
)
from watchdog.rule.rule_set import RuleSet
from watchdog.signals.catalogue import HOST_MEMORY, Signals
from watchdog.signals.functions import View

Listener = Callable[[Scope, Case, Callable[[str], bool]], None]
"""Somebody who hears of each subject once it is judged, and may ask whether a metric is on the page."""


# What fired before a restart where nothing did.
NOTHING = "nothing"


@dataclass(slots=True)
class _Found:
    """What one step found before it becomes incidents."""

    signals: dict[Subject, Signals] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    blind: list[BlindRule] = field(default_factory=list)
    replicated_models: list[str] = field(default_factory=list)


class TargetDiagnosis:
    """Diagnoses one target: give it every scrape in order, it gives back what is known after each."""

    def __init__(
        self,
        target: Target,
        rules: RuleSet,
        max_series: int = 50_000,
        max_line_bytes: int = 65_536,
        listener: Listener | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        self.target = target
        self._listener = listener
        shapes = shapes or Shapes()
        self._reader = PageReader(max_series, max_line_bytes, shapes)
        self._history = History(shapes=shapes)
        self._engines = Engines(self._history)
        self._reachability = Reachability()
        self._restarts = Restarts()
        self._host_memory = HostMemory()
        self._gauge_ranges = GaugeRanges()
        self._server = KnownServer(target.expectations)
        self._server_info = ServerInfo()
        self._watching = Watching()
        self._in_flight = InFlight()
        self._pools = InferredPools()
        self._hints = missing_expectations(target.expectations)
        self._judge = Judge(rules)
        self._limits = Limits(rules)
        self._rules = rules
        self._book = IncidentBook(rules)
        self._inherited = Inherited()
        self._standing = Standing()
        self._led_on_last_page = NOTHING
        self._restarted: tuple[Subject, ...] = ()
        self._at = self._wall = 0.0

    def replace_rules(self, rules: RuleSet, wall: float = 0.0) -> None:
        """Goes over to another rule set with the next scrape; incidents keep their identity by rule id."""
        self._rules = rules
        self._judge.replace_rules(rules)
        self._limits = Limits(rules)
        self._book.replace_rules(rules, wall)

    def reconfigure(self, target: Target, max_series: int, max_line_bytes: int) -> None:
        """Goes on watching the same server under other settings; all that was seen of it stays."""
        self.target = target
        self._reader.limit(max_series, max_line_bytes)
        self._server.expect(target.expectations)
        self._hints = missing_expectations(target.expectations)

    def restore(
        self, stored: Iterable[Incident], at: float, ended: Iterable[Incident] = (), wall: float = 0.0
    ) -> None:
        """Takes up the incidents that a process before this one left, and what they show of the time before.

        `ended` are those that were over by then, `wall` is now in unix seconds.
        """
        earlier = tuple(stored)
        self._book.restore(earlier, at, ended, wall)
        self._inherited.take_up(earlier)
        self._reachability.recall(earlier)
        self._watching.recall(earlier)
        self._gauge_ranges.recall(earlier)

    def join(self, stored: Iterable[Incident], at: float) -> None:
        """Takes up incidents of another process while this one already watches: their identity and their start."""
        earlier = tuple(stored)
        self._book.restore(earlier, at)
        self._inherited.take_up(earlier)

    def recall(self, pasts: Iterable[EnginePast], at: float, wall: float) -> Sequence[str]:
        """Takes what a process before this one learnt of the engines; returns why some of it cannot be used."""
        return self._engines.recall(pasts, at, wall)

    def pasts(self) -> tuple[EnginePast, ...]:
        """What was learnt of the engines since it was last handed on, for a process after this one."""
        return tuple(self._engines.pasts(self._answering(), self._at, self._wall, everything=True))

    def remembered(self) -> History:
        """The pages that are remembered, as they stand now: for looking back while steps go on."""
        return self._history.until(len(self._history.frames))

    def observe(self, scrape: Scrape) -> Snapshot:
        """One step."""
        self._at, self._wall = scrape.at, scrape.wall
        taken = self._reader.read(scrape)
        if is_unseen(scrape):
            # Of nothing that was known before is it known whether it still holds.
            found = _Found()
        else:
            self._remember(taken, scrape)
            found = self._find(taken.page, scrape.at)
        self._standing = self._book.update(
            found.findings, scrape.at, scrape.wall, readable=taken.page is not None
        )
        if taken.page is not None:
            # While it is away all that fires is that it is away; what is worth keeping fired before.
            self._led_on_last_page = self._standing.lead.rule if self._standing.lead else NOTHING
        self._inherited.end(
            each.incident.key for each in self._standing.transitions if each.incident.state is State.RESOLVED
        )
        present = {self._subject(*names) for names in self._history.subjects()}
        for gone in self._engines.keep(self._standing.hurting, present):
            self._watching.forget(gone)
            self._pools.forget(gone)
            self._judge.forget(gone)
        return self._snapshot(scrape, taken, found)

    def recollect(self, scrape: Scrape) -> None:
        """Takes in what a process before this one has judged already: it is seen, and nothing follows from it."""
        self._at, self._wall = scrape.at, scrape.wall
        self._remember(self._reader.read(scrape), scrape)

    # Page to history.

    def _remember(self, taken: PageOrFailure, scrape: Scrape) -> None:
        """Adds what a scrape gave to all that remembers."""
        self._server_info = scrape.server_info.completed_by(self._server_info)
        self._restarted = ()
        if taken.failure is not None:
            self._reachability.failed(taken.failure, scrape)
        if taken.page is None:
            return
        resets = self._history.append(self._gauge_ranges.checked(taken.page), scrape.at)
        self._restarted = tuple(self._subject(each.model_name, each.engine) for each in resets)
        self._begin_again(resets, scrape.at, taken.after_failure)
        self._engines.resume(self._answering())
        self._reachability.answered(taken.page, scrape.at)
        self._note_host_memory(scrape.at)
        columns = self._layout().columns(START_TIME, *WHOLE_TARGET)
        self._restarts.began(scrape.wall - self._history.frames[-1].total(columns), scrape.at)
        self._server.learn(self._layout(), self._server_info, bool(resets))
        self._in_flight.counts = self._server.counts_in_flight
        self._in_flight.note(moment(self._history, scrape))

    def _note_host_memory(self, at: float) -> None:
        columns = self._layout().columns(HOST_MEMORY, *WHOLE_TARGET)
        size = self._history.frames[-1].total(columns)
        if size > 0:  # NaN where the page does not show it
            self._host_memory.note(size, at)

    def _begin_again(self, resets: tuple[Reset, ...], at: float, was_away: bool) -> None:
        """What engines that restarted leave behind."""
        self._restarts.note(resets, at, was_away, self._led_on_last_page)
        if resets:
            self._host_memory.begin_again()
            self._gauge_ranges.begin_again()
            self._in_flight.begin_again()
        for reset in resets:
            began = self._subject(reset.model_name, reset.engine)
            self._engines.forget(began)
            self._watching.forget(began)
            self._pools.forget(began)

    # Signals and facts to findings.

    def _find(self, page: Page | None, at: float) -> _Found:
        """What each rule says of each engine on the page, and then of the target as a whole."""
        found = _Found()
        if page is not None:
            # Which rules are blind is known, and may be quoted, once all engines were judged.
            texts = Quotes(self._reachability, self._restarts, self._server)
            found.signals = self._signals_of_engines(at)
            for subject in found.signals:
                self._find_of_engine(subject, texts, found)
            self._find_of_replicas(found)
        self._find_of_target(page, at, found)
        return found

    def _signals_of_engines(self, at: float) -> dict[Subject, Signals]:
        """The signals of each engine on the page, which know of the room that the others of its server have."""
        subjects = [self._subject(*names) for names in self._history.subjects()]
        facts = {subject: by_name(self._engine_facts(subject, at)) for subject in subjects}
        signals = {subject: self._engines.signals(subject, facts[subject]) for subject in subjects}
        for engines in balance.of_each_server(signals, self._layout().owners):
            if len(engines) > 1:
                loads = {subject: balance.Load.of(lookup) for subject, lookup in engines.items()}
                for subject, (fact, value) in balance.sister_facts(loads):
                    # Signals look facts up when a rule asks, and none has asked yet.
                    facts[subject][fact.name] = value
        return signals

    def _find_of_engine(self, subject: Subject, texts: Quotes, found: _Found) -> None:
        signals = found.signals[subject]
        self._ask(Scope.ENGINE, subject, signals, texts, found)
        self._pools.note(subject, signals)
        self._watch_progress(subject, signals)

    def _watch_progress(self, subject: Subject, signals: Signals) -> None:
        """Keeps what must still be known when the engine has stood still for longer than pages are remembered."""
        self._watching.note(subject, signals["open_files_drop"])
        if signals["seconds_since_progress"] == 0:
            now = signals["prompt_tokens_per_first_token"]
            self._watching.note_prompts(subject, now, signals["prompt_tokens_per_first_token_baseline"])

    def _find_of_replicas(self, found: _Found) -> None:
        """What the rules of a fleet say of several servers of one model that share the page (Ray, a federation)."""
        for model_name, loads in balance.of_servers(found.signals, self._layout().owners).items():
            subject = self._subject(model_name)
            found.replicated_models.append(model_name)
            signals = Signals(View(facts=by_name(balance.fleet_facts(loads, ()))))
            context = self._server.context(model_name, "")
            found.findings.extend(self._judge.findings(Scope.FLEET, Case(subject, signals, context, {})))

    def _find_of_target(self, page: Page | None, at: float, found: _Found) -> None:
        subject = self._subject()
        facts = by_name(self._target_facts(page, at, found))
        signals = Signals(View(facts=facts)) if page is None else self._engines.signals(subject, facts)
        texts = Quotes(self._reachability, self._restarts, self._server, found.blind)
        self._ask(Scope.TARGET, subject, signals, texts, found)

    def _ask(self, scope: Scope, subject: Subject, signals: Signals, texts: Quotes, found: _Found) -> None:
        context = self._server.context(subject.model_name, subject.engine)
        case = Case(subject, signals, context, texts, self._inherited.compared(subject))
        judged = self._judge.findings(scope, case)
        if self._listener is not None:
            self._listener(scope, case, self._is_on_page)
        findings = self._inherited.settled(judged, self._rules, self._seen_seconds(subject))
        found.findings.extend(findings)
        found.blind.extend(blind_rules(findings, self._is_on_page))

    def _engine_facts(self, subject: Subject, at: float) -> Iterator[Known]:
        yield from self._pools.engine_facts(subject)
        yield from self._server.facts(subject.model_name, subject.engine)
        yield from self._host_memory.facts(at, is_current=True)
        yield from self._gauge_ranges.engine_facts(self._layout(), subject.model_name, subject.engine)
        since = self._history.epoch(subject.model_name, subject.engine)
        yield from self._restarts.engine_facts((subject.model_name, subject.engine), at, since)
        yield from self._watching.engine_facts(subject, since, at)
        yield from self._in_flight.facts()

    def _target_facts(self, page: Page | None, at: float, found: _Found) -> Iterator[Known]:
        yield from self._reachability.facts(at)
        yield from self._restarts.facts(at)
        yield from self._host_memory.facts(at, is_current=page is not None)
        yield from self._server.facts("", "")
        if page is not None:
            of_one = balance.of_one_server(found.signals, self._layout().owners).values()
            # One engine has nothing to balance with.
            loads = [balance.Load.of(lookup) for lookup in of_one] if len(of_one) > 1 else [balance.Load()]
            yield from balance.facts(loads[: len(of_one)])
            yield from self._watching.facts(found.blind)
            yield from self._in_flight.facts()

    # Incidents to the snapshot.

    def _snapshot(self, scrape: Scrape, taken: PageOrFailure, found: _Found) -> Snapshot:
        page, standing, reader = taken.page, self._standing, self._reader
        proofs = [Proof.of(signals) for signals in found.signals.values()]
        idleness = self._in_flight.idleness()
        ruled = Ruling(Verdict.UNKNOWN) if is_unseen(scrape) else ruling(standing, proofs, idleness)
        return Snapshot(
            target=self.target,
            at=scrape.at,
            wall=scrape.wall,
            verdict=ruled.verdict,
            up=page is not None,
            failure=taken.failure,
            scrape_took_seconds=scrape.took_seconds,
            scrape_samples=len(page.series) if page else 0,
            scrapes=reader.scrapes,
            failures=dict(reader.failures),
            last_success_wall=reader.last_success_wall,
            vllm=self._server.vllm(self._server_info),
            incidents=standing.incidents,
            lead=standing.lead,
            readings=tuple(self._readings(found)),
            blind=tuple(found.blind),
            transitions=standing.transitions,
            notes=(*page.notes, *self._layout().notes, *self._reachability.notes) if page else (),
            hints=self._hints,
            why=ruled.why,
            replicated_models=tuple(found.replicated_models),
            awaits_cause=standing.awaits_cause,
            rule_errors=dict(self._judge.errors),
            pasts=tuple(self._engines.pasts(self._answering(), scrape.at, scrape.wall)),
            restarted=self._restarted,
            wants_canary=page is not None and self._in_flight.wants_canary and _is_awake(found),
        )

    def _readings(self, found: _Found) -> Iterator[Readings]:
        binding = self._limits.binding(self._standing)
        for subject, signals in found.signals.items():
            yield read(subject, signals, binding.get(subject) or binding.get(self._subject()))

    # What all of them ask.

    def _subject(self, model_name: str = "", engine: str = "") -> Subject:
        return Subject(self.target.name, model_name, engine)

    def _answering(self) -> Server:
        return Server(self.target.url, self._server_info.version)

    def _seen_seconds(self, subject: Subject) -> float | None:
        """For how long its present life was seen on pages; None for one that is on none."""
        since = self._history.epoch(subject.model_name, subject.engine)
        return None if since is None else self._history.times[-1] - since

    def _layout(self) -> Layout:
        """The layout of the last page."""
        return self._history.frames[-1].layout

    def _is_on_page(self, metric: str) -> bool:
        return bool(self._history.frames) and self._layout().shows(metric)


def _is_awake(found: _Found) -> bool:
    """Whether no engine sleeps or is being given other weights, as far as they tell."""
    return not any(
        signals["awake_ratio"] == 0 or (signals["weight_updates_in_flight"] or 0) > 0
        for signals in found.signals.values()
    )
