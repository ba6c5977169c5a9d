"""The JSON that the API speaks, made from snapshots; the text and the page read the same bodies."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from watchdog.history.number import AtLeast, AtMost, Bound
from watchdog.model import (
    NO_LABELS,
    BlindRule,
    Incident,
    Limit,
    Pod,
    Readings,
    Severity,
    Snapshot,
    State,
    Subject,
    Target,
    Transition,
    Verdict,
)
from watchdog.notify.maintenance import Opening
from watchdog.notify.receiver import Answer, Received
from watchdog.rule.rule import Rule
from watchdog.text import EARLIEST_WALL, LATEST_WALL, timestamp

WORST_FIRST = (
    *(Verdict.CRITICAL, Verdict.DEGRADED, Verdict.UNKNOWN, Verdict.UNSETTLED, Verdict.RECOVERING),
    *(Verdict.STARTING, Verdict.IDLE, Verdict.HEALTHY),
)
RFC3339 = "RFC 3339, UTC"
MOST_MADE = 5000
"""Bodies that are kept."""
NO_PODS: Mapping[str, Pod] = MappingProxyType({})
NO_MAINTENANCE: Mapping[str, Opening] = MappingProxyType({})


class Body(BaseModel):
    """A part of an answer. Numbers that are not known, and those JSON cannot write, are null."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), from_attributes=True)


def _finite(value: Any, check: ValidatorFunctionWrapHandler) -> float | None:
    """None for what JSON cannot write; a bound stays one, so that the text can say `>= 10 s`."""
    number = check(value)
    if number is None or not math.isfinite(number):
        return None
    return value if isinstance(value, Bound) else float(number)


Number = Annotated[float | None, WrapValidator(_finite)]
Price = Annotated[str, BeforeValidator(lambda price: price or "")]
Clause = Annotated[str, BeforeValidator(attrgetter("text"))]


class EvidenceBody(Body):
    """A clause of the rule that holds, with the values that made it hold."""

    clause: str = Field(description="The clause as written in the rule.")
    values: dict[str, Number] = Field(description="Its signals and their values; null if unknown.")
    text: str = Field(description="The clause with its values, for people.")


class RemedyBody(Body):
    """One thing to do."""

    action: str = Field(description="What to do.")
    flag: str | None = Field(description="The launch flag to change; null for an action without one.")
    value: str | None = Field(description="The value to set; null if it cannot be computed.")
    direction: str | None = Field(description="Which way the flag moves: raise, lower, set, on, off.")
    lasting: bool = Field(
        description="True if it keeps the trouble from coming back, false if it helps right now."
    )
    why: str = Field(description="Why it helps.")
    price: str = Field(description="What it costs; empty if nothing.")


class IncidentBody(Body):
    """A cause or a symptom that lasts."""

    key: str = Field(description="Its key: rule/target/model_name/engine, `-` for an empty part.")
    rule: str = Field(description="The rule's id.")
    title: str = Field(description="The rule's title.")
    severity: Severity = Field(description="How bad it is.")
    state: State = Field(description="Its state.")
    unknown: bool = Field(description="True while it cannot be judged: it then neither fires nor resolves.")
    cleared: str | None = Field(
        description=f"When its condition cleared, while it still fires ({RFC3339}); null while it holds."
    )
    closes: str | None = Field(
        description=f"When it resolves unless its condition returns ({RFC3339}); null while it holds or only stays "
        "until its symptoms are gone, a minute at most."
    )
    labels: dict[str, str] = Field(description="What it is about: target, model_name, engine.")
    since: str | None = Field(
        description=f"When the trouble began: for a stall the last step, otherwise when it was first seen ({RFC3339})."
    )
    firing_since: str | None = Field(description=f"When it began to fire ({RFC3339}).")
    resolved_at: str | None = Field(description=f"When it ended ({RFC3339}).")
    cause: str = Field(description="What is wrong, in a sentence with the values.")
    evidence: list[EvidenceBody] = Field(description="The evidence.")
    symptoms: list[str] = Field(description="Rules that fire because of it.")
    explained_by: list[str] = Field(description="Rules that fire and explain it.")
    remedies: list[RemedyBody] = Field(description="What to do, the best first.")
    unhelpful: list[str] = Field(description="What will not help.")
    runbook: str = Field(description="Where to read more.")


