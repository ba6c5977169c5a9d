"""Prometheus' lists of targets: groups of addresses with labels, out of JSON or YAML."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from watchdog.discovery.found import Found, kept_labels, url_of
from watchdog.errors import SourceError
from watchdog.settings.discovery import FileDiscoverySettings, HttpDiscoverySettings
from watchdog.text import one_line, printable_labels

MOST_SERVERS = 10_000


def read_json(body: bytes) -> object:
    """A JSON document; raises SourceError, also for text that is not UTF-8."""
    try:
        told: object = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise SourceError(f"no JSON: {one_line(str(error), 200)}") from None
    return told


def read_yaml(body: bytes) -> object:
    """A YAML document; raises SourceError."""
    try:
        told: object = yaml.safe_load(body)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SourceError(f"no YAML: {one_line(' '.join(str(error).split()), 200)}") from None
    return told


def servers(told: object, find: FileDiscoverySettings | HttpDiscoverySettings) -> list[Found]:
    """The servers of a list; raises SourceError for what is no list of groups, or too long a one."""
    found = []
    for address, labels in _addresses(told):
        name = labels.get(find.name_label, "") if find.name_label else ""
        url = url_of(address, find, labels)
        found.append(Found(name or address, url, kept_labels(labels, find.keep_labels)))
        if len(found) > MOST_SERVERS:
            raise SourceError(f"more than {MOST_SERVERS} servers")
    return found


def _addresses(told: object) -> Iterator[tuple[str, Mapping[str, str]]]:
    if not isinstance(told, list):
        raise SourceError("must be a list of groups, each with `targets` and perhaps `labels`")
    for index, group in enumerate(told):
        labels, targets = _group(group, f"group {index + 1}")
        for address in targets:
            yield address, labels


def _group(group: Any, where: str) -> tuple[Mapping[str, str], list[str]]:
    targets = group.get("targets") if isinstance(group, dict) else None
    if not isinstance(targets, list) or not all(isinstance(each, str) and each for each in targets):
        raise SourceError(f"{where}: `targets` must be a list of addresses, such as vllm-0:8000")
    labels = group.get("labels") or {}
    if not isinstance(labels, dict) or not all(
        isinstance(each, str) for pair in labels.items() for each in pair
    ):
        raise SourceError(f"{where}: `labels` must be a mapping of text to text")
    return printable_labels(labels), [one_line(each) for each in targets]
