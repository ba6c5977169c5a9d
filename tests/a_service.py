"""A service at rest for tests of what reads it: snapshots, rules and incidents as plain values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tests.places import RECORDINGS
from watchdog.diagnosis.readings import READINGS
from watchdog.diagnosis.target import TargetDiagnosis
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
    Severity,
    Snapshot,
    State,
    Subject,
    Target,
    Transition,
    Verdict,
    VllmIdentity,
)
from watchdog.notify.maintenance import Opening
from watchdog.notify.receiver import AlertReceiver, Answer, Received
from watchdog.report.course import Course, Line
from watchdog.report.day import Day
from watchdog.report.day_readings import DayReadings
from watchdog.report.metrics import Figures, Metrics
from watchdog.rule.rule_set import RuleSet, load
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import ReceiverSettings

NOW = 1_790_000_000.0

SIGNALS = frozenset({"waiting_recent_min", "kv_usage_peak_ratio", "waiting_last"})
RULE = """
id: {id}
title: {title}
severity: {severity}
scope: {scope}
for: 5s
keep_firing_for: 30s
parameters:
  least_peak_ratio: {{value: 0.75, unit: ratio, why: "the rest of the pool is too small for a request"}}
when: ["waiting_recent_min > 0", "kv_usage_peak_ratio > least_peak_ratio"]
explains: []
cause: "{{waiting_last:.0f}} requests wait."
remedies:
  - {{action: "Shorten.", flag: --max-model-len, value: "8192", why: "a", price: "b"}}