class VllmBody(Body):
    """What is known of the server."""

    version: str | None = Field(description="vLLM's version as the server reports it.")
    bracket: str | None = Field(description="The range of versions its metrics point to.")
    engine: str | None = Field(description="V0 or V1.")
    models: list[str] = Field(description="The models it serves.")
    config: dict[str, str] = Field(description="Its configuration as far as its metrics show it.")


class LatencyShareBody(Body):
    """A part of the average request."""

    seconds: Number = Field(description="Average time a request spent in it.")
    share: Number = Field(description="Its share of the whole request (0 to 1).")
    share_of_ttft: Number = Field(description="Its share of the time to first token; null for none.")


class ReadingsBody(Body):
    """What is measured of one engine, also when nothing is firing."""

    model_name: str = Field(description="The model; empty where the server has no such label.")
    engine: str = Field(description="The engine; empty where the server has no such label.")
    limit: str = Field(
        description="What limits throughput now, by the rule that holds; none if nothing waits, otherwise unknown."
    )
    limit_share: Number = Field(description="The share of the window in which it did (0 to 1).")
    values: dict[str, Number] = Field(description="Readings by name, the unit in the name.")
    at_least: list[str] = Field(
        default_factory=list,
        description="Readings whose value is only a lower bound: they lie beyond their histogram's last bucket.",
    )
    at_most: list[str] = Field(
        default_factory=list,
        description="Readings whose value is only an upper bound: they are computed from such a lower bound.",
    )
    latency_budget: dict[str, LatencyShareBody] = Field(
        description="Where the average request spent its time."
    )


class BlindBody(Body):
    """A rule that cannot be evaluated now."""

    rule: str = Field(description="The rule's id.")
    labels: dict[str, str] = Field(description="What it cannot judge.")
    missing: list[str] = Field(description="The signals or metrics it would need.")


class FailureBody(Body):
    """Why the last scrape gave nothing."""

    reason: str = Field(description="The reason in one word.")
    detail: str = Field(description="The reason in a sentence.")


class MaintenanceBody(Body):
    """A time in which nothing new is sent."""

    name: str = Field(description="What work is done, from the settings; empty if not given.")
    until: str | None = Field(description=f"When notifications go on ({RFC3339}).")


class PodBody(Body):
    """The pod in which a server runs, as Kubernetes says."""

    name: str = Field(description="Its name.")
    namespace: str = Field(description="Its namespace.")
    node: str = Field(description="The node it runs on; empty if unknown.")
    ready: bool = Field(description="Whether it is ready.")
    restarts: int = Field(description="Restarts of its vLLM container.")
    ended: str = Field(
        description="Why that container ended last, such as OOMKilled or Error; empty for never."
    )
    ended_at: str | None = Field(description=f"When it ended last ({RFC3339}).")
    image: str = Field(description="The image it runs.")
    image_before: str = Field(description="The image its workload ran before; empty if no change was seen.")
    image_changed_at: str | None = Field(description=f"When the present image was first seen ({RFC3339}).")


class TargetBody(Body):
    """One server: what is wrong, why, and what to do."""

    name: str = Field(description="Its name in the settings.")
    url: str = Field(description="Its metrics page, without user info and query values.")
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Its own labels in the settings, or in the Prometheus that scrapes it.",
    )
    up: bool | None = Field(description="Whether the last scrape was good; null before the first.")
    verdict: Verdict = Field(
        description="The verdict: healthy is proven, idle and unsettled are not; recovering has cleared and will close."
    )
    why: str = Field(description="The reason for the verdict if no cause leads; empty for none.")
    maintenance: MaintenanceBody | None = Field(
        default=None, description="The maintenance window that holds its notifications now; null for none."
    )
    watchdog: str | None = Field(
        default=None, description="The other watchdog that watches it and judges it; null for this one."
    )
    pod: PodBody | None = Field(
        default=None, description="The pod it runs in, if found through Kubernetes; otherwise null."
    )
    scrape_age_seconds: float | None = Field(description="Age of the last good scrape; null without one.")
    failure: FailureBody | None = Field(description="Why the last scrape failed; null if it did not.")
    vllm: VllmBody = Field(description="Its vLLM: version, models, configuration.")
    lead: str | None = Field(description="The rule that leads: the cause to look at first; null for none.")
    lead_key: str | None = Field(description="The key of the incident that leads.")
    incidents: list[IncidentBody] = Field(
        description="Everything that fires, is about to or ended within the hour, the lead first."
    )
    latency_budget: dict[str, LatencyShareBody] = Field(
        description="Where the average request spent its time: queue, prefill, decode (of the lead's engine)."
    )
    readings: list[ReadingsBody] = Field(description="Readings of each engine.")
    blind: list[BlindBody] = Field(description="Rules that cannot be evaluated, and the metrics they lack.")
    notes: list[str] = Field(description="What was repaired or is unusual about the page.")
    hints: list[str] = Field(description="What the settings could add to make the diagnosis more exact.")


