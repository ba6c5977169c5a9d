"""Kubernetes objects as data, and what is valid for each kind."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import yaml

Object = dict[str, Any]

# The oldest version with native sidecars on by default, and a newer one.
KUBERNETES_VERSIONS = ("1.29", "1.37")


def read(text: str) -> list[Object]:
    """The objects of a YAML stream, without empty documents."""
    return [each for each in yaml.safe_load_all(text) if each]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """The objects of one kind, in their order."""
    return [each for each in objects if each["kind"] == kind]


def named(objects: list[Object], kind: str, name: str) -> Object:
    """The one object of that kind and name."""
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def validate(item: Object) -> None:
    """Refuse an object that its Kubernetes schema, or ours for the Prometheus operator's kinds, refuses."""
    if item["apiVersion"] == "monitoring.coreos.com/v1":
        jsonschema.validate(item, OPERATOR_SCHEMAS[item["kind"]])
        return
    for version in KUBERNETES_VERSIONS:
        kubernetes_validate.validate(item, version, strict=True)
    _validate_fields_that_schemas_leave_open(item)


def _validate_fields_that_schemas_leave_open(item: Object) -> None:
    assert len(item["metadata"]["name"]) <= 63, item["metadata"]["name"]
    labels = item["metadata"].get("labels", {})
    assert all(isinstance(value, str) and len(value) <= 63 for value in labels.values()), labels
    for template in pod_templates(item):
        mounted = {volume["name"] for volume in template["spec"].get("volumes", [])}
        for container in containers(template):
            wanted = {mount["name"] for mount in container.get("volumeMounts", [])}
            assert wanted <= mounted, f"{container['name']} mounts what the pod does not have"


def pod_templates(item: Object) -> Iterator[Object]:
    """The pod template of a Deployment or StatefulSet."""
    if item["kind"] in {"Deployment", "StatefulSet"}:
        yield item["spec"]["template"]


def containers(template: Object) -> list[Object]:
    """All containers of a pod template, init containers first."""
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def without(mapping: Mapping[str, Any], *keys: str) -> Object:
    """A plain deep copy without some top keys."""
    copy: Object = json.loads(json.dumps(mapping))
    return {key: value for key, value in copy.items() if key not in keys}


def _object(properties: Object, *required: str) -> Object:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": list(required),
    }


_TEXT: Object = {"type": "string"}
_TEXTS: Object = {"type": "object", "additionalProperties": _TEXT}
_DURATION: Object = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h|d|w|y))+$"}
_METADATA = _object({"name": _TEXT, "namespace": _TEXT, "labels": _TEXTS, "annotations": _TEXTS}, "name")
_SELECTOR = _object({"matchLabels": _TEXTS}, "matchLabels")
_SECRET_KEY = _object({"name": _TEXT, "key": _TEXT}, "name", "key")
_AUTHORIZATION = _object({"type": _TEXT, "credentials": _SECRET_KEY})
_RELABELING = _object(
    {
        "sourceLabels": {"type": "array", "items": _TEXT},
        "targetLabel": _TEXT,
        "regex": _TEXT,
        "replacement": _TEXT,
        "action": {"enum": ["replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep"]},
    }
)
_ENDPOINT = _object(
    {
        "port": _TEXT,
        "path": _TEXT,
        "interval": _DURATION,
        "scrapeTimeout": _DURATION,
        "scheme": {"enum": ["http", "https"]},
        "honorLabels": {"type": "boolean"},
        "authorization": _AUTHORIZATION,
        "relabelings": {"type": "array", "items": _RELABELING},
    },
    "port",
)
_RULE = _object(
    {
        "record": _TEXT,
        "alert": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9]*$"},
        "expr": {"type": ["string", "integer"]},
        "for": _DURATION,
        "keep_firing_for": _DURATION,
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
    "expr",
)
_GROUP = _object(
    {"name": _TEXT, "interval": _DURATION, "rules": {"type": "array", "minItems": 1, "items": _RULE}},
    "name",
    "rules",
)


def _operator(kind: str, spec: Object) -> Object:
    properties = {
        "apiVersion": {"const": "monitoring.coreos.com/v1"},
        "kind": {"const": kind},
        "metadata": _METADATA,
        "spec": spec,
    }
    return _object(properties, *properties)


# The part of the Prometheus operator's definitions that we use, field by field, so that a typo is refused.
OPERATOR_SCHEMAS: dict[str, Object] = {
    "ServiceMonitor": _operator(
        "ServiceMonitor",
        _object({"selector": _SELECTOR, "endpoints": {"type": "array", "items": _ENDPOINT}}, "selector"),
    ),
    "PodMonitor": _operator(
        "PodMonitor",
        _object(
            {"selector": _SELECTOR, "podMetricsEndpoints": {"type": "array", "items": _ENDPOINT}}, "selector"
        ),
    ),
    "PrometheusRule": _operator(
        "PrometheusRule", _object({"groups": {"type": "array", "items": _GROUP}}, "groups")
    ),
}