unhelpful: ["--swap-space does nothing on V1."]
false_positives: ["none known"]
references: ["vLLM's documentation"]
tests: []
"""


def rules(directory: Path) -> RuleSet:
    """Three rules, one of each kind that matters to an output."""
    for name, title, severity, scope in (
        ("kv-pool-exhausted", "The KV cache is full", "critical", "engine"),
        ("ttft-high", "Time to first token is high", "warning", "engine"),
        ("target-down", "The server does not answer", "critical", "target"),
    ):
        text = RULE.format(id=name, title=title, severity=severity, scope=scope)
        (directory / f"{name}.yaml").write_text(text)
    return load(
        [directory], {"waiting_recent_min", "kv_usage_peak_ratio", "waiting_last"}, allow_untested=True
    )


def incident(rule: str = "kv-pool-exhausted", target: str = "chat", **changes: Any) -> Incident:
    """A cause that has fired for 200 seconds."""
    made = Incident(
        key=Key(rule, target, "meta/llama-8b", "0"),
        title="The KV cache is full",
        severity=Severity.CRITICAL,
        state=State.FIRING,
        cause="457 requests wait while the KV cache is 98% full.",
        evidence=(
            Evidence("waiting_recent_min > 0", {"waiting_recent_min": 457.0}, "waiting_recent_min (457) > 0"),
            Evidence(
                "kv_usage_peak_ratio > least_peak_ratio",
                {"kv_usage_peak_ratio": 0.98},
                "kv_usage_peak_ratio (0.98) > least_peak_ratio (0.75)",
            ),
        ),
        remedies=(
            Remedy(
                action="Shorten the longest request the server takes.",
                flag="--max-model-len",
                value="8192",
                why="99 % of requests end below 4,021 tokens: the pool is planned for requests that never come.",
                price="longer requests are refused",
                direction="lower",
                lasting=True,
            ),
            Remedy(
                action="Store KV in 8 bits.",
                flag="--kv-cache-dtype",
                value="fp8",
                why="the pool then holds 131,072 tokens instead of 65,536.",
                price="calibrate the scales, and compare answers before and after",
                direction="set",
                lasting=True,
            ),
            Remedy(action="Add a replica.", flag=None, value=None, why="", price="a GPU"),
        ),
        unhelpful=("--swap-space: V1 ignores it.",),
        runbook="https://docs.example/causes#kv-pool-exhausted",
        pending_since=NOW - 205,
        firing_since=NOW - 200,
        symptoms=("queue-latency-high", "ttft-high"),
    )
    return replace(made, **changes)


def readings(target: str = "chat", engine: str = "0") -> Readings:
    """One engine under load."""
    values: dict[str, float | None] = dict.fromkeys(READINGS)
    values |= {
        "running_requests": 38.0,
        "waiting_requests": 457.0,
        "kv_usage_ratio": 0.982,
        "kv_used_tokens": 64_356.0,
        "kv_pool_tokens": 65_536.0,
        "prompt_tokens_per_second": 5_480.3,
        "generation_tokens_per_second": 1_912.4,
        "prefix_hit_ratio": 0.031,
        "ttft_p50_seconds": 41.2,
        "ttft_p95_seconds": 75.9,
        "itl_p50_seconds": 0.021,
        "itl_p99_seconds": 0.05,
        "preemptions_per_second": 1.58,
        "requests_that_fit": 39.6,
        "seconds_since_progress": 0.4,
    }
    budget = {
        "queue": LatencyShare(39.5, 0.83, 0.98),
        "prefill": LatencyShare(0.9, 0.02, 0.02),
        "decode": LatencyShare(7.2, 0.15),
    }
    return Readings(Subject(target, "meta/llama-8b", engine), values, "kv_pool", 1.0, budget)


def snapshot(target: str = "chat", **changes: Any) -> Snapshot:
    """A server whose KV cache is exhausted, read three seconds ago."""
    lead = incident(target=target)
    symptom = incident(
        "ttft-high",
        target,
        title="Time to first token is high",
        severity=Severity.WARNING,
        symptoms=(),
        explained_by=("kv-pool-exhausted",),
        cause="Half of the requests wait longer than 41.2 s for their first token.",
    )
    made = Snapshot(
        target=Target(target, f"http://{target}:8000/metrics"),
        at=1000.0,
        wall=NOW - 3,
        verdict=Verdict.CRITICAL,
        up=True,
        failure=None,
        scrape_took_seconds=0.012,
        scrape_samples=435,
        scrapes=80,
        failures={Reason.TIMEOUT: 2},
        last_success_wall=NOW - 3,
        vllm=VllmIdentity(
            "0.24.0", None, "V1", ("meta/llama-8b",), {"block_size": "16", "cache_dtype": "auto"}
        ),
        incidents=(lead, symptom),
        lead=lead.key,
        readings=(readings(target),),
        blind=(BlindRule("deferred-backlog", Subject(target, "meta/llama-8b", "0"), ("deferred_ratio",)),),
        hints=("Give slo.ttft_p95_seconds, and ttft-high compares with what you promise.",),
    )
    return replace(made, **changes)


def healthy(target: str = "embed") -> Snapshot:
    """A server with nothing to complain of."""
    calm = {
        "running_requests": 3.0,
        "waiting_requests": 0.0,
        "kv_usage_ratio": 0.04,
        "ttft_p95_seconds": 0.08,
    }
    budget = {"queue": LatencyShare(0.0, 0.0, 0.0), "prefill": LatencyShare(0.05, 0.02, 1.0)}
    idle = replace(readings(target), values=calm, limit="none", limit_share=1.0, latency_budget=budget)
    return snapshot(
        target,
        verdict=Verdict.HEALTHY,
        incidents=(),
        lead=None,
        blind=(),
        hints=(),
        vllm=VllmIdentity("0.24.0"),
        readings=(idle,),
    )


def recorded(name: str, directory: Path, scrapes: int = 40) -> Snapshot:
    """A real server as it was after so many scrapes of a recording, five seconds apart."""
    recording, pages = read(RECORDINGS / f"{name}.jsonl.xz")
    diagnosis = TargetDiagnosis(Target(recording.name, f"http://{name}:8000/metrics"), rules(directory))
    *_, last = (diagnosis.observe(page) for page in islice(thin(pages, 5), scrapes))
    return last


def down(target: str = "batch") -> Snapshot:
    """A server that refuses connections."""
    lead = incident(
        "target-down",
        target,
        key=Key("target-down", target, "", ""),
        title="The server does not answer",
        cause="Three scrapes in a row were refused: nothing listens there.",
        evidence=(),
        remedies=(Remedy("Look at the pod's last log lines.", None, None, "", ""),),
        unhelpful=(),
        symptoms=(),
    )
    return snapshot(
        target,
        up=False,
        failure=Failure(Reason.REFUSED, "connection refused by 10.0.0.7:8000"),
        incidents=(lead,),
        lead=lead.key,
        readings=(),
        blind=(),
        vllm=VllmIdentity(),
        last_success_wall=NOW - 95,
        failures={Reason.REFUSED: 3},
        hints=(),
    )


@dataclass
class History:
    """A store that remembers what it was given."""

    transitions: tuple[Transition, ...] = ()
    warning: str = ""

    def query(
        self, since: float | None, state: State | None, rule: str | None, limit: int
    ) -> Sequence[Incident]:
        """All that match."""
        return [
            each.incident
            for each in self.transitions
            if state in {None, each.incident.state}
            and rule in {None, each.incident.key.rule}
            and (since is None or each.at >= since)
        ][:limit]

    def timeline(self, key: str) -> Sequence[Transition]:
        """Those of one key."""
        return [each for each in self.transitions if str(each.incident.key) == key]


@dataclass
class AService:
    """The state of a service, as values a test may change."""

    rules: RuleSet
    watched: tuple[Target, ...] = ()
    last: dict[str, Snapshot] = field(default_factory=dict)
    fleet: tuple[Incident, ...] = ()
    went: dict[str, Course] = field(default_factory=dict)
    of_day: dict[str, Day] = field(default_factory=dict)
    of_signals: dict[str, Line] = field(default_factory=dict)
    of_day_readings: dict[str, DayReadings] = field(default_factory=dict)
    history: History | None = None
    started: bool = True

    reload_successful: bool = True
    alive: bool = True
    of_kubernetes: dict[str, Pod] = field(default_factory=dict)
    short_of: tuple[str, ...] = ()
    held: dict[str, Opening] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    receiver: AlertReceiver = field(default_factory=lambda: AlertReceiver(ReceiverSettings(), ()))
    own: Figures = field(default_factory=Figures)

    @property
    def registry(self) -> Metrics:
        """The watchdog's own metrics."""
        return Metrics(self, revision="abc123")

    def targets(self) -> Sequence[Target]:
        """Every target."""
        return self.watched

    def snapshots(self) -> Mapping[str, Snapshot]:
        """Every snapshot."""
        return self.last

    def courses(self) -> Mapping[str, Course]:
        """What was remembered."""
        return self.went

    def hindsight(self, subject: Subject, names: Collection[str]) -> Mapping[str, Line]:
        """What was given of them."""
        return {name: line for name, line in self.of_signals.items() if name in names}

    @property
    def is_configured(self) -> bool:
        """Whether it was given targets."""
        return bool(self.watched)

    def pods(self) -> Mapping[str, Pod]:
        """What it was given."""
        return self.of_kubernetes

    def watchdogs(self) -> Mapping[str, str]:
        """None."""
        return {}

    def days(self) -> Mapping[str, Day]:
        """What was kept of the day."""
        return self.of_day

    def day_readings(self) -> Mapping[str, DayReadings]:
        """What was kept of the day's readings."""
        return self.of_day_readings

    def fleet_incidents(self) -> Sequence[Incident]:
        """Those of fleets."""
        return self.fleet

    def cycle_alive(self) -> bool:
        """Whether it is alive."""
        return self.alive

    def maintenance(self, wall: float) -> Mapping[str, Opening]:
        """The windows it was given, whatever the time."""
        return self.held

    def strains(self) -> Sequence[str]:
        """What it was given."""
        return self.short_of

    def reload(self) -> Sequence[str]:
        """The faults it was given."""
        return self.faults

    def receive(self, payload: Mapping[str, Any]) -> Answer:
        """What the receiver says."""
        return self.receiver.receive(payload, self.last, NOW)

    def received(self) -> Sequence[Received]:
        """What the receiver keeps."""
        return self.receiver.received()

    def figures(self) -> Figures:
        """What it was given."""
        return self.own


def a_service(directory: Path, *snapshots: Snapshot) -> AService:
    """A service that has read these targets."""
    last = {each.target.name: each for each in snapshots}
    return AService(rules(directory), tuple(each.target for each in snapshots), last)