class DiagnosisBody(Body):
    """The diagnosis of all targets, or of one."""

    generated_at: str | None = Field(description=f"When this was written ({RFC3339}).")
    verdict: Verdict = Field(description="The worst verdict among them; unknown without targets.")
    targets: list[TargetBody] = Field(description="Each target, in the order of the settings.")
    fleet: list[IncidentBody] = Field(description="What is wrong among the targets that serve one model.")


class TargetStatusBody(Body):
    """How the scrapes of one target go."""

    name: str = Field(description="Its name in the settings.")
    url: str = Field(description="Its metrics page, without user info and query values.")
    up: bool | None = Field(description="Whether the last scrape was good; null before the first.")
    verdict: Verdict = Field(description="Its verdict.")
    scrapes: int = Field(description="Scrapes since the watchdog started.")
    failures: dict[str, int] = Field(description="Failed scrapes by reason.")
    last_success: str | None = Field(description=f"The last good scrape ({RFC3339}).")
    scrape_seconds: Number = Field(description="How long the last scrape took.")
    samples: int = Field(description="Samples in the last page.")
    failure: FailureBody | None = Field(description="Why the last scrape failed; null if it did not.")


class TargetsBody(Body):
    """All targets."""

    targets: list[TargetStatusBody] = Field(description="In the order of the settings.")


class IncidentsBody(Body):
    """Incidents, present and past."""

    incidents: list[IncidentBody] = Field(description="The newest first.")
    kept: bool = Field(description="False if no store is configured: then only current incidents are known.")


class TransitionBody(Body):
    """A change of state, with what was known at that moment."""

    at: str | None = Field(description=f"When ({RFC3339}).")
    before: State | None = Field(description="The state before; null at its first.")
    state: State = Field(description="The state after.")
    severity: Severity = Field(description="How bad it was then.")
    cause: str = Field(description="What was said then.")
    evidence: list[EvidenceBody] = Field(description="The values then.")


class IncidentDetailBody(Body):
    """One incident and its time line."""

    incident: IncidentBody = Field(description="Its current or final state.")
    timeline: list[TransitionBody] = Field(description="Its changes of state, the oldest first.")


class ParameterBody(Body):
    """A threshold of a rule, which settings may override."""

    value: float = Field(description="Its value now.")
    unit: str = Field(description="Its unit.")
    why: str = Field(description="Why it is this one.")


class RuleRemedyBody(Body):
    """A thing to do as the rule has it, before values are put in."""

    action: str = Field(description="What to do.")
    flag: str | None = Field(description="The launch flag to change; null for an action without one.")
    why: str = Field(description="Why it helps.")
    price: Price = Field(description="What it costs; empty if nothing.")


class RuleBody(Body):
    """A cause we know."""

    id: str = Field(description="Its id, which is the `rule` label everywhere.")
    title: str = Field(description="The cause in a few words.")
    severity: Severity = Field(description="How bad it is.")
    scope: str = Field(description="What one finding is about: engine, target or fleet.")
    for_seconds: float = Field(description="How long it must hold before it fires.")
    keep_firing_seconds: float = Field(description="How long it must be clear before it resolves.")
    when: list[Clause] = Field(description="Clauses that must all hold.")
    unless: list[Clause] = Field(description="Clauses that must not hold.")
    lasts_while: list[Clause] = Field(
        description="Clauses that, while all hold, keep it from being over once it fires."
    )
    where: dict[str, Clause] = Field(description="Named parts of the clauses.")
    parameters: dict[str, ParameterBody] = Field(description="Thresholds by name.")
    explains: list[str] = Field(description="Rules that become its symptoms while it fires.")
    explained_by: list[str] = Field(description="Rules that make it a symptom while they fire.")
    limit: Limit | None = Field(
        description="What limits throughput while it holds; null if it names nothing."
    )
    cause: str = Field(description="The sentence it says, with signal names where values go.")
    remedies: list[RuleRemedyBody] = Field(description="What it can propose.")
    unhelpful: list[str] = Field(description="What will not help.")
    false_positives: list[str] = Field(description="When it may be wrong.")
    references: list[str] = Field(description="References.")


