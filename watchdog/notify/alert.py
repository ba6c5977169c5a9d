"""An incident as an alert: labels are its identity, annotations tell what changes."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from urllib.parse import quote

from watchdog.model import NO_LABELS, SEVERITY_RANK, Incident, Key, Remedy
from watchdog.remedy.instruction import instruction

HEARTBEAT_NAME = "VllmWatchdogHeartbeat"
# What Alertmanager's own webhook says of an alert that has not ended.
NO_END = "0001-01-01T00:00:00Z"
MAX_LABEL_CHARACTERS = 1024
MAX_ANNOTATION_CHARACTERS = 4000

NO_TARGET_LABELS: Mapping[str, Mapping[str, str]] = MappingProxyType({})
DASHBOARD_PLACE = re.compile(r"\{(\w+)\}")

_FNV_OFFSET = 14695981039346656037
_FNV_PRIME = 1099511628211


@dataclass(frozen=True, slots=True)
class Alert:
    """What is sent of an incident. Times are unix seconds; `ends_at` is None while it fires.

    `title`, `cause` and `step` (what to do first) are for messages to people; empty where a version before made it.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: float
    ends_at: float | None
    generator_url: str
    title: str = ""
    cause: str = ""
    step: str = ""

    @property
    def fingerprint(self) -> str:
        """Its identity, as Alertmanager computes it."""
        return fingerprint(self.labels)

    def resolved(self, ended_at: float) -> "Alert":
        """The same alert, over: it never ends before it starts, even where the clock was set back."""
        return replace(self, starts_at=min(self.starts_at, ended_at), ends_at=ended_at)


class AlertBuilder:
    """Turns incidents into alerts for one installation: its external labels and its own address.

    `instance` separates this watchdog from others; it is on the heartbeat and on the alerts of `instance_targets`.
    `target_labels` are the own labels of targets, by name; `dashboard_url` is as in `dashboard_of`. Targets come and
    go: `know` replaces both.
    """

    def __init__(
        self,
        external_labels: Mapping[str, str],
        external_url: str,
        instance: str = "",
        instance_targets: Collection[str] = (),
        *,
        target_labels: Mapping[str, Mapping[str, str]] = NO_TARGET_LABELS,
        dashboard_url: str = "",
    ) -> None:
        self._external_labels = dict(external_labels)
        self._instance = {"instance": instance}
        self._instance_targets = frozenset(instance_targets)
        self._external_url = external_url.rstrip("/")
        self._target_labels = target_labels
        self._dashboard_url = dashboard_url

    def know(self, instance_targets: Collection[str], target_labels: Mapping[str, Mapping[str, str]]) -> None:
        """Goes over to other targets; alerts built from now on are of these."""
        self._instance_targets = frozenset(instance_targets)
        self._target_labels = target_labels

    def build(self, incident: Incident, labels: Mapping[str, str] = NO_LABELS) -> Alert:
        """The alert of a firing incident.

        `labels` are those under which others know its server; they win over external ones, ours over them.
        """
        since = incident.firing_since if incident.firing_since is not None else incident.pending_since
        identity = {
            "alertname": alert_name(incident.key.rule),
            "rule": incident.key.rule,
            "severity": str(incident.severity),
            **incident.labels,
        }
        return Alert(
            labels=fitting_labels(
                (self._instance if incident.key.target in self._instance_targets else {})
                | self._external_labels
                | _lasting(labels)
                | dict(self._target_labels.get(incident.key.target, {}))
                | {name: each for name, each in identity.items() if each}
            ),
            annotations=self._annotations(incident),
            starts_at=since,
            ends_at=None,
            generator_url=incident_url(self._external_url, incident.key),
            title=incident.title,
            cause=fitting_annotation(incident.cause),
            step=fitting_annotation(instruction(incident.remedies[0]) if incident.remedies else ""),
        )

    def heartbeat(self, started_at: float) -> Alert:
        """The alert that fires as long as we live: when it stops, a dead-man switch speaks."""
        annotations = {
            "summary": "vllm-watchdog is alive.",
            "description": "This alert always fires. Route it to a dead-man switch that pages when it stops.",
        }
        return Alert(
            labels=fitting_labels(
                self._instance | self._external_labels | {"alertname": HEARTBEAT_NAME, "severity": "none"}
            ),
            annotations=annotations,
            starts_at=started_at,
            ends_at=None,
            generator_url=self._external_url,
        )

    def _annotations(self, incident: Incident) -> dict[str, str]:
        subject = ", ".join(f"{name} {value}" for name, value in incident.labels.items())
        description = [incident.cause] if incident.cause else []
        if incident.evidence:
            description.append("Evidence: " + "; ".join(each.text for each in incident.evidence) + ".")
        if incident.symptoms:
            description.append("It explains: " + ", ".join(incident.symptoms) + ".")
        if incident.explained_by:
            description.append("It is explained by: " + ", ".join(incident.explained_by) + ".")
        annotations = {
            "summary": f"{incident.title} ({subject})" if subject else incident.title,
            "description": " ".join(description),
            "remedy": remedies_text(incident.remedies),
            "runbook_url": self._runbook_url(incident),
            "dashboard_url": dashboard_of(self._dashboard_url, incident.labels),
        }
        return {name: fitting_annotation(text) for name, text in annotations.items() if text}

    def _runbook_url(self, incident: Incident) -> str:
        """Our page of the rule, else none: a path in our own documents opens nowhere."""
        if incident.runbook.startswith(("http://", "https://")):
            return incident.runbook
        return f"{self._external_url}/rules/{quote(incident.key.rule)}" if self._external_url else ""


