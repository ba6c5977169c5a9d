"""A server that was found: where it is and under which labels, and its text in a ledger."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from watchdog.model import NO_LABELS, Pod
from watchdog.settings.discovery import FindSettings
from watchdog.settings.section import Credentials
from watchdog.settings.target import OUR_LABELS, TargetSettings
from watchdog.settings.watchdogs import WatchdogSettings

_NO_LABEL_NAME = re.compile(r"[^a-zA-Z0-9_]")
_PORT = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True)
class Found:
    """A server to watch. `labels` become its own, `match_labels` are those by which alerts of others mean it.

    `pod` is what Kubernetes says of it; None where it is no pod.
    """

    name: str
    url: str
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    match_labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    pod: Pod | None = None

    def settings(self, find: FindSettings) -> TargetSettings:
        """It as a target, watched as its finder's settings say; raises ValidationError for what can be none."""
        given = find.target.model_dump(exclude_unset=True)
        given["start_seconds"] = find.target.start_seconds
        given["labels"] = find.target.labels | dict(self.labels)
        given["match_labels"] = find.target.match_labels | dict(self.match_labels)
        return TargetSettings.model_validate(given | {"name": self.name, "url": self.url})

    def watchdog(self, find: FindSettings) -> WatchdogSettings:
        """It as another watchdog, asked with the credentials of its finder's targets; raises ValidationError."""
        given = find.target.model_dump(include=set(Credentials.model_fields), exclude_unset=True)
        parts = urlsplit(self.url)
        return WatchdogSettings.model_validate(
            given | {"name": self.name, "url": f"{parts.scheme}://{parts.netloc}"}
        )

    def text(self) -> str:
        """What is kept of it: all but the state of its pod, which is another by then."""
        return json.dumps([self.url, dict(self.labels), dict(self.match_labels)])


def found_in(texts: Mapping[str, str]) -> tuple[Found, ...]:
    """The servers of a ledger by name; what cannot be read is left out."""
    kept = []
    for name, text in texts.items():
        with suppress(ValueError, TypeError):
            url, labels, match_labels = json.loads(text)
            kept.append(Found(name, str(url), dict(labels), dict(match_labels)))
    return tuple(kept)


def kept_labels(labels: Mapping[str, str], keep: Iterable[str] | None) -> dict[str, str]:
    """The labels that are kept, under names that a label may have; None keeps all but those that are others' own.

    Labels that begin with two underscores are for who reads the list, as in Prometheus.
    """
    wanted = labels if keep is None else [each for each in keep if each in labels]
    named = {_NO_LABEL_NAME.sub("_", each): labels[each] for each in wanted if not each.startswith("__")}
    return {name: value for name, value in named.items() if name not in OUR_LABELS and value}


def url_of(address: str, find: FindSettings, labels: Mapping[str, str] = NO_LABELS) -> str:
    """The metrics page at an address, with the port of the settings where it has none.

    A list may say otherwise of one server, by the labels that Prometheus has for it.
    """
    scheme = labels.get("__scheme__") or find.scheme
    path = labels.get("__metrics_path__") or find.path
    at = address if _PORT.search(address) else f"{address}:{find.port}"
    return f"{scheme}://{at}/{path.lstrip('/')}"