class RulesBody(Body):
    """All rules in use."""

    rules: list[RuleBody] = Field(description="By id.")


class MeantTargetBody(Body):
    """A target that an alert's labels mean, and what we know of it."""

    target: str = Field(description="Its name in the settings.")
    verdict: Verdict = Field(description="Its verdict.")
    lead: str | None = Field(description="The rule that leads; null for none.")
    cause: str = Field(description="What is wrong, in a sentence.")
    remedy: str | None = Field(description="What to do first; null if nothing is proposed.")
    url: str | None = Field(description="Where to read more; null without web.external_url.")


class AnsweredAlertBody(Body):
    """An alert that others raised, and our answer."""

    alertname: str = Field(description="The alert's name.")
    status: str = Field(description="firing or resolved.")
    labels: dict[str, str] = Field(description="The alert's labels, long ones shortened.")
    starts_at: str = Field(description="When it began, as the alert says.")
    fingerprint: str = Field(description="Alertmanager's identity of it.")
    targets: list[MeantTargetBody] = Field(description="The targets it means.")


class KeptAlertBody(AnsweredAlertBody):
    """An alert that others raised, and what we knew when it came."""

    received_at: str | None = Field(description="When it came last.")


class KeptAlertsBody(Body):
    """The alerts of others that are kept, as many as receiver.keep says."""

    alerts: list[KeptAlertBody] = Field(description="The newest first.")


class ReceivedBody(Body):
    """Our answer to Alertmanager's webhook."""

    alerts: list[AnsweredAlertBody] = Field(description="The alerts as they came.")
    forwarded: bool | None = Field(description="Whether they went on to receiver.forward_url; null without.")


class HealthBody(Body):
    """Whether we are alive, or ready."""

    status: str = Field(description="`ok`.")
    notes: list[str] = Field(default_factory=list, description="Warnings that do not make it unready.")


class ReloadBody(Body):
    """A reload that worked."""

    status: str = Field(description="`ok`.")


class ErrorDetail(Body):
    """What went wrong."""

    status: int = Field(description="The HTTP status.")
    reason: str = Field(description="The reason in one word, for programs.")
    message: str = Field(description="The reason in a sentence, for people.")


class ErrorBody(Body):
    """The one shape of every error."""

    error: ErrorDetail = Field(description="The error.")


def received_body(answer: Answer) -> ReceivedBody:
    """The answer to Alertmanager's webhook."""
    return ReceivedBody.model_validate(answer)


def kept_alert_body(received: Received) -> KeptAlertBody:
    """An alert of others with the diagnosis of then."""
    answered = AnsweredAlertBody.model_validate(received)
    return KeptAlertBody(received_at=time_text(received.wall), **dict(answered))


