"""The HTTP API: every answer comes from the last snapshots, none makes us fetch anything."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from watchdog import __version__
from watchdog.model import SEVERITY_RANK, Incident, State, Target, Transition, Verdict
from watchdog.notify.receiver import ALERTS_AT_MOST, ForwardError
from watchdog.report.bodies import (
    DiagnosisBody,
    ErrorBody,
    HealthBody,
    IncidentDetailBody,
    IncidentsBody,
    KeptAlertsBody,
    ReceivedBody,
    ReloadBody,
    RuleBody,
    RulesBody,
    TargetBodies,
    TargetsBody,
    Whereabouts,
    diagnosis_body,
    incident_body,
    kept_alert_body,
    received_body,
    rule_body,
    status_body,
    transition_body,
)
from watchdog.report.brief import Seen, brief_text
from watchdog.report.course import Mark
from watchdog.report.episodes import story
from watchdog.report.selection import Selection
from watchdog.report.text import diagnosis_text
from watchdog.rule.rule import Rule
from watchdog.settings.model import Settings
from watchdog.signals.catalogue import described, signal_names
from watchdog.text import clean_values, duration_seconds, nearest, one_line
from watchdog.web import page
from watchdog.web.answers import BodyResponse, error_response
from watchdog.web.guard import STORM_BYTES, Guard
from watchdog.web.pictures import lead_trend, signals_wanted
from watchdog.web.state import ServiceState

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LISTED = 1000
# Bodies beyond the usual size that are read at the same time.
STORMS_AT_ONCE = 4
DAY_SECONDS = 86400.0


def _error(text: str) -> dict[str, Any]:
    """An error in the document: JSON also where the answer itself is a page or text."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    return {"description": text, "content": content}


_ERRORS: dict[int | str, dict[str, Any]] = {
    400: _error("A host name that is not allowed."),
    401: _error("Credentials are required."),
    413: _error("The request is too large."),
    414: _error("The query is too long."),
    422: _error("The request is not valid."),
    503: _error("Not now."),
}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: _error("Not found.")}
_TEXT_TOO: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}
_HTML_TOO: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {"schema": {"type": "string"}}}}}


class Form(StrEnum):
    """How the diagnosis is written."""

    JSON = "json"
    TEXT = "text"


class _Parameters(BaseModel):
    """Query parameters: an unknown one is refused, for a typo would else be answered with everything."""

    model_config = ConfigDict(extra="forbid")


class TargetParameters(_Parameters):
    """What is diagnosed."""

    target: str | None = Field(None, max_length=200, description="Only this target, by its name.")


class FleetParameters(TargetParameters):
    """Which targets are shown."""

    state: Verdict | None = Field(None, description="Only targets with this verdict.")
    model: str | None = Field(None, max_length=500, description="Only targets that serve this model.")
    label: list[Annotated[str, Field(max_length=2200, pattern="^[^=]+=")]] = Field(
        default_factory=list,
        max_length=20,
        description="Only targets with this label, as `name=value`; may be given again.",
    )

    @property
    def selection(self) -> Selection:
        """The targets that are asked for."""
        pairs = (each.partition("=") for each in self.label)
        return Selection(self.state, self.model, {name: value for name, _, value in pairs})


class DiagnoseParameters(FleetParameters):
    """What is diagnosed, and how it is written."""

    format: Form = Field(Form.JSON, description="json for programs, text for people.")
    verbose: bool = Field(False, description="The text with evidence, all remedies and readings.")


class Kind(StrEnum):
    """Whom an answer is for."""

    JSON = "json"
    HTML = "html"


class KindParameters(_Parameters):
    """How an answer is written."""

    format: Kind | None = Field(
        None, description="json or html; by default HTML if the caller prefers it, otherwise JSON."
    )

    def wants_page(self, request: Request) -> bool:
        """Whether the caller is to get a page: browsers say that they take HTML, programs do not."""
        if self.format is not None:
            return self.format is Kind.HTML
        return "text/html" in request.headers.get("accept", "")


