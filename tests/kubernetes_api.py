"""Pods as the Kubernetes API serves them: lists in pages, watches, bookmarks, and what goes wrong."""

import json
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

CREATED = "2026-11-30T10:00:00Z"
READY = "2026-11-30T10:04:00Z"


def a_pod(name: str, address: str = "127.9.0.1", **changes: Any) -> dict[str, Any]:
    """A pod of a Deployment, ready, with one container beside vLLM's; `changes` as `changed` has them."""
    return changed(
        {
            "metadata": {
                "name": name,
                "namespace": "llm",
                "uid": f"uid-{name}",
                "creationTimestamp": CREATED,
                "labels": {"app": "vllm", "app.kubernetes.io/name": "chat", "pod-template-hash": "5d9"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "chat-5d9"}],
            },
            "spec": {
                "nodeName": "gpu-3",
                "containers": [
                    {"name": "proxy", "image": "envoy:1", "ports": [{"containerPort": 80}]},
                    {"name": "vllm", "image": "vllm:0.11", "ports": [{"containerPort": 8000}]},
                ],
            },
            "status": {
                "phase": "Running",
                "podIP": address,
                "startTime": CREATED,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": READY}],
                "containerStatuses": [
                    {"name": "proxy", "restartCount": 7},
                    {"name": "vllm", "restartCount": 0},
                ],
            },
        },
        **changes,
    )


def changed(
    pod: Mapping[str, Any],
    *,
    ready: bool | None = None,
    ready_since: str = "",
    leaving: bool = False,
    phase: str = "",
    image: str = "",
    restarts: int | None = None,
    ended: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The pod in another state."""
    other = deepcopy(dict(pod))
    status, vllm = other["status"], other["status"]["containerStatuses"][1]
    if ready is not None:
        status["conditions"][0]["status"] = str(ready)
    if ready_since:
        status["conditions"][0]["lastTransitionTime"] = ready_since
    if leaving:
        other["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    if phase:
        status["phase"] = phase
    if image:
        other["spec"]["containers"][1]["image"] = image
    if restarts is not None:
        vllm["restartCount"] = restarts
    if ended is not None:
        vllm["lastState"] = {"terminated": dict(ended)}
    other["metadata"]["labels"] |= dict(labels or {})
    return other


class KubernetesApi:
    """Serves pods; every change has a resource version, and a watch goes on from any that is not compacted.

    `wrong`, where it is set, answers a request in place of the API: it gets the handler and the request's parameters,
    and returns whether it did.
    """

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.requests: list[dict[str, str]] = []
        self.wrong: Callable[[BaseHTTPRequestHandler, Mapping[str, str]], bool] | None = None
        self.page_pods = 500
        self._version = 100
        self._oldest = 0
        self._events: list[tuple[int, str]] = []
        self._change = threading.Condition()
        self._cuts = 0
        self.closing = False
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def kubeconfig(self, folder: Path) -> Path:
        """A kubeconfig that leads here."""
        path = folder / "kubeconfig"
        url = f"http://127.0.0.1:{self._http.server_address[1]}"
        told = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "secret-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "llm"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(told))
        return path

    # What happens in the cluster.

    def put(self, *pods: Mapping[str, Any]) -> None:
        """Adds pods, or changes them."""
        for pod in pods:
            uid = pod["metadata"]["uid"]
            self._happen("MODIFIED" if uid in self.pods else "ADDED", dict(pod))

    def delete(self, *pods: Mapping[str, Any]) -> None:
        """Deletes pods."""
        for pod in pods:
            self._happen("DELETED", dict(pod))

    def bookmark(self) -> None:
        """Says how far a watch has come, of which nothing else is told."""
        with self._change:
            self._version += 1000
            told = {"kind": "Pod", "metadata": {"resourceVersion": str(self._version)}}
            self._note({"type": "BOOKMARK", "object": told})

    def compact(self) -> None:
        """Forgets the past: who was somewhere in it has to list again."""
        with self._change:
            self._version += 1
            self._oldest = self._version
            self._events.clear()
            self._change.notify_all()

    def cut(self) -> None:
        """Cuts every watch in the middle of a line."""
        with self._change:
            self._cuts += 1
            self._change.notify_all()

    def _happen(self, kind: str, pod: dict[str, Any]) -> None:
        with self._change:
            self._version += 1
            pod = deepcopy(pod)
            pod["metadata"]["resourceVersion"] = str(self._version)
            if kind == "DELETED":
                self.pods.pop(pod["metadata"]["uid"], None)
            else:
                self.pods[pod["metadata"]["uid"]] = pod
            self._note({"type": kind, "object": pod})

    def _note(self, event: Mapping[str, Any]) -> None:
        self._events.append((self._version, json.dumps(event)))
        self._change.notify_all()

    # What is answered.

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers one request."""
        parts = urlsplit(handler.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append({"path": parts.path, **asked})
        try:
            if self.wrong is not None and self.wrong(handler, asked):
                return
            assert handler.headers["Authorization"] == "Bearer secret-token"
            if asked.get("watch") == "true":
                self._watch(handler, int(asked["resourceVersion"]))
            else:
                self._list(handler, int(asked.get("continue", "0")))
        except OSError:
            handler.close_connection = True

    def _list(self, handler: BaseHTTPRequestHandler, begin: int) -> None:
        with self._change:
            pods, version = [each for each in self.pods.values() if self._is_of(each, handler)], self._version
        end = begin + self.page_pods
        metadata = {"resourceVersion": str(version), "continue": str(end) if end < len(pods) else ""}
        reply(
            handler, {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods[begin:end]}
        )

    def _is_of(self, told: Mapping[str, Any], handler: BaseHTTPRequestHandler) -> bool:
        """Whether it is of the namespace that is asked for; a bookmark is of each."""
        namespace = told["metadata"].get("namespace")
        return namespace is None or f"/namespaces/{namespace}/" in handler.path

    def _watch(self, handler: BaseHTTPRequestHandler, version: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        cuts = self._cuts
        while True:
            with self._change:
                while not (self.closing or self._cuts > cuts or version < self._version):
                    self._change.wait()
                told = [(at, event) for at, event in self._events if at > version]
                is_gone, is_cut = version < self._oldest, self._cuts > cuts
            if is_gone:
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                told = [(0, json.dumps({"type": "ERROR", "object": status}))]
            for at, event in told:
                if is_gone or self._is_of(json.loads(event)["object"], handler):
                    chunk(handler, event.encode() + b"\n")
                version = max(version, at)
            if is_cut:
                chunk(handler, b'{"type": "MODIF')
            if is_gone or is_cut or self.closing:
                handler.close_connection = True
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self.closing = True
            self._change.notify_all()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def reply(handler: BaseHTTPRequestHandler, told: object, status: int = 200) -> None:
    """Sends one JSON answer."""
    body = json.dumps(told).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def chunk(handler: BaseHTTPRequestHandler, part: bytes) -> None:
    """Sends a part of an answer."""
    handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
