"""An incident as JSON text, and back."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from watchdog.model import Evidence, Incident, Key, Remedy, Severity, State
from watchdog.text import finite_values

_REMEDY_FIELDS = tuple(field.name for field in fields(Remedy))


def dump_incident(incident: Incident) -> str:
    """The incident as one line of ASCII; numbers that JSON does not have become null."""
    data = {
        "key": list(incident.key),
        "title": incident.title,
        "severity": str(incident.severity),
        "state": str(incident.state),
        "cause": incident.cause,
        "evidence": [
            {"clause": each.clause, "values": finite_values(each.values), "text": each.text}
            for each in incident.evidence
        ],
        "remedies": [{name: getattr(each, name) for name in _REMEDY_FIELDS} for each in incident.remedies],
        "unhelpful": incident.unhelpful,
        "runbook": incident.runbook,
        "pending_since": incident.pending_since,
        "firing_since": incident.firing_since,
        "resolved_at": incident.resolved_at,
        "symptoms": incident.symptoms,
        "explained_by": incident.explained_by,
        "unknown": incident.unknown,
        "ending": incident.ending,
    }
    return json.dumps(data, separators=(",", ":"))


def load_incident(text: str) -> Incident:
    """The incident that `dump_incident` wrote; raises ValueError for anything else."""
    try:
        return _incident(json.loads(text))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no incident: {error!r}") from error


def _incident(data: Mapping[str, Any]) -> Incident:
    rule, target, model_name, engine = map(str, data["key"])
    return Incident(
        key=Key(rule, target, model_name, engine),
        title=str(data["title"]),
        severity=Severity(data["severity"]),
        state=State(data["state"]),
        cause=str(data["cause"]),
        evidence=tuple(_evidence(each) for each in data["evidence"]),
        remedies=tuple(_remedy(each) for each in data["remedies"]),
        unhelpful=tuple(map(str, data["unhelpful"])),
        runbook=str(data["runbook"]),
        pending_since=float(data["pending_since"]),
        firing_since=_moment(data["firing_since"]),
        resolved_at=_moment(data["resolved_at"]),
        symptoms=tuple(map(str, data["symptoms"])),
        explained_by=tuple(map(str, data["explained_by"])),
        unknown=bool(data["unknown"]),
        ending=bool(data.get("ending", data.get("easing"))),
    )


def _evidence(data: Mapping[str, Any]) -> Evidence:
    values = {str(name): _moment(value) for name, value in data["values"].items()}
    return Evidence(str(data["clause"]), values, str(data["text"]))


def _remedy(data: Mapping[str, Any]) -> Remedy:
    """What another version wrote may have more fields, or lack those with a default."""
    return Remedy(**{name: data[name] for name in _REMEDY_FIELDS if name in data})


def _moment(value: Any) -> float | None:
    return None if value is None else float(value)
