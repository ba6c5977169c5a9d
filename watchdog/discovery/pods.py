"""Servers from pods of Kubernetes: listed once, then watched, and listed again where the API has forgotten."""

import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubernetes import client, config

from watchdog.discovery import pod
from watchdog.discovery.finder import Finder
from watchdog.discovery.found import Found, kept_labels, url_of
from watchdog.discovery.images import Images
from watchdog.errors import SourceError
from watchdog.http.url import redact_url
from watchdog.notify.announcements import Ledger
from watchdog.settings.discovery import KubernetesDiscoverySettings
from watchdog.text import one_line

# A watch ends by itself after so long and is taken up where it ended: a connection that died unseen is found out.
WATCH_SECONDS = 60
SILENCE_SECONDS = 15.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
PAGE_PODS = 500
MOST_LIST_BYTES = 64 * 1024 * 1024
MOST_EVENT_BYTES = 4 * 1024 * 1024
READ_BYTES = 64 * 1024
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
GONE = 410
# Where an error stands that is of no namespace; none is called so.
EMPTY = ""

log = logging.getLogger(__name__)


class GoneError(Exception):
    """The API has forgotten the version from which we wanted to go on."""


class PodFinder(Finder):
    """Lists and watches the pods of each namespace, each in a thread of its own.

    A pod is a server from when it is first ready until it is deleted or over: before, its model loads; after, it is
    not missed.
    """

    def __init__(self, settings: KubernetesDiscoverySettings, ledger: Ledger) -> None:
        super().__init__(settings, LONGEST_PAUSE_SECONDS, ledger)
        self._pods = settings
        self._change = threading.RLock()
        self._told: dict[str, dict[str, pod.Told]] = {}
        self._in_service: set[str] = set()
        self._images = Images()
        self._errors: dict[str, str] = {}
        self._watches: list[NamespaceWatch] = []

    def look(self) -> None:
        """Begins to follow, once there is a way to the API: then changes come by themselves."""
        if self._watches:
            return
        try:
            api, own = _api(self._pods)
        except SourceError as error:
            self.refuse(str(error))
            return
        namespaces = self._pods.namespaces or [own]
        self._watches = [NamespaceWatch(self, api, self._pods, each) for each in namespaces]
        for each in self._watches:
            each.start()

    def hurry(self, takes_empty: bool = False) -> None:
        """Takes what is there now at its word after a reload; else changes come by themselves."""
        if takes_empty and self._told:
            with self._change:
                self._settle(is_certain=True)

    def stop(self) -> None:
        """Follows no more."""
        self._stopped = True
        for each in self._watches:
            each.stop()
        super().stop()

    # What the watches say.

    def listed(self, namespace: str, pods: list[pod.Told]) -> None:
        """Takes a whole list of a namespace."""
        with self._change:
            self._told[namespace] = {pod.identity(each): each for each in pods}
            self._in_service &= {uid for told in self._told.values() for uid in told}
            self._settle(is_certain=False)

    def changed(self, namespace: str, told: pod.Told) -> None:
        """Takes a pod that is new, or another than it was."""
        with self._change:
            self._told[namespace][pod.identity(told)] = told
            self._settle(is_certain=True)

    def deleted(self, namespace: str, told: pod.Told) -> None:
        """Takes the end of a pod."""
        with self._change:
            self._told[namespace].pop(pod.identity(told), None)
            self._in_service.discard(pod.identity(told))
            self._settle(is_certain=True)

    def failed(self, namespace: str, error: str) -> None:
        """Takes note that a namespace cannot be followed."""
        with self._change:
            self._errors[namespace] = error
            if namespace not in self._told:
                # The others need not wait for it.
                self._settle(is_certain=False)
            self._refuse_all()

    def well(self, namespace: str) -> None:
        """Takes note that a namespace is followed."""
        with self._change:
            self._errors.pop(namespace, None)
            if not self._errors:
                self.succeed()

    # What follows from it.

    def _settle(self, *, is_certain: bool) -> None:
        """Takes the pods over as they are now; a list of none where there were some is not certain.

        The lock is held.
        """
        if not all(each.namespace in self._told or each.namespace in self._errors for each in self._watches):
            return
        found = [each for told in self._told.values() for one in told.values() for each in self._found(one)]
        for each in self._watches:
            if each.namespace not in self._told:
                found += [one for one in self.found if one.match_labels.get("namespace") == each.namespace]
        self._images.keep_only(pod.workload(one) for told in self._told.values() for one in told.values())
        if found or is_certain or not self.found:
            self._errors.pop(EMPTY, None)
            self.replace(sorted(found, key=lambda each: each.name))
        else:
            self._errors[EMPTY] = (
                "no pod with this label has been ready, which is accepted only after a reload"
            )
            self._refuse_all()
        if not self._errors:
            self.succeed()

    def _refuse_all(self) -> None:
        self.refuse("; ".join(self._errors.values()))

    def _found(self, told: pod.Told) -> Iterator[Found]:
        """The server in a pod, where it has one to be watched."""
        settings, identity = self._pods, pod.identity(told)
        self._note_image(told)
        if pod.is_leaving(told):
            self._in_service.discard(identity)
            return
        if pod.was_ready(told):
            self._in_service.add(identity)
        if identity not in self._in_service or not pod.address(told):
            return
        state = pod.state_of(told, settings)
        change = self._images.change_to(pod.workload(told), state.image)
        if change is not None:
            state = replace(state, image_before=change.before, image_changed_at=change.at)
        name = state.name if len(self._watches) == 1 else f"{state.name}.{state.namespace}"
        yield Found(
            name,
            url_of(pod.address(told), settings),
            kept_labels(pod.labels(told), settings.keep_labels),
            {"pod": state.name, "namespace": state.namespace},
            state,
        )

    def _note_image(self, told: pod.Told) -> None:
        image = pod.image(told, self._pods)
        if image:
            self._images.note(pod.workload(told), image, pod.created_at(told) or time.time())