class IncidentParameters(KindParameters):
    """Which incidents are listed."""

    since: str | None = Field(
        None,
        max_length=40,
        description="Not older than this: RFC 3339, unix seconds, or an age such as 24h.",
        examples=["24h", "2026-01-31T00:00:00Z", "1790000000"],
    )
    state: State | None = Field(None, description="Only those in this state.")
    rule: str | None = Field(None, max_length=200, description="Only those of this rule.")
    limit: int = Field(100, ge=1, le=MAX_LISTED, description="At most so many.")


def create_app(state: ServiceState, settings: Settings, wall: Callable[[], float] = time.time) -> FastAPI:
    """The application; `wall` is the clock for ages."""
    app = FastAPI(
        title="vllm-watchdog",
        version=__version__,
        description="Names the cause of what users of a vLLM server feel, and says what to change.",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        responses=_ERRORS,
    )
    app.add_middleware(Guard, settings=settings.web)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(Exception, _unforeseen)
    _add_diagnosis(app, state, wall, settings.web.dashboard_url)
    _add_incidents(app, state, wall)
    _add_rules_and_targets(app, state, wall)
    _add_health(app, state, settings)
    _add_metrics(app, state)
    _add_actions(app, state, settings)
    return app


def _add_diagnosis(app: FastAPI, state: ServiceState, wall: Callable[[], float], dashboard_url: str) -> None:
    bodies = TargetBodies()

    @app.get("/", response_class=HTMLResponse, summary="The page", tags=["diagnosis"], responses=_NOT_FOUND)
    def show_page(parameters: Annotated[FleetParameters, Query()]) -> Response:
        body = _diagnosis(state, bodies, parameters.target, wall())
        memory = _memory(state, body, wall())
        is_fleet = len(body.targets) > 1 or not parameters.selection.is_all
        if parameters.target is None and is_fleet:
            return page.fleet_page(body, memory, parameters.selection)
        return page.diagnosis_page(body, memory, dashboard_url)

    @app.get(
        "/diagnose",
        response_model=DiagnosisBody,
        summary="What is wrong, why, and what to do",
        tags=["diagnosis"],
        responses=_NOT_FOUND | _TEXT_TOO,
    )
    def diagnose(parameters: Annotated[DiagnoseParameters, Query()]) -> Response:
        """Answers from the last scrape of each target and never waits for the next."""
        body = parameters.selection.of(_diagnosis(state, bodies, parameters.target, wall()))
        if parameters.format is Form.TEXT and not body.targets and not parameters.selection.is_all:
            return PlainTextResponse(f"UNKNOWN  no target matches {', '.join(parameters.selection.words)}\n")
        if parameters.format is Form.TEXT:
            verbose = parameters.verbose
            told = diagnosis_text(body) if verbose else brief_text(body, _seen(state, body, wall()))
            return PlainTextResponse(told)
        return BodyResponse(body)


def _diagnosis(state: ServiceState, bodies: TargetBodies, name: str | None, wall: float) -> DiagnosisBody:
    targets = state.targets()
    fleet = state.fleet_incidents()
    if name is not None:
        targets, fleet = [_named(targets, name)], []
    maintenance = state.maintenance(wall)
    whereabouts = Whereabouts(state.pods(), state.watchdogs())
    return diagnosis_body(targets, state.snapshots(), fleet, wall, bodies.body, maintenance, whereabouts)


def _memory(state: ServiceState, body: DiagnosisBody, wall: float) -> page.Memory:
    """What is remembered of the servers, for pictures."""
    alone = body.targets[0] if len(body.targets) == 1 else None
    wanted = signals_wanted(alone) if alone is not None else None
    return page.Memory(
        courses=state.courses(),
        verdicts={name: day.verdicts(wall) for name, day in state.days().items()},
        readings=state.day_readings(),
        recurrences=recurrences(state, body, wall),
        signals={wanted[0].target: state.hindsight(*wanted)} if wanted is not None else {},
    )