def _lasting(labels: Mapping[str, str]) -> dict[str, str]:
    """What stays as it is while a server does: a pod comes back at another address, and is no other one."""
    moves = {"instance"} if "pod" in labels else frozenset[str]()
    return {name: value for name, value in labels.items() if name not in moves}


def alert_name(rule: str) -> str:
    """`kv-pool-exhausted` as `VllmKvPoolExhausted`."""
    words = re.findall(r"[A-Za-z0-9]+", rule)
    return "Vllm" + "".join(word[0].upper() + word[1:] for word in words)


def incident_url(external_url: str, key: Key) -> str:
    """The incident's page; empty where our own address is not known."""
    return f"{external_url}/incidents/{quote(str(key), safe='/')}" if external_url else ""


def dashboard_of(template: str, labels: Mapping[str, str]) -> str:
    """A dashboard's address from its template: `{target}`, `{model_name}` and `{engine}` become the labels of what is
    looked at, empty where it has none; empty without a template.
    """
    return DASHBOARD_PLACE.sub(lambda found: quote(labels.get(found[1], ""), safe=""), template)


def fingerprint(labels: Mapping[str, str]) -> str:
    """64-bit FNV-1a over the sorted labels, each name and value closed by 0xff, in hex."""
    digest = _FNV_OFFSET
    for name in sorted(labels):
        for byte in name.encode() + b"\xff" + labels[name].encode() + b"\xff":
            digest = (digest ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return f"{digest:016x}"


def fitting_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels that Alertmanager takes: names made valid, empty values dropped, long ones cut with a hash."""
    cleaned = ((_label_name(name), _label_value(value)) for name, value in labels.items())
    return {name: value for name, value in sorted(cleaned) if value}


def fitting_annotation(text: str) -> str:
    """Text fit for an annotation: not longer than a pager can show."""
    if len(text) <= MAX_ANNOTATION_CHARACTERS:
        return text
    return text[: MAX_ANNOTATION_CHARACTERS - 1] + "…"


def severity_rank(severity: str) -> int:
    """0 for the worst; what is no severity comes last."""
    return SEVERITY_RANK.get(severity, len(SEVERITY_RANK))


def compact_json(data: object) -> bytes:
    """`data` as JSON without blanks: the same bytes for the same data."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def remedies_text(remedies: Sequence[Remedy]) -> str:
    """What to do first, in full, and where that has no flag the first one that has: a pager shows no list."""
    first = next(iter(remedies), None)
    if first is None:
        return ""
    flagged = None if first.flag else next((each for each in remedies if each.flag), None)
    return remedy_text(first) + (f" Then: {remedy_text(flagged)}" if flagged else "")


def remedy_text(remedy: Remedy) -> str:
    """One remedy as a sentence: what to do, with which value, why, and what it costs."""
    parts = [instruction(remedy), remedy.why]
    if remedy.price:
        parts.append(f"Trade-off: {remedy.price}")
    return " ".join(_sentence(part) for part in parts if part)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _label_name(name: str) -> str:
    valid = re.sub(r"[^a-zA-Z0-9_]", "_", name) or "_"
    return f"_{valid}" if valid[0].isdigit() else valid


def _label_value(value: str) -> str:
    if len(value) <= MAX_LABEL_CHARACTERS:
        return value
    # The hash keeps two long values with the same start apart.
    return value[: MAX_LABEL_CHARACTERS - 17] + "~" + hashlib.sha256(value.encode()).hexdigest()[:16]
