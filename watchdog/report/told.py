"""Snapshots out of the diagnosis that another watchdog gave, so that its servers are shown as our own are."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime
from typing import NamedTuple

from pydantic import ValidationError

from watchdog.errors import SourceError
from watchdog.history.number import AtLeast, AtMost
from watchdog.model import (
    BlindRule,
    Evidence,
    Failure,
    Incident,
    Key,
    LatencyShare,
    Pod,
    Readings,
    Reason,
    Remedy,
    Snapshot,
    Subject,
    Target,
    VllmIdentity,
)
from watchdog.report.bodies import (
    BlindBody,
    DiagnosisBody,
    FailureBody,
    IncidentBody,
    LatencyShareBody,
    PodBody,
    ReadingsBody,
    TargetBody,
)
from watchdog.text import clean_values, one_line


class Told(NamedTuple):
    """A server as another watchdog sees it."""

    snapshot: Snapshot
    pod: Pod | None


def read_diagnosis(body: bytes) -> DiagnosisBody:
    """The diagnosis of another watchdog, perhaps of another version; raises SourceError for what is none."""
    try:
        told = clean_values(json.loads(body))
    except (ValueError, RecursionError):
        raise SourceError("the answer is no JSON: is this the address of a watchdog?") from None
    try:
        return DiagnosisBody.model_validate(told, extra="ignore")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise SourceError(
            f"no diagnosis of a watchdog that we know ({one_line(where, 100)}: {one_line(first['msg'], 100)})"
        ) from None


def own_servers(diagnosis: DiagnosisBody, at: float, wall: float) -> Iterator[Told]:
    """The servers that it watches itself: those that it shows for others are theirs.

    `at` is monotonic, `wall` unix seconds, both of when it was asked.
    """
    for body in diagnosis.targets:
        if not body.watchdog:
            yield Told(_snapshot(body, at, wall), _pod(body.pod))


def renamed(told: Told, name: str) -> Told:
    """The same server under another name, where two have one."""
    snapshot = told.snapshot

    def subject(of: Subject) -> Subject:
        return of._replace(target=name)

    def key(of: Key) -> Key:
        return of._replace(target=name)

    return told._replace(
        snapshot=replace(
            snapshot,
            target=replace(snapshot.target, name=name),
            incidents=tuple(replace(each, key=key(each.key)) for each in snapshot.incidents),
            lead=key(snapshot.lead) if snapshot.lead else None,
            readings=tuple(replace(each, subject=subject(each.subject)) for each in snapshot.readings),
            blind=tuple(replace(each, subject=subject(each.subject)) for each in snapshot.blind),
        )
    )


def _snapshot(body: TargetBody, at: float, wall: float) -> Snapshot:
    age = body.scrape_age_seconds
    incidents = tuple(_incident(body.name, each) for each in body.incidents)
    return Snapshot(
        target=Target(body.name, body.url, labels=dict(body.labels)),
        at=at if age is None else at - age,
        wall=wall if age is None else wall - age,
        verdict=body.verdict,
        up=bool(body.up),
        failure=_failure(body.failure),
        scrape_took_seconds=0.0,
        scrape_samples=0,
        scrapes=0,
        failures={},
        last_success_wall=None if age is None else wall - age,
        vllm=VllmIdentity(
            body.vllm.version,
            body.vllm.bracket,
            body.vllm.engine,
            tuple(body.vllm.models),
            dict(body.vllm.config),
        ),
        incidents=incidents,
        lead=next(
            (
                one.key
                for one, told in zip(incidents, body.incidents, strict=True)
                if told.key == body.lead_key
            ),
            None,
        ),
        readings=tuple(_readings(body.name, each) for each in body.readings),
        blind=tuple(_blind(body.name, each) for each in body.blind),
        notes=tuple(body.notes),
        hints=tuple(body.hints),
        why=body.why,
    )


def _incident(target: str, body: IncidentBody) -> Incident:
    labels = body.labels
    return Incident(
        key=Key(body.rule, target, labels.get("model_name", ""), labels.get("engine", "")),
        title=body.title,
        severity=body.severity,
        state=body.state,
        cause=body.cause,
        evidence=tuple(Evidence(each.clause, dict(each.values), each.text) for each in body.evidence),
        remedies=tuple(
            Remedy(each.action, each.flag, each.value, each.why, each.price, each.direction, each.lasting)
            for each in body.remedies
        ),
        unhelpful=tuple(body.unhelpful),
        runbook=body.runbook,
        pending_since=_wall(body.since) or 0.0,
        firing_since=_wall(body.firing_since),
        resolved_at=_wall(body.resolved_at),
        symptoms=tuple(body.symptoms),
        explained_by=tuple(body.explained_by),
        unknown=body.unknown,
        cleared_at=_wall(body.cleared),
        closes_at=_wall(body.closes),
    )


def _readings(target: str, body: ReadingsBody) -> Readings:
    values: dict[str, float | None] = dict(body.values)
    for bound, names in ((AtLeast, body.at_least), (AtMost, body.at_most)):
        values |= {name: bound(value) for name in names if (value := values.get(name)) is not None}
    return Readings(
        Subject(target, body.model_name, body.engine),
        values,
        body.limit,
        body.limit_share,
        {phase: _share(each) for phase, each in body.latency_budget.items()},
    )


def _share(body: LatencyShareBody) -> LatencyShare:
    return LatencyShare(body.seconds or 0.0, body.share or 0.0, body.share_of_ttft)


def _blind(target: str, body: BlindBody) -> BlindRule:
    labels = body.labels
    subject = Subject(target, labels.get("model_name", ""), labels.get("engine", ""))
    return BlindRule(body.rule, subject, tuple(body.missing))


def _failure(body: FailureBody | None) -> Failure | None:
    if body is None:
        return None
    known = body.reason in set(Reason)
    return Failure(Reason(body.reason) if known else Reason.NOT_SEEN, one_line(body.detail, 300))


def _pod(body: PodBody | None) -> Pod | None:
    if body is None:
        return None
    told = {each.name: getattr(body, each.name) for each in fields(Pod)}
    return Pod(**told | {name: _wall(told[name]) for name in ("ended_at", "image_changed_at")})


def _wall(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