def _seen(state: ServiceState, body: DiagnosisBody, wall: float) -> Mapping[str, Seen]:
    """What the short text says of the servers with a cause beside their last look."""
    courses, often = state.courses(), recurrences(state, body, wall)
    led = [each for each in body.targets if each.lead_key is not None]
    return {
        each.name: Seen(lead_trend(each, courses.get(each.name)), often.get(each.name, 1)) for each in led
    }


def recurrences(state: ServiceState, body: DiagnosisBody, wall: float) -> Mapping[str, int]:
    """How often the lead of each target has held in 24 hours, this time included; empty where nothing is kept."""
    leads = {each.lead_key: each.name for each in body.targets if each.lead_key is not None}
    if state.history is None or not leads:
        return {}
    past = state.history.query(wall - DAY_SECONDS, State.RESOLVED, None, MAX_LISTED)
    counts = Counter(leads[key] for each in past if (key := str(each.key)) in leads)
    return {name: count + 1 for name, count in counts.items()}


def _named(targets: Sequence[Target], name: str) -> Target:
    """The target of that name. Names only: a URL from a caller would make us a tool against others."""
    found = next((target for target in targets if target.name == name), None)
    if found is None:
        hint = nearest(name, [target.name for target in targets]) or "/targets lists them"
        raise HTTPException(404, f"no target has this name; {hint}")
    return found


def _add_incidents(app: FastAPI, state: ServiceState, wall: Callable[[], float]) -> None:
    @app.get(
        "/incidents",
        response_model=IncidentsBody,
        summary="Incidents, present and past",
        tags=["incidents"],
        responses=_HTML_TOO,
    )
    def list_incidents(request: Request, parameters: Annotated[IncidentParameters, Query()]) -> Response:
        since = _since(parameters.since, wall())
        found = _incidents(state, since, parameters)
        bodies = [incident_body(incident) for incident in found[: parameters.limit]]
        body = IncidentsBody(incidents=bodies, kept=state.history is not None)
        return page.incidents_page(body, wall()) if parameters.wants_page(request) else BodyResponse(body)

    @app.get(
        "/incidents/{key:path}",
        response_model=IncidentDetailBody,
        summary="One incident and its time line",
        tags=["incidents"],
        responses=_NOT_FOUND | _HTML_TOO,
    )
    def show_incident(
        request: Request,
        key: Annotated[str, Path(description="rule/target/model_name/engine, `-` for an empty part.")],
        parameters: Annotated[KindParameters, Query()],
    ) -> Response:
        """As JSON; as a page where the caller prefers HTML, since links in alerts lead here."""
        live = next((each for each in _live(state) if str(each.key) == key), None)
        timeline = list(state.history.timeline(key)) if state.history else []
        incident = live or (timeline[-1].incident if timeline else None)
        if incident is None:
            raise HTTPException(404, "no incident has this key")
        body = _detail(incident, timeline)
        if parameters.wants_page(request):
            marks = _marks(state, incident.key.target, wall())
            return page.incident_page(body, story(incident, timeline, marks, wall()), wall())
        return BodyResponse(body)


def _marks(state: ServiceState, target: str, wall: float) -> Sequence[Mark]:
    """What changed of a server in 24 hours; of less where nothing is kept."""
    kept, seen = state.day_readings().get(target), state.courses().get(target)
    if kept is not None:
        return kept.marks(wall)
    return seen.marks() if seen is not None else ()


def _detail(incident: Incident, timeline: Sequence[Transition]) -> IncidentDetailBody:
    return IncidentDetailBody(
        incident=incident_body(incident), timeline=[transition_body(each) for each in timeline]
    )


def _live(state: ServiceState) -> Iterator[Incident]:
    for snapshot in state.snapshots().values():
        yield from snapshot.incidents
    yield from state.fleet_incidents()