class NamespaceWatch:
    """Follows the pods of one namespace and says what changes."""

    def __init__(
        self,
        finder: PodFinder,
        api: client.CoreV1Api,
        settings: KubernetesDiscoverySettings,
        namespace: str,
    ) -> None:
        self.namespace = namespace
        self._finder = finder
        self._api = api
        self._settings = settings
        self._version = ""
        self._stopping = threading.Event()
        self._response: Any = None
        self._thread = threading.Thread(target=self._run, name=f"pods of {namespace}", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Ends; what is being read is cut."""
        self._stopping.set()
        # A read in another thread ends only where its socket does.
        with suppress(OSError, AttributeError):
            self._response.connection.sock.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        pause_seconds = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                pause_seconds = FIRST_PAUSE_SECONDS
            except GoneError:
                log.info("pods_listed_again", extra={"namespace": self.namespace})
                self._version = ""
            except Exception as error:  # whatever libraries raise, the pods are to be followed again
                if self._stopping.is_set():
                    return
                self._finder.failed(self.namespace, f"namespace {self.namespace}: {_words(error)}")
                self._stopping.wait(pause_seconds)
                pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * pause_seconds)

    def _list(self) -> None:
        """Reads all pods, in pages where they are many."""
        pods: list[pod.Told] = []
        following, give_up_at = "", time.monotonic() + self._settings.deadline_seconds
        while True:
            seconds = max(0.1, give_up_at - time.monotonic())
            body = b"".join(self._parts({"limit": PAGE_PODS, "_continue": following}, seconds, give_up_at))
            told = _object(body)
            metadata = _metadata(told)
            if not isinstance(told.get("items"), list):
                raise SourceError("the answer is not a list of pods")
            pods += [each for each in told["items"] if _is_pod(each)]
            following = str(metadata.get("continue") or "")
            if not following:
                break
        self._version = str(metadata.get("resourceVersion") or "")
        self._finder.listed(self.namespace, pods)
        self._finder.well(self.namespace)

    def _watch(self) -> None:
        """Takes changes in until the API ends the watch, as it does from time to time."""
        asked = {
            "watch": True,
            "allow_watch_bookmarks": True,
            "resource_version": self._version,
            "timeout_seconds": WATCH_SECONDS,
        }
        line = b""
        for part in self._parts(asked, WATCH_SECONDS + SILENCE_SECONDS, None):
            *whole, line = (line + part).split(b"\n")
            for each in whole:
                if each.strip():
                    self._take(_object(each))
            if len(line) > MOST_EVENT_BYTES:
                raise SourceError("an event without an end")

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, told = event.get("type"), event.get("object")
        if not isinstance(told, dict):
            raise SourceError("an event without an object")
        if kind == "ERROR":
            if told.get("code") == GONE:
                raise GoneError
            raise SourceError(f"the watch ended: {told.get('message') or told.get('reason')}")
        if kind in {"ADDED", "MODIFIED"} and _is_pod(told):
            self._finder.changed(self.namespace, told)
        elif kind == "DELETED" and _is_pod(told):
            self._finder.deleted(self.namespace, told)
        self._version = str(_metadata(told).get("resourceVersion") or self._version)
        self._finder.well(self.namespace)

    def _parts(self, asked: Mapping[str, Any], seconds: float, give_up_at: float | None) -> Iterator[bytes]:
        """The parts of an answer as they come; raises SourceError where they are too many, or come too late."""
        given = {name: value for name, value in asked.items() if value != ""}
        try:
            self._response = response = self._api.list_namespaced_pod(
                self.namespace,
                label_selector=self._settings.selector,
                _preload_content=False,
                _request_timeout=(self._settings.deadline_seconds, seconds),
                **given,
            )
        except client.ApiException as error:
            _check(int(error.status or 0), str(error.reason))
            raise
        size_bytes = 0
        try:
            _check(response.status, response.reason)
            for part in response.stream(READ_BYTES, decode_content=False):
                size_bytes += len(part)
                if give_up_at is not None and size_bytes > MOST_LIST_BYTES:
                    raise SourceError(f"a list larger than {MOST_LIST_BYTES} bytes")
                if give_up_at is not None and time.monotonic() > give_up_at:
                    raise SourceError(f"no complete list within {self._settings.deadline_seconds:g} s")
                yield part
        finally:
            response.close()


def _api(settings: KubernetesDiscoverySettings) -> tuple[client.CoreV1Api, str]:
    """The API, and the namespace that is our own; raises SourceError."""
    configuration = client.Configuration()
    try:
        if settings.kubeconfig_file is None:
            config.load_incluster_config(client_configuration=configuration)
            own = NAMESPACE_FILE.read_text().strip()
        else:
            path, context = str(settings.kubeconfig_file), settings.context or None
            config.load_kube_config(path, context, client_configuration=configuration)
            own = _namespace_of(path, context)
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise SourceError(
            f"cannot reach the Kubernetes API: {one_line(str(error), 200)}; run in a pod with a service account, "
            "or set kubeconfig_file"
        ) from None
    configuration.retries = False
    return client.CoreV1Api(client.ApiClient(configuration)), own


def _namespace_of(path: str, name: str | None) -> str:
    """The namespace of a context, the current one for None."""
    contexts, active = config.list_kube_config_contexts(path)
    chosen = next((each for each in contexts if each["name"] == name), active)
    return str(chosen["context"].get("namespace") or "default")


def _check(status: int, reason: str) -> None:
    """Raises GoneError or SourceError for an answer that is none; 0 is no answer, which others tell better."""
    if status == GONE:
        raise GoneError
    if status in {401, 403}:
        raise SourceError(
            f"HTTP {status}: the service account may not read pods; give it a role with get, list and watch on pods"
        )
    if status not in {0, 200}:
        raise SourceError(f"HTTP {status} {reason} from the Kubernetes API")


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise SourceError("an answer that is truncated, or not JSON") from None
    if not isinstance(told, dict):
        raise SourceError("an answer that is not an object")
    return told


def _metadata(told: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = told.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _is_pod(told: object) -> bool:
    """Whether it has what identifies a pod."""
    metadata = _metadata(told) if isinstance(told, dict) else {}
    return isinstance(metadata.get("uid"), str) and isinstance(metadata.get("name"), str)


def _words(error: Exception) -> str:
    """What went wrong, for people; libraries wrap it in words about themselves."""
    if isinstance(error, SourceError):
        return str(error)
    return one_line(redact_url(" ".join(str(error).split())) or type(error).__name__, 200)
