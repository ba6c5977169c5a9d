"""The nouns every stage shares. All are immutable; times are seconds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

NO_LABELS: Mapping[str, str] = MappingProxyType({})

Lookup = Callable[[str], float | None]
"""The value of a signal by its name; None where it is unknown."""


class Severity(StrEnum):
    """How bad a cause is; info is listed but never leads and never changes the verdict."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITY_RANK: Mapping[str, int] = MappingProxyType(
    {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
)
"""0 for the worst."""


class Scope(StrEnum):
    """What one finding of a rule is about: an engine, a whole target, or the targets that serve one model."""

    ENGINE = "engine"
    TARGET = "target"
    FLEET = "fleet"


class Limit(StrEnum):
    """What can bound throughput: what requests wait for, or what the engine has no more of."""

    SEQUENCES = "sequences"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - no password
    KV_POOL = "kv_pool"
    DEFERRED = "deferred"
    COMPUTE = "compute"
    API_SERVER = "api_server"
    STALLED = "stalled"


class Truth(StrEnum):
    """A three-valued answer; unknown never fires and never resolves."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class State(StrEnum):
    """Where an incident stands."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Verdict(StrEnum):
    """One word for a target, each with its proof (`diagnosis/verdict.py`); health is never assumed.

    `idle` is nothing to do as far as can be seen, `unsettled` what may turn out to be a cause or nothing, `recovering`
    a lead whose condition has cleared and that still keeps firing. `starting` until there is enough history to judge,
    `unknown` when it cannot be judged.
    """

    HEALTHY = "healthy"
    IDLE = "idle"
    UNSETTLED = "unsettled"
    RECOVERING = "recovering"
    DEGRADED = "degraded"
    CRITICAL = "critical"
    UNKNOWN = "unknown"
    STARTING = "starting"


@dataclass(frozen=True, slots=True)
class Ruling:
    """A verdict, and in words what stands behind it where no cause leads; empty for nothing."""

    verdict: Verdict
    why: str = ""


class Reason(StrEnum):
    """Why a scrape gave nothing."""

    REFUSED = "refused"
    TIMEOUT = "timeout"
    STATUS = "status"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    TLS = "tls"
    DNS = "dns"
    PARSE = "parse"
    EMPTY = "empty"
    ENCODING = "encoding"
    REDIRECT = "redirect"
    PROTOCOL = "protocol"
    UTF8 = "utf8"
    AUTH_CONFIG = "auth_config"
    RESOURCES = "resources"
    NOT_SCRAPED = "not_scraped"
    NOT_SEEN = "not_seen"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a scrape failed; `detail` is safe to print (redacted, one line, at most 300 characters)."""

    reason: Reason
    detail: str
    while_connecting: bool = False


def failure_text(reason: str, detail: str) -> str:
    """A failure in words: the reason is left out where the detail names it ("connection refused")."""
    return detail if reason in detail else f"{reason}: {detail}"


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What is needed to turn memory into KV tokens; every field may be unknown (None)."""

    layers: int | None = None
    kv_heads: int | None = None
    head_dimension: int | None = None
    weight_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Objectives:
    """The latencies the owner promised, in seconds; None where nothing was promised."""

    ttft_p95_seconds: float | None = None
    itl_p99_seconds: float | None = None
    e2e_p95_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Expectations:
    """What the settings say about a server; all optional, nothing is guessed in its place.

    `vllm_args` maps a launch flag (`--max-num-seqs`) to its value ("" for a bare flag).
    """

    expected_shared_prefix_tokens: int | None = None
    batch_jobs: bool = False
    objectives: Objectives = Objectives()
    gpu: str | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    shape: ModelShape = ModelShape()
    vllm_args: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)


@dataclass(frozen=True, slots=True)
class Target:
    """A server to watch, by its name. `url` is redacted: no user info, no query values.

    `labels` are its owner's own, or those of the Prometheus that scrapes it: they say nothing about the server to us.
    """

    name: str
    url: str
    expectations: Expectations = Expectations()
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)