def _incidents(state: ServiceState, since: float | None, parameters: IncidentParameters) -> list[Incident]:
    """Present incidents, and past ones where a store is set up; one that is both is shown as it is now."""
    present = {incident.key: incident for incident in _live(state)}
    past: Sequence[Incident] = ()
    if state.history is not None:
        past = state.history.query(since, parameters.state, parameters.rule, parameters.limit)
    merged = [*present.values(), *(incident for incident in past if incident.key not in present)]
    kept = (incident for incident in merged if _wanted(incident, since, parameters))
    return sorted(kept, key=lambda incident: incident.pending_since, reverse=True)


def _wanted(incident: Incident, since: float | None, parameters: IncidentParameters) -> bool:
    if parameters.state is not None and incident.state is not parameters.state:
        return False
    if parameters.rule is not None and incident.key.rule != parameters.rule:
        return False
    return since is None or incident.resolved_at is None or incident.resolved_at >= since


def _since(text: str | None, wall: float) -> float | None:
    """Unix seconds from what a caller wrote; raises HTTPException (422) for anything else."""
    if text is None:
        return None
    if re.fullmatch(r"\d{9,11}(\.\d{1,6})?", text):
        return float(text)
    try:
        return wall - duration_seconds(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HTTPException(422, "since must be RFC 3339, unix seconds, or an age such as 24h") from None
    if moment.tzinfo is None:
        raise HTTPException(422, "since needs a time zone, such as Z")
    return moment.timestamp()


def _add_rules_and_targets(app: FastAPI, state: ServiceState, wall: Callable[[], float]) -> None:
    @app.get(
        "/rules",
        response_model=RulesBody,
        summary="The known causes",
        tags=["rules"],
        responses=_HTML_TOO,
    )
    def list_rules(request: Request, parameters: Annotated[KindParameters, Query()]) -> Response:
        body = RulesBody(rules=[rule_body(rule) for rule in state.rules.rules])
        if not parameters.wants_page(request):
            return BodyResponse(body)
        return page.rules_page(body, Counter(each.key.rule for each in _open(state)), wall())

    @app.get(
        "/rules/{id}",
        response_model=RuleBody,
        summary="One cause",
        tags=["rules"],
        responses=_NOT_FOUND | _HTML_TOO,
    )
    def show_rule(
        request: Request,
        id: Annotated[str, Path(max_length=200, description="The rule's id.")],  # noqa: A002
        parameters: Annotated[KindParameters, Query()],
    ) -> Response:
        """As JSON; as a page, with the numbers of now where it holds, where the caller prefers HTML."""
        rule = state.rules.find(id)
        if rule is None:
            hint = nearest(id, [each.id for each in state.rules.rules]) or "/rules lists them"
            raise HTTPException(404, f"no rule has this id; {hint}")
        if not parameters.wants_page(request):
            return BodyResponse(rule_body(rule))
        firing = [incident_body(each) for each in _open(state) if each.key.rule == rule.id]
        return page.rule_page(rule_body(rule), firing, meanings(rule), list(_blind(state, rule.id)), wall())

    @app.get(
        "/targets",
        response_model=TargetsBody,
        summary="State of the scrapes",
        tags=["diagnosis"],
        responses=_HTML_TOO,
    )
    def list_targets(request: Request, parameters: Annotated[KindParameters, Query()]) -> Response:
        snapshots = state.snapshots()
        bodies = [status_body(target, snapshots.get(target.name)) for target in state.targets()]
        body = TargetsBody(targets=bodies)
        return page.targets_page(body, wall()) if parameters.wants_page(request) else BodyResponse(body)


def _open(state: ServiceState) -> list[Incident]:
    """What fires or is about to, the grave first."""
    found = [each for each in _live(state) if each.state is not State.RESOLVED]
    return sorted(found, key=lambda each: (each.state is State.PENDING, SEVERITY_RANK[each.severity]))


def _blind(state: ServiceState, rule: str) -> Iterator[tuple[str, Sequence[str]]]:
    """The targets on which a rule is unavailable, once each, and what they lack."""
    for name, snapshot in state.snapshots().items():
        found = next((each for each in snapshot.blind if each.rule == rule), None)
        if found is not None:
            yield name, found.missing


def meanings(rule: Rule) -> dict[str, str]:
    """The signals that a rule's clauses read, each in words."""
    names = dict.fromkeys(name for clause in (*rule.when, *rule.unless) for name in clause.names)
    known = signal_names()
    return {name: described(name).description for name in names if name in known}


def _add_health(app: FastAPI, state: ServiceState, settings: Settings) -> None:
    async def healthy() -> Response:
        if not state.cycle_alive():
            return error_response(503, "no scrape has ended in three intervals", "stalled")
        return BodyResponse(HealthBody(status="ok"))

    async def ready() -> Response:
        """Ready means that we judge; it never means that a vLLM server is well."""
        waits = list(_not_ready(state))
        if waits:
            return error_response(503, "; ".join(waits), "not_ready")
        return BodyResponse(HealthBody(status="ok", notes=[*settings.warnings, *_odd(state)]))

    # Brings the error's model into the document, where the other routes refer to it.
    stalled: dict[int | str, dict[str, Any]] = {503: {"model": ErrorBody, "description": "Not now."}}
    for path in ("/healthz", "/-/healthy"):
        app.get(path, response_model=HealthBody, responses=stalled, summary="Liveness", tags=["health"])(
            healthy
        )
    for path in ("/readyz", "/-/ready"):
        app.get(path, response_model=HealthBody, summary="Readiness", tags=["health"])(ready)


def _odd(state: ServiceState) -> Iterator[str]:
    """What keeps nobody from being served, and what a person should know all the same."""
    if state.history and state.history.warning:
        yield state.history.warning
    if not state.reload_successful:
        yield "changed settings or rules were rejected; the old ones stay in force, and the log says why"
    yield from state.strains()
    if not state.targets():
        yield "no servers found yet by any entry under `discovery`"


def _not_ready(state: ServiceState) -> Iterator[str]:
    if not state.is_configured:
        yield "no targets are configured: give targets, discovery or prometheus in the settings, or --target URL"
    if not state.rules.rules:
        yield "no rules are loaded: set rules.shipped or rules.directories"
    if state.is_configured and not state.started:
        yield "the first scrapes have not ended yet"


def _add_metrics(app: FastAPI, state: ServiceState) -> None:
    @app.get(
        "/metrics", response_class=PlainTextResponse, summary="The watchdog's own metrics", tags=["metrics"]
    )
    def metrics() -> Response:
        return Response(state.registry.text(), media_type=METRICS_TYPE)


def _add_actions(app: FastAPI, state: ServiceState, settings: Settings) -> None:
    @app.post(
        "/-/reload",
        response_model=ReloadBody,
        summary="Reload settings and rules",
        tags=["actions"],
        responses=_NOT_FOUND | {500: _error("Invalid; the old ones stay in force.")},
        include_in_schema=settings.web.reload_endpoint,
    )
    async def reload() -> Response:
        if not settings.web.reload_endpoint:
            raise HTTPException(404, "reload over HTTP is off; set web.reload_endpoint, or send SIGHUP")
        faults = await run_in_threadpool(state.reload)
        if faults:
            return error_response(500, "; ".join(faults), "reload_failed")
        return BodyResponse(ReloadBody(status="ok"))

    storms = asyncio.BoundedSemaphore(STORMS_AT_ONCE)

    @app.post(
        "/alertmanager",
        summary="Alertmanager's webhook",
        tags=["actions"],
        response_model=ReceivedBody,
        responses=_NOT_FOUND
        | {
            415: _error("Not JSON."),
            502: _error("Not forwarded."),
        },
        openapi_extra={"requestBody": _WEBHOOK},
        include_in_schema=settings.receiver.enabled,
    )
    async def receive(request: Request) -> Response:
        """Keeps the alerts, and answers with the diagnosis of the targets that their labels mean."""
        if not settings.receiver.enabled:
            raise HTTPException(404, "the receiver is off; set receiver.enabled")
        body = await _body(request, settings.web.max_body_bytes, storms)
        payload = _json_object(body)
        try:
            answer = await run_in_threadpool(state.receive, payload)
        except ValueError as error:
            raise HTTPException(422, str(error)) from None
        except ForwardError as error:
            # Whoever sent it will send it again.
            return error_response(502, str(error), "not_forwarded")
        return BodyResponse(received_body(answer))

    @app.get(
        "/received",
        summary="Received alerts, with the diagnosis at the time",
        tags=["actions"],
        response_model=KeptAlertsBody,
        responses=_NOT_FOUND,
        include_in_schema=settings.receiver.enabled,
    )
    def list_received() -> Response:
        if not settings.receiver.enabled:
            raise HTTPException(404, "the receiver is off; set receiver.enabled")
        return BodyResponse(KeptAlertsBody(alerts=[kept_alert_body(each) for each in state.received()]))


_WEBHOOK = {
    "required": True,
    "description": "Alertmanager's webhook, version 4.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["alerts"],
                "properties": {
                    "alerts": {
                        "type": "array",
                        "description": f"The first {ALERTS_AT_MOST} are read, all are forwarded.",
                        "items": {
                            "type": "object",
                            "required": ["labels"],
                            "properties": {
                                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                                "annotations": {"type": ["object", "null"]},
                            },
                        },
                    }
                },
            }
        }
    },
}


