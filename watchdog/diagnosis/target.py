"""One target's pipeline as a pure step: a scrape in, a Snapshot out. No clock, no network, no file."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from watchdog.diagnosis.incidents import IncidentBook
from watchdog.diagnosis.judge import Case, blind_rules, judge
from watchdog.diagnosis.readings import read
from watchdog.facts import balance
from watchdog.facts.fact import Known, by_name
from watchdog.facts.hints import missing_expectations
from watchdog.facts.launch import ServerContext
from watchdog.facts.programs import described
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import KnownServer
from watchdog.facts.watching import Watching
from watchdog.history.baseline import BaselineKeeper
from watchdog.history.history import History
from watchdog.history.layout import MOST_ENGINES, MOST_NAME_CHARACTERS, Layout
from watchdog.history.names import spellings, wanted
from watchdog.history.span import life_span, now_span, recent_span
from watchdog.model import (
    BlindRule,
    Failure,
    Finding,
    Incident,
    Lookup,
    Page,
    Readings,
    Reason,
    Scope,
    Scrape,
    ServerInfo,
    Severity,
    Snapshot,
    Standing,
    Subject,
    Target,
    Verdict,
    failure_text,
)
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.exposition import ExpositionError, SeriesCache, parse
from watchdog.signals.catalogue import lookup_of
from watchdog.signals.functions import View

# Below this, rates and queues cannot be told yet: the verdict is "starting", never "healthy" by default.
LEAST_SECONDS_TO_JUDGE = 15.0


@dataclass(slots=True)
class _Judged:
    """What one step found out, before it becomes incidents."""

    findings: list[Finding] = field(default_factory=list)
    readings: list[Readings] = field(default_factory=list)
    blind: list[BlindRule] = field(default_factory=list)
    span_seconds: float = 0.0


class Monitor:
    """Watches one target: give it every scrape in order, it gives back what is known after each."""

    def __init__(
        self, target: Target, rules: RuleSet, max_series: int = 50_000, max_line_bytes: int = 65_536
    ):
        self.target = target
        self._cache = SeriesCache(wanted, max_series=max_series, max_line_bytes=max_line_bytes)
        self._history = History()
        self._book = IncidentBook(rules)
        self._standing = Standing()
        self._baselines: dict[Subject, BaselineKeeper] = {}
        self._watching = Watching()
        self._reachability = Reachability()
        self._restarts = Restarts()
        self._server = KnownServer(target.expectations)
        self._hints = missing_expectations(target.expectations)
        self._scrapes = 0
        self._failures: dict[Reason, int] = {}
        self._rule_errors: dict[str, int] = {}
        self._was_away = False
        self._last_success_wall: float | None = None
        self._server_info = ServerInfo()
        self._notes: tuple[str, ...] = ()
        self.replace_rules(rules)

    def replace_rules(self, rules: RuleSet, wall: float = 0.0) -> None:
        """Goes over to another rule set with the next scrape; incidents keep their identity by rule id."""
        self._rules = rules
        self._book.replace_rules(rules, wall)
        self._by_scope = {
            scope: tuple(rule for rule in rules.rules if rule.scope is scope) for scope in Scope
        }

    def restore(self, stored: Iterable[Incident], at: float) -> None:
        """Takes up the incidents that a process before this one left."""
        self._book.restore(stored, at)

    def observe(self, scrape: Scrape) -> Snapshot:
        """One step."""
        self._scrapes += 1
        self._server_info = _newer(self._server_info, scrape.server_info)
        page, failure = self._read(scrape)
        self._take(page, failure, scrape)
        judged = self._judge(page, scrape.at)
        self._standing = self._book.update(judged.findings, scrape.at, scrape.wall, readable=page is not None)
        self._keep_baselines(scrape.at)
        return self._snapshot(scrape, page, failure, judged)

    def _read(self, scrape: Scrape) -> tuple[Page | None, Failure | None]:
        if scrape.failure is not None:
            return None, scrape.failure
        try:
            return parse(scrape.body, self._cache), None
        except ExpositionError as error:
            return None, Failure(error.reason, error.detail)

    def _take(self, page: Page | None, failure: Failure | None, scrape: Scrape) -> None:
        if page is None or failure is not None:
            assert failure is not None  # noqa: S101 - one of the two is always there
            self._failures[failure.reason] = self._failures.get(failure.reason, 0) + 1
            self._reachability.failed(failure, scrape)
            self._was_away = True
            self._notes = ()
            return
        self._last_success_wall = scrape.wall
        resets = self._history.append(page, scrape.at)
        layout = self._history.frames[-1].layout
        self._notes = (*page.notes, *_several_servers(layout), *_surplus(layout))
        self._restarts.note(resets, scrape.at, self._was_away, self._last_words())
        for reset in resets:
            began = Subject(self.target.name, reset.model_name, reset.engine)
            self._baselines.pop(began, None)
            self._watching.forget(began)
        self._reachability.answered(page, scrape.at)
        self._was_away = False
        self._server.learn(layout, self._server_info, bool(resets))

    def _last_words(self) -> str:
        lead = self._standing.lead
        return lead.rule if lead else "nothing"

    def _judge(self, page: Page | None, at: float) -> _Judged:
        judged = _Judged()
        lookups: dict[Subject, Lookup] = {}
        if page is not None:
            for model_name, engine in self._history.subjects():
                subject = Subject(self.target.name, model_name, engine)
                view = self._view(subject, by_name(self._engine_facts(subject, at)))
                lookup = lookups[subject] = lookup_of(view)
                self._judge_one(judged, Scope.ENGINE, subject, lookup)
                self._watching.note(subject, lookup("open_files_drop"))
                judged.readings.append(read(subject, lookup))
                if view.life is not None:
                    judged.span_seconds = max(judged.span_seconds, view.life.seconds)
        facts = by_name(self._target_facts(judged, lookups if page is not None else None, at))
        subject = Subject(self.target.name)
        view = self._view(subject, facts) if page is not None else View(facts=facts)
        self._judge_one(judged, Scope.TARGET, subject, lookup_of(view))
        return judged

    def _judge_one(self, judged: _Judged, scope: Scope, subject: Subject, lookup: Lookup) -> None:
        # Which rules are blind is known, and told, once all engines were judged.
        blind = judged.blind if scope is Scope.TARGET else []
        case = Case(subject, lookup, self._context(subject), self._texts(blind))
        findings = list(judge(self._by_scope[scope], case))
        judged.findings.extend(findings)
        for finding in findings:
            if finding.error:
                self._rule_errors[finding.rule] = self._rule_errors.get(finding.rule, 0) + 1
        judged.blind.extend(blind_rules(findings, self._on_page))

    def _view(self, subject: Subject, facts: dict[str, float]) -> View:
        history = self._history
        keeper = self._baselines.get(subject)
        if keeper is None:
            keeper = self._baselines[subject] = BaselineKeeper()
        return View(
            window=now_span(history, subject),
            recent=recent_span(history, subject),
            life=life_span(history, subject),
            past={"baseline": keeper.span(history, subject)},
            facts=facts,
        )

    def _engine_facts(self, subject: Subject, at: float) -> Iterator[Known]:
        yield from self._server.facts(subject.model_name, subject.engine)
        yield from self._restarts.engine_facts((subject.model_name, subject.engine), at)
        epoch = self._history.epoch(subject.model_name, subject.engine)
        yield from self._watching.engine_facts(subject, epoch, at)

    def _target_facts(
        self, judged: _Judged, engines: Mapping[Subject, Lookup] | None, at: float
    ) -> Iterator[Known]:
        """The facts of the target; `engines` are the signals of those on the page, None without a page."""
        yield from self._reachability.facts(at)
        yield from self._restarts.facts(at)
        yield from self._server.facts("", "")
        if engines is not None:
            of_one = balance.of_one_server(engines, self._history.frames[-1].layout.owners)
            yield from balance.facts([balance.Load.of(lookup) for lookup in of_one.values()])
            yield from self._watching.facts(judged.blind)

    def _context(self, subject: Subject) -> ServerContext:
        return self._server.context(subject.model_name, subject.engine)

    def _texts(self, blind: list[BlindRule]) -> dict[str, str]:
        failure = self._reachability.failure
        rules = ", ".join(sorted({one.rule for one in blind})) or "none"
        # Which series they are stands in the diagnosis; here they would bury the names.
        count = len({metric for one in blind for metric in one.missing})
        return {
            "failure": failure_text(failure.reason, failure.detail) if failure else "none",
            "last_words": _runs_of(self._restarts.last_words) or "nothing",
            "blind": f"{rules}; {count} series {'is' if count == 1 else 'are'} missing",
            "version": self._server.version_text(),
            "programs": described(self._reachability.strangers),
        }

    def _on_page(self, metric: str) -> bool:
        layout = self._history.frames[-1].layout if self._history.frames else None
        return layout is not None and any(name in layout.by_name for name in spellings(metric))

    def _keep_baselines(self, at: float) -> None:
        active = self._standing.active
        for subject, keeper in self._baselines.items():
            if self._history.overfull:
                keeper.forget()
            if self._history.frames:
                keeper.note(self._history, subject, at, subject in active)
        present = {Subject(self.target.name, *engine) for engine in self._history.subjects()}
        for subject in [one for one in self._baselines if one not in present]:
            if self._history.epoch(subject.model_name, subject.engine) is None:
                del self._baselines[subject]
                self._watching.forget(subject)

    def _snapshot(
        self,
        scrape: Scrape,
        page: Page | None,
        failure: Failure | None,
        judged: _Judged,
    ) -> Snapshot:
        standing = self._standing
        return Snapshot(
            target=self.target,
            at=scrape.at,
            wall=scrape.wall,
            verdict=self._verdict(page, judged),
            up=page is not None,
            failure=failure,
            scrape_took_seconds=scrape.took_seconds,
            scrape_samples=len(page.series) if page else 0,
            scrapes=self._scrapes,
            failures=dict(self._failures),
            last_success_wall=self._last_success_wall,
            vllm=self._server.vllm(self._server_info),
            incidents=standing.incidents,
            lead=standing.lead,
            readings=tuple(judged.readings),
            blind=tuple(judged.blind),
            transitions=standing.transitions,
            notes=self._notes,
            hints=self._hints,
            rule_errors=dict(self._rule_errors),
        )

    def _verdict(self, page: Page | None, judged: _Judged) -> Verdict:
        lead = self._standing.lead_incident
        if lead is not None:
            return Verdict.CRITICAL if lead.severity is Severity.CRITICAL else Verdict.DEGRADED
        if page is None or not self._reachability.page_vllm_series:
            return Verdict.UNKNOWN
        return Verdict.HEALTHY if judged.span_seconds >= LEAST_SECONDS_TO_JUDGE else Verdict.STARTING


def _runs_of(words: Iterable[str]) -> str:
    """Each word once with how often it was said in a row."""
    runs = ((word, len(list(run))) for word, run in groupby(words))
    return ", then ".join(f"{word} ({count} times)" if count > 1 else word for word, count in runs)


def _several_servers(layout: Layout) -> Iterator[str]:
    if layout.owners.marks:
        marks = ", ".join(layout.owners.marks)
        yield f"several servers are on the page: each is judged by itself, told apart by its label {marks}"


def _surplus(layout: Layout) -> Iterator[str]:
    if layout.surplus_engines:
        total = len(layout.subjects) + layout.surplus_engines
        yield (
            f"{total} models and engines are on the page, {layout.surplus_engines} of them are not judged: "
            f"at most {MOST_ENGINES} are, with names of {MOST_NAME_CHARACTERS} characters"
        )


def _newer(old: ServerInfo, new: ServerInfo) -> ServerInfo:
    return ServerInfo(
        version=new.version or old.version,
        max_model_len=new.max_model_len or old.max_model_len,
        models=new.models or old.models,
    )