@dataclass(frozen=True, slots=True)
class Pod:
    """What Kubernetes says of the pod in which a server runs. Times are unix seconds, None where they are not known.

    `restarts` are those of its vLLM container; `ended` is why that ended last (`OOMKilled`, `Error`), empty where it
    never did. `image_before` is what its workload ran before `image`, empty where no change was seen.
    """

    name: str
    namespace: str
    node: str = ""
    ready: bool = False
    restarts: int = 0
    ended: str = ""
    ended_at: float | None = None
    image: str = ""
    image_before: str = ""
    image_changed_at: float | None = None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server said beside its metrics page (`/version`, `/v1/models`); None where it did not answer.

    `rust_frontend_version` is None for the front end in Python too.
    """

    version: str | None = None
    max_model_len: int | None = None
    models: tuple[str, ...] = ()
    rust_frontend_version: str | None = None

    def completed_by(self, older: "ServerInfo") -> "ServerInfo":
        """This, and of what was not answered now what was answered before."""
        return ServerInfo(
            version=self.version or older.version,
            max_model_len=self.max_model_len or older.max_model_len,
            models=self.models or older.models,
            # Both come in one answer: a server that tells its version and none of this front end has another one.
            rust_frontend_version=(self if self.version else older).rust_frontend_version,
        )


@dataclass(frozen=True, slots=True)
class CanaryReading:
    """What is known of the canary, in monotonic seconds.

    `answered_at` is when it was last answered, `waits_since` since when it has had no answer; None for never.
    """

    answered_at: float | None = None
    waits_since: float | None = None


@dataclass(frozen=True, slots=True)
class Scrape:
    """One attempt to read a page. Exactly one of `body` (non-empty) and `failure` carries the outcome.

    `at` is monotonic (arithmetic), `wall` is unix time (display); `status` is 0 where nothing answered.
    `load` is what `GET /load` said beside the page, in requests; None where it was not asked or did not answer.
    `canary` is what the canary had seen by then, where one is sent.
    """

    at: float
    wall: float
    took_seconds: float
    status: int
    body: bytes
    failure: Failure | None = None
    server_info: ServerInfo = ServerInfo()
    load: int | None = None
    canary: CanaryReading = CanaryReading()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Series:
    """One series of a page; `name` starts with `vllm:` whatever prefix the server used. Compared by identity.

    `leaves_zeros_out` where what shows it shows a counter from its first event on (Ray's metrics agent).
    """

    name: str
    labels: Mapping[str, str]
    leaves_zeros_out: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A parsed page: `values[i]` belongs to `series[i]`; NaN is an unknown value.

    `series` is the very same tuple as that of the scrape before where the page kept its shape.
    `notes` tell what was mended on the way (a byte order mark, duplicates), for display.
    `openmetrics` is true for a body in OpenMetrics form.
    `strangers` counts the samples by the first word of their names, on a page without any series of vLLM's engine.
    """

    series: tuple[Series, ...]
    values: tuple[float, ...]
    notes: tuple[str, ...] = ()
    openmetrics: bool = False
    strangers: Mapping[str, int] = field(default_factory=dict)


class Subject(NamedTuple):
    """What a finding is about. `model_name` and `engine` are empty for a whole target."""

    target: str
    model_name: str = ""
    engine: str = ""


class EnginePast(NamedTuple):
    """What was learnt of an engine, packed to outlive this process, and when that was (unix seconds)."""

    subject: Subject
    wall: float
    packed: bytes


class Key(NamedTuple):
    """The identity of an incident: never a value."""

    rule: str
    target: str
    model_name: str
    engine: str

    def __str__(self) -> str:
        return "/".join(part or "-" for part in self)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A clause that holds, with the values that made it hold (None: not known)."""

    clause: str
    values: Mapping[str, float | None]
    text: str


@dataclass(frozen=True, slots=True)
class Remedy:
    """One thing to do: the flag (None for an action without one), its value, why it helps and what it costs.

    `direction` is which way the flag moves (raise, lower, set, on, off), None where that is not known. `lasting` is
    whether it keeps the trouble from coming back; what is not helps right now.
    """

    action: str
    flag: str | None
    value: str | None
    why: str
    price: str
    direction: str | None = None
    lasting: bool = False


class Finding(NamedTuple):
    """What one rule says of one subject at one moment. A tuple, since each step makes one for every rule."""

    rule: str
    subject: Subject
    truth: Truth
    severity: Severity
    cause: str = ""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    unhelpful: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    error: str = ""
    """What went wrong inside the rule, a fault of ours; empty where nothing did."""
    began_seconds: float | None = None
    """How long ago the trouble began, where the rule can tell; None where it cannot."""
    lasts: bool = False
    """Whether an incident that fires is not over, though the answer is no: what it left behind still hurts."""
    fades: bool = False
    """Whether only what the window remembers says yes: its newest part alone, were it all, would say no."""


@dataclass(frozen=True, slots=True)
class Incident:
    """A finding that lasts. Times are unix seconds; None where it has not come to that.

    `symptoms` are rules it explains, `explained_by` the rules that explain it, both among those firing now; where
    none of them does, `explained_by` names those that did until a moment ago. Once resolved, both name all that
    were so at any time while it fired.
    `unknown` while it cannot be judged. While it fires though its rule says no already, `cleared_at` is since when and
    `closes_at` when it resolves unless its condition returns (None: when its symptoms are gone); cause, evidence and
    remedies are then those of the last yes. `held_seconds` is for how long, under watch, its rule has said yes,
    `began_at` when the trouble began as far as its rule can tell (None: it cannot).
    """

    key: Key
    title: str
    severity: Severity
    state: State
    cause: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    unhelpful: tuple[str, ...]
    runbook: str
    pending_since: float
    firing_since: float | None = None
    resolved_at: float | None = None
    symptoms: tuple[str, ...] = ()
    explained_by: tuple[str, ...] = ()
    unknown: bool = False
    cleared_at: float | None = None
    closes_at: float | None = None
    held_seconds: float = 0.0
    began_at: float | None = None

    @property
    def since(self) -> float:
        """When the trouble began: by what its rule can tell, else when it was first seen (unix seconds)."""
        return self.pending_since if self.began_at is None else self.began_at

    @property
    def is_cleared(self) -> bool:
        """Whether it fires though its condition is gone."""
        return self.cleared_at is not None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the subject, without empty ones."""
        pairs = zip(("target", "model_name", "engine"), self.key[1:], strict=True)
        return {name: value for name, value in pairs if value}


@dataclass(frozen=True, slots=True)
class Transition:
    """An incident's change of state, kept with its evidence at that moment."""

    incident: Incident
    before: State | None
    at: float

    @classmethod
    def end_of(cls, incident: Incident, wall: float) -> "Transition":
        """The end of an incident: not before its beginning, even where the clock was set back meanwhile."""
        end = max(wall, incident.firing_since or incident.pending_since)
        resolved = replace(
            incident, state=State.RESOLVED, resolved_at=end, unknown=False, cleared_at=None, closes_at=None
        )
        return cls(resolved, incident.state, end)


@dataclass(frozen=True, slots=True)
class Standing:
    """How the incidents of one target (or of the fleet) stand after a step, the lead first, and what it changed.

    `lead` is the one cause to show first, None where nothing of warning or above fires. `awaits_cause` is whether the
    lead has just begun to fire and what is about to fire would explain it.
    """

    incidents: tuple[Incident, ...] = ()
    lead: Key | None = None
    transitions: tuple[Transition, ...] = ()
    awaits_cause: bool = False

    @property
    def lead_incident(self) -> Incident | None:
        """The lead; None where there is none."""
        return next((incident for incident in self.incidents if incident.key == self.lead), None)

    @property
    def pageable(self) -> frozenset[Key]:
        """What is worth a page: the lead, unless it has cleared, outlives its cause or is about to be explained."""
        lead = self.lead_incident
        if lead is None or lead.explained_by or lead.is_cleared or self.awaits_cause:
            return frozenset()
        return frozenset({lead.key})

    @property
    def with_ended(self) -> tuple[Incident, ...]:
        """All that stand, and after them those that this step ended and that are not shown any longer."""
        present = {incident.key for incident in self.incidents}
        # Of several changes, where several steps are told as one, the last one counts.
        last = {change.incident.key: change.incident for change in self.transitions}
        return (*self.incidents, *(each for key, each in last.items() if key not in present))

    @property
    def hurting(self) -> frozenset[Subject]:
        """The subjects on which a warning or worse holds; what only keeps firing hurts nobody any more."""
        return frozenset(
            Subject(*one.key[1:])
            for one in self.incidents
            if one.state is not State.RESOLVED and one.severity is not Severity.INFO and not one.is_cleared
        )


@dataclass(frozen=True, slots=True)
class BlindRule:
    """A rule that cannot be evaluated for a subject now, and the metrics it lacks."""

    rule: str
    subject: Subject
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LatencyShare:
    """A part of the average request: its seconds, its share of the whole and of time to first token (None: none)."""

    seconds: float
    share: float
    share_of_ttft: float | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """What is shown of one engine even when nothing is firing; each value None where it is unknown.

    `limit` is what bounds throughput: a Limit, `none` where nothing waits, or `unknown`.
    """

    subject: Subject
    values: Mapping[str, float | None]
    limit: str = "unknown"
    limit_share: float | None = None
    latency_budget: Mapping[str, LatencyShare] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VllmIdentity:
    """What is known of the server's vLLM: `version` as reported, else `bracket` from its metrics page."""

    version: str | None = None
    bracket: str | None = None
    engine: str | None = None
    models: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known of one target after one step; readers take the last one and never wait for the next.

    `incidents` come in the order to show them: the lead, what fires, what is pending, what has resolved lately.
    `why` is what stands behind the verdict where no cause leads; empty for nothing to say.
    """

    target: Target
    at: float
    wall: float
    verdict: Verdict
    up: bool
    failure: Failure | None
    scrape_took_seconds: float
    scrape_samples: int
    scrapes: int
    failures: Mapping[Reason, int]
    last_success_wall: float | None
    vllm: VllmIdentity
    incidents: tuple[Incident, ...]
    lead: Key | None
    readings: tuple[Readings, ...]
    blind: tuple[BlindRule, ...]
    transitions: tuple[Transition, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    why: str = ""
    replicated_models: tuple[str, ...] = ()
    """Models of which the page shows several servers, which rules of fleet scope compare."""
    awaits_cause: bool = False
    """Whether the lead may be explained in a moment: it is shown, and not worth a page yet."""
    rule_errors: Mapping[str, int] = field(default_factory=dict)
    """Evaluations that went wrong inside a rule since the start, by rule id."""
    pasts: tuple[EnginePast, ...] = ()
    """What was learnt of its engines, where it is time to keep it."""
    restarted: tuple[Subject, ...] = ()
    """The engines that began anew with this step; with empty names the whole process."""
    wants_canary: bool = False
    """Whether a canary would show something: nothing moves, and none is known to be idle or asleep."""

    @property
    def standing(self) -> Standing:
        """How the incidents stand, as one value."""
        return Standing(self.incidents, self.lead, self.transitions, self.awaits_cause)

    @property
    def lead_incident(self) -> Incident | None:
        """The lead cause, None where nothing of severity warning or above fires."""
        return self.standing.lead_incident

    @property
    def pageable(self) -> frozenset[Key]:
        """What is worth a page: the lead, unless it has cleared, outlives its cause or is about to be explained."""
        return self.standing.pageable

    @property
    def suspects_api_server(self) -> bool:
        """Whether it is the API server that bounds throughput, by what holds now."""
        return any(one.limit == Limit.API_SERVER for one in self.readings)

    @property
    def firing(self) -> tuple[Incident, ...]:
        """The incidents that fire now, the lead first."""
        return tuple(incident for incident in self.incidents if incident.state is State.FIRING)