async def _body(request: Request, max_bytes: int, storms: asyncio.BoundedSemaphore) -> bytes:
    """The body of a webhook; raises HTTPException (413, 415, 503).

    Alertmanager never repeats what it is answered 413 to, so a storm of alerts may have more, few at a time.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also keeps other sites' forms out: they cannot send this type.
        raise HTTPException(415, "the content type must be application/json")
    body = bytearray()
    is_storm = False
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max(max_bytes, STORM_BYTES):
                raise HTTPException(
                    413, f"a request body may have {STORM_BYTES} bytes at most; set max_alerts"
                )
            if len(body) > max_bytes and not is_storm:
                if storms.locked():
                    raise HTTPException(503, "too many large bodies are being read; send it again later")
                is_storm = await storms.acquire()
    finally:
        if is_storm:
            storms.release()
    return bytes(body)


def _json_object(body: bytes) -> Mapping[str, Any]:
    """The body as a JSON object; raises HTTPException (422)."""
    try:
        payload = clean_values(json.loads(body, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        raise HTTPException(422, "the body is not valid JSON") from None
    if not isinstance(payload, dict):
        raise HTTPException(422, "the body must be a JSON object")
    return payload


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 (registered for this type alone)
    message = _WORDS.get(str(error.detail), str(error.detail))
    return error_response(error.status_code, message, headers=error.headers)


_WORDS = {
    "Not Found": "there is nothing here; / is the page, /diagnose?format=text the same as text, "
    "/openapi.json has the rest",
    "Method Not Allowed": "this method is not allowed here",
}


def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 (registered for this type alone)
    faults = [
        f"{one_line('.'.join(map(str, fault['loc'][1:])), 200)}: {_parameter_fault(fault)}"
        for fault in error.errors()
    ]
    return error_response(422, "; ".join(faults))


def _parameter_fault(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown query parameter; /openapi.json lists them"
    return str(fault["msg"]).replace("Input should be", "must be")


def _unforeseen(_request: Request, _error: Exception) -> Response:
    """A bug of ours: the log has it, the caller gets no stack trace."""
    return error_response(500, "internal error; the watchdog's log has the details")