def time_text(wall: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC with milliseconds; None for None and for what no calendar holds."""
    return timestamp(wall) if wall is not None and EARLIEST_WALL <= wall <= LATEST_WALL else None


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of them; unknown where there is none."""
    given = set(verdicts)
    return next((verdict for verdict in WORST_FIRST if verdict in given), Verdict.UNKNOWN)


def fleet_verdicts(fleet: Iterable[Incident | IncidentBody]) -> set[Verdict]:
    """What is wrong among targets, as verdicts: empty where nothing of warning or above fires or is about to."""
    grave = [one for one in fleet if one.severity is not Severity.INFO]
    firing = {one.severity for one in grave if one.state is State.FIRING}
    found = {Verdict.CRITICAL if one is Severity.CRITICAL else Verdict.DEGRADED for one in firing}
    return found | {Verdict.UNSETTLED for one in grave if one.state is State.PENDING}


class Whereabouts(NamedTuple):
    """By name, the pod that a target runs in, and the other watchdog that watches it."""

    pods: Mapping[str, Pod] = NO_PODS
    watchdogs: Mapping[str, str] = NO_LABELS


def diagnosis_body(
    targets: Sequence[Target],
    snapshots: Mapping[str, Snapshot],
    fleet: Sequence[Incident],
    wall: float,
    make: Callable[[Target, Snapshot | None, float], TargetBody] | None = None,
    maintenance: Mapping[str, Opening] = NO_MAINTENANCE,
    whereabouts: Whereabouts = Whereabouts(),  # noqa: B008 - it never changes
) -> DiagnosisBody:
    """The diagnosis of these targets; one without a snapshot is `starting`. `make` makes the body of one.

    `maintenance` is the window that each target is in, by name, `whereabouts` where each
    runs and who else watches it.
    """
    make = make or target_body
    bodies = [make(target, snapshots.get(target.name), wall) for target in targets]
    bodies = [_held(body, maintenance[body.name]) if body.name in maintenance else body for body in bodies]
    pods, watchdogs = whereabouts
    bodies = [
        body.model_copy(update={"watchdog": watchdogs[body.name]}) if body.name in watchdogs else body
        for body in bodies
    ]
    bodies = [_in_pod(body, pods[body.name]) if body.name in pods else body for body in bodies]
    verdicts = [*(body.verdict for body in bodies), *fleet_verdicts(fleet)]
    return DiagnosisBody(
        generated_at=time_text(wall),
        verdict=worst(verdicts),
        targets=bodies,
        fleet=[incident_body(incident) for incident in fleet],
    )


def _in_pod(body: TargetBody, pod: Pod) -> TargetBody:
    told = {each.name: getattr(pod, each.name) for each in fields(pod)}
    moments = {name: time_text(told[name]) for name in ("ended_at", "image_changed_at")}
    return body.model_copy(update={"pod": PodBody(**told | moments)})


def target_body(target: Target, snapshot: Snapshot | None, wall: float) -> TargetBody:
    """One target as of its last snapshot; `wall` is now, for the age."""
    if snapshot is None:
        return _unread(target)
    return TargetBody(
        name=target.name,
        url=target.url,
        labels=dict(target.labels),
        up=snapshot.up,
        verdict=snapshot.verdict,
        why=snapshot.why,
        scrape_age_seconds=_age(snapshot, wall),
        failure=_failure(snapshot),
        vllm=VllmBody.model_validate(snapshot.vllm),
        lead=snapshot.lead.rule if snapshot.lead else None,
        lead_key=str(snapshot.lead) if snapshot.lead else None,
        incidents=[incident_body(incident) for incident in snapshot.incidents],
        latency_budget=_budget(_leading(snapshot)),
        readings=[_readings_body(readings) for readings in snapshot.readings],
        blind=[_blind(blind) for blind in snapshot.blind],
        notes=list(snapshot.notes),
        hints=list(snapshot.hints),
    )


class TargetBodies:
    """Bodies made once a snapshot, however many callers ask before the next one; only the age is computed for each."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Snapshot, TargetBody]] = {}

    def body(self, target: Target, snapshot: Snapshot | None, wall: float) -> TargetBody:
        """As `target_body`."""
        made = self._made.get(target.name)
        if len(self._made) > MOST_MADE:
            # Names come and go with pods; what is asked for again is made again.
            self._made.clear()
        if snapshot is None:
            return target_body(target, None, wall)
        if made is None or made[0] is not snapshot:
            made = (snapshot, target_body(target, snapshot, wall))
            self._made[target.name] = made
        return made[1].model_copy(update={"scrape_age_seconds": _age(snapshot, wall)})


def status_body(target: Target, snapshot: Snapshot | None) -> TargetStatusBody:
    """How the scrapes of one target go."""
    return TargetStatusBody(
        name=target.name,
        url=target.url,
        up=snapshot.up if snapshot else None,
        verdict=snapshot.verdict if snapshot else Verdict.STARTING,
        scrapes=snapshot.scrapes if snapshot else 0,
        failures={str(reason): count for reason, count in snapshot.failures.items()} if snapshot else {},
        last_success=time_text(snapshot.last_success_wall) if snapshot else None,
        scrape_seconds=snapshot.scrape_took_seconds if snapshot else None,
        samples=snapshot.scrape_samples if snapshot else 0,
        failure=_failure(snapshot) if snapshot else None,
    )


def incident_body(incident: Incident) -> IncidentBody:
    """One incident."""
    return IncidentBody(
        key=str(incident.key),
        rule=incident.key.rule,
        title=incident.title,
        severity=incident.severity,
        state=incident.state,
        unknown=incident.unknown,
        cleared=time_text(incident.cleared_at),
        closes=time_text(incident.closes_at),
        labels=dict(incident.labels),
        since=time_text(incident.since),
        firing_since=time_text(incident.firing_since),
        resolved_at=time_text(incident.resolved_at),
        cause=incident.cause,
        evidence=_evidence(incident),
        symptoms=list(incident.symptoms),
        explained_by=list(incident.explained_by),
        remedies=[RemedyBody.model_validate(remedy) for remedy in incident.remedies],
        unhelpful=list(incident.unhelpful),
        runbook=incident.runbook,
    )


def transition_body(transition: Transition) -> TransitionBody:
    """One change of state."""
    incident = transition.incident
    return TransitionBody(
        at=time_text(transition.at),
        before=transition.before,
        state=incident.state,
        severity=incident.severity,
        cause=incident.cause,
        evidence=_evidence(incident),
    )


def rule_body(rule: Rule) -> RuleBody:
    """One rule as it is used now, overrides included."""
    return RuleBody.model_validate(rule)


def _held(body: TargetBody, opening: Opening) -> TargetBody:
    held = MaintenanceBody(name=opening.name, until=time_text(opening.until))
    return body.model_copy(update={"maintenance": held})


def _unread(target: Target) -> TargetBody:
    return TargetBody(
        name=target.name,
        url=target.url,
        labels=dict(target.labels),
        up=None,
        verdict=Verdict.STARTING,
        why="",
        scrape_age_seconds=None,
        failure=None,
        vllm=VllmBody(version=None, bracket=None, engine=None, models=[], config={}),
        lead=None,
        lead_key=None,
        incidents=[],
        latency_budget={},
        readings=[],
        blind=[],
        notes=[],
        hints=[],
    )


def _age(snapshot: Snapshot, wall: float) -> float | None:
    """Never below zero: the wall clock may have been set back since."""
    if snapshot.last_success_wall is None:
        return None
    age = wall - snapshot.last_success_wall
    return round(max(0.0, age), 3) if math.isfinite(age) else None


def _failure(snapshot: Snapshot) -> FailureBody | None:
    return FailureBody.model_validate(snapshot.failure) if snapshot.failure else None


def _evidence(incident: Incident) -> list[EvidenceBody]:
    return [EvidenceBody.model_validate(each) for each in incident.evidence]


def _leading(snapshot: Snapshot) -> Readings | None:
    """The readings of the engine that the lead is about, else of the first."""
    lead = snapshot.lead
    own = (each for each in snapshot.readings if lead and each.subject[1:] == lead[2:])
    return next(own, None) or next(iter(snapshot.readings), None)


def _budget(readings: Readings | None) -> dict[str, LatencyShareBody]:
    budget = readings.latency_budget if readings else {}
    return {phase: LatencyShareBody.model_validate(share) for phase, share in budget.items()}


def _readings_body(readings: Readings) -> ReadingsBody:
    return ReadingsBody(
        model_name=readings.subject.model_name,
        engine=readings.subject.engine,
        limit=readings.limit,
        limit_share=readings.limit_share,
        values=dict(readings.values),
        at_least=_names_of(AtLeast, readings),
        at_most=_names_of(AtMost, readings),
        latency_budget=_budget(readings),
    )


def _names_of(kind: type[Bound], readings: Readings) -> list[str]:
    return [name for name, value in readings.values.items() if isinstance(value, kind)]


def _blind(blind: BlindRule) -> BlindBody:
    return BlindBody(rule=blind.rule, labels=_subject_labels(blind.subject), missing=list(blind.missing))


def _subject_labels(subject: Subject) -> dict[str, str]:
    return {name: value for name, value in subject._asdict().items() if value}
