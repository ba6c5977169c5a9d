"""An incident as JSON text, and back."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from watchdog.model import Evidence, Incident, Key, Remedy, Severity, State


def dump_incident(incident: Incident) -> str:
    """The incident as one line of ASCII; numbers that JSON does not have become null."""
    return json.dumps(_plain(asdict(incident)), separators=(",", ":"))


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
        remedies=tuple(Remedy(**each) for each in data["remedies"]),
        unhelpful=tuple(map(str, data["unhelpful"])),
        runbook=str(data["runbook"]),
        pending_since=float(data["pending_since"]),
        firing_since=_moment(data["firing_since"]),
        resolved_at=_moment(data["resolved_at"]),
        symptoms=tuple(map(str, data["symptoms"])),
        explained_by=tuple(map(str, data["explained_by"])),
        unknown=bool(data["unknown"]),
    )


def _evidence(data: Mapping[str, Any]) -> Evidence:
    values = {str(name): _moment(value) for name, value in data["values"].items()}
    return Evidence(str(data["clause"]), values, str(data["text"]))


def _moment(value: Any) -> float | None:
    return None if value is None else float(value)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
