"""One pod as the Kubernetes API reports it: whether its server is to be watched, and what is known of it."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from watchdog.model import Pod
from watchdog.settings.discovery import KubernetesDiscoverySettings
from watchdog.text import one_line

Told = Mapping[str, Any]
"""A pod in JSON, of the form that the API promises."""

LEAST_LOAD_SECONDS = 10.0
"""No vLLM is ready sooner: it starts Python, loads a model and captures graphs."""

_OVER = frozenset({"Succeeded", "Failed"})


def identity(told: Told) -> str:
    """Its identity among all pods, also against the next pod of its name."""
    return str(told["metadata"]["uid"])


def is_leaving(told: Told) -> bool:
    """Whether it is deleted or over: it still answers for a while, or not, and neither says anything."""
    return bool(told["metadata"].get("deletionTimestamp")) or _status(told).get("phase") in _OVER


def was_ready(told: Told) -> bool:
    """Whether it is ready, or was: it is in service from then on, whatever becomes of it.

    The condition is set as the pod starts, give or take a few seconds, and changed when it becomes ready.
    """
    ready = _condition(told, "Ready")
    if ready.get("status") == "True":
        return True
    changed, started = _time(ready.get("lastTransitionTime")), _time(_status(told).get("startTime"))
    return changed is not None and started is not None and changed - started > LEAST_LOAD_SECONDS


def address(told: Told) -> str:
    """Its IP address as a URL has it; empty before it has one."""
    address = str(_status(told).get("podIP") or "")
    return f"[{address}]" if ":" in address else address


def labels(told: Told) -> dict[str, str]:
    """Its labels."""
    return {
        one_line(name): one_line(str(value)) for name, value in _mapping(told["metadata"], "labels").items()
    }


def workload(told: Told) -> str:
    """What made it, over its roll-outs: a Deployment by way of its ReplicaSet, a StatefulSet."""
    metadata = told["metadata"]
    owners = metadata.get("ownerReferences") or [{}]
    owner = str(owners[0].get("name") or metadata["name"])
    revision = _mapping(metadata, "labels").get("pod-template-hash")
    return re.sub(f"-{re.escape(str(revision))}$", "", owner) if revision else owner


def image(told: Told, settings: KubernetesDiscoverySettings) -> str:
    """The image of its vLLM container; empty where it has no such container."""
    return one_line(str(_container(told, settings).get("image") or ""), 300)


def created_at(told: Told) -> float | None:
    """When it was made (unix seconds)."""
    return _time(told["metadata"].get("creationTimestamp"))


def state_of(told: Told, settings: KubernetesDiscoverySettings) -> Pod:
    """What is known of it, but what its workload ran before."""
    metadata, container = told["metadata"], _container(told, settings)
    status: Told = next(
        (
            each
            for each in _status(told).get("containerStatuses") or ()
            if each.get("name") == container.get("name")
        ),
        {},
    )
    # What ends for good has no later start: its end is its state.
    ended = _mapping(_mapping(status, "state"), "terminated") or _mapping(
        _mapping(status, "lastState"), "terminated"
    )
    return Pod(
        name=one_line(str(metadata["name"])),
        namespace=one_line(str(metadata.get("namespace", ""))),
        node=one_line(str(_mapping(told, "spec").get("nodeName") or "")),
        ready=_condition(told, "Ready").get("status") == "True",
        restarts=int(status.get("restartCount") or 0),
        ended=one_line(str(ended.get("reason") or "")),
        ended_at=_time(ended.get("finishedAt")),
        image=image(told, settings),
    )


def _container(told: Told, settings: KubernetesDiscoverySettings) -> Told:
    """The container that is vLLM: the one of the settings, the one that names the port, else the first."""
    containers = _mapping(told, "spec").get("containers") or [{}]
    if settings.container:
        return next((each for each in containers if each.get("name") == settings.container), {})
    with_port = (
        each
        for each in containers
        if any(port.get("containerPort") == settings.port for port in each.get("ports") or ())
    )
    found: Told = next(with_port, containers[0])
    return found


def _status(told: Told) -> Told:
    return _mapping(told, "status")


def _condition(told: Told, kind: str) -> Told:
    conditions = _status(told).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def _mapping(told: Told, key: str) -> Told:
    return told.get(key) or {}


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except (ValueError, OverflowError):
        return None
