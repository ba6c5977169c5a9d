"""Pods as servers, against the Kubernetes API in miniature: real HTTP, by way of the real client library."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes_api import CREATED, READY, KubernetesApi, a_pod, changed, chunk, reply
from tests.waiting import until
from watchdog.discovery import pods as module
from watchdog.discovery.pods import PodFinder
from watchdog.notify.announcements import Ledger, MemoryLedger
from watchdog.settings.discovery import KubernetesDiscoverySettings


@pytest.fixture
def api() -> Iterator[KubernetesApi]:
    with KubernetesApi() as made:
        yield made


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.05)


@contextmanager
def finding(
    api: KubernetesApi, folder: Path, ledger: Ledger | None = None, **more: Any
) -> Iterator[PodFinder]:
    given = {"selector": "app=vllm", "kubeconfig_file": str(api.kubeconfig(folder)), **more}
    finder = PodFinder(KubernetesDiscoverySettings.model_validate(given), ledger or MemoryLedger())
    finder.start()
    try:
        yield finder
    finally:
        finder.stop()


def names(finder: PodFinder) -> list[str]:
    return [each.name for each in finder.found]


def comes_to(finder: PodFinder, *wanted: str) -> None:
    until(lambda: names(finder) == list(wanted) and not finder.error)


def watches(api: KubernetesApi) -> list[str]:
    """The versions from which was watched."""
    return [each["resourceVersion"] for each in api.requests if each.get("watch")]


def lists(api: KubernetesApi) -> int:
    return sum("watch" not in each for each in api.requests)


def test_pods_are_listed_and_then_watched(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(a_pod("chat-a", "127.9.0.1"), a_pod("chat-b", "fd00::2"))
    with finding(api, tmp_path, keep_labels=["app.kubernetes.io/name", "team"]) as finder:
        comes_to(finder, "chat-a", "chat-b")
        first = finder.found[0]
        assert (first.url, finder.found[1].url) == (
            "http://127.9.0.1:8000/metrics",
            "http://[fd00::2]:8000/metrics",
        )
        assert dict(first.labels) == {"app_kubernetes_io_name": "chat"}
        assert dict(first.match_labels) == {"pod": "chat-a", "namespace": "llm"}
        api.put(a_pod("chat-c"))
        comes_to(finder, "chat-a", "chat-b", "chat-c")
        api.delete(a_pod("chat-b"))
        comes_to(finder, "chat-a", "chat-c")
    [listed, watched] = api.requests
    assert listed["path"] == watched["path"] == "/api/v1/namespaces/llm/pods"
    assert listed["labelSelector"] == watched["labelSelector"] == "app=vllm"
    assert (watched["allowWatchBookmarks"], watched["timeoutSeconds"]) == ("true", "60")


def test_a_pod_is_a_server_from_when_it_is_first_ready_until_it_leaves(
    api: KubernetesApi, tmp_path: Path
) -> None:
    """Its model loads before, and its container starts anew in between: of the first nobody is to hear, of that all."""
    loading = a_pod("chat-a", ready=False, ready_since=a_pod("x")["status"]["startTime"])
    api.put(loading, a_pod("chat-b"))
    with finding(api, tmp_path) as finder:
        comes_to(finder, "chat-b")
        api.put(a_pod("chat-a"))
        comes_to(finder, "chat-a", "chat-b")
        api.put(changed(loading, restarts=1, ended={"reason": "OOMKilled", "finishedAt": READY}))
        until(lambda: [each.pod.restarts for each in finder.found if each.pod] == [1, 0])
        assert names(finder) == ["chat-a", "chat-b"]
        api.put(changed(loading, leaving=True))
        comes_to(finder, "chat-b")
        api.put(a_pod("chat-b", phase="Failed"))
        comes_to(finder)


def test_a_pod_that_was_ready_before_us_is_known_to_have_been(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(a_pod("chat-a", ready=False, ready_since=READY))
    # Its condition was set two seconds after its start, and never changed.
    api.put(a_pod("chat-b", ready=False, ready_since=CREATED.replace(":00Z", ":02Z")))
    with finding(api, tmp_path) as finder:
        comes_to(finder, "chat-a")


def test_restarts_the_end_of_the_container_and_the_image_are_told(api: KubernetesApi, tmp_path: Path) -> None:
    old = a_pod("chat-a", restarts=2, ended={"reason": "OOMKilled", "finishedAt": "2026-11-30T11:00:00Z"})
    api.put(old)
    with finding(api, tmp_path) as finder:
        comes_to(finder, "chat-a")
        state = finder.found[0].pod
        assert state is not None
        assert (state.name, state.namespace, state.node, state.ready) == ("chat-a", "llm", "gpu-3", True)
        assert (state.restarts, state.ended, state.ended_at) == (2, "OOMKilled", 1_796_036_400.0)
        assert (state.image, state.image_before) == ("vllm:0.11", "")
        # A roll-out: another ReplicaSet of the same Deployment, with pods of other names.
        new = a_pod("chat-n", image="vllm:0.12", labels={"pod-template-hash": "77f"})
        new["metadata"] |= {
            "ownerReferences": [{"name": "chat-77f"}],
            "creationTimestamp": "2026-12-01T10:00:00Z",
        }
        api.put(new)
        comes_to(finder, "chat-a", "chat-n")
        api.delete(old)
        comes_to(finder, "chat-n")
        state = finder.found[0].pod
        assert state is not None
        assert (state.image, state.image_before) == ("vllm:0.12", "vllm:0.11")
        assert state.image_changed_at == 1_796_119_200.0


def test_the_container_may_be_named(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(a_pod("chat-a"))
    with finding(api, tmp_path, container="proxy") as finder:
        comes_to(finder, "chat-a")
        state = finder.found[0].pod
        assert state is not None
        assert (state.image, state.restarts) == ("envoy:1", 7)


def test_a_list_of_many_pods_comes_in_pages(api: KubernetesApi, tmp_path: Path) -> None:
    api.page_pods = 2
    api.put(*[a_pod(f"chat-{number}") for number in range(5)])
    with finding(api, tmp_path) as finder:
        comes_to(finder, *[f"chat-{number}" for number in range(5)])
    assert [each.get("continue") for each in api.requests[:3]] == [None, "2", "4"]


def test_a_watch_that_is_cut_goes_on_where_it_was(api: KubernetesApi, tmp_path: Path) -> None:
    """From the last bookmark, too, when nothing else had been told for long; and nothing in between is missed."""
    api.put(a_pod("chat-a"))
    with finding(api, tmp_path) as finder:
        comes_to(finder, "chat-a")
        until(lambda: len(watches(api)) == 1)
        api.bookmark()
        api.cut()
        until(lambda: len(watches(api)) == 2)
        assert watches(api) == ["101", "1101"]
        api.put(a_pod("chat-b"))
        comes_to(finder, "chat-a", "chat-b")
        assert lists(api) == 1
        assert finder.looks.failures == 1


def test_where_the_api_has_forgotten_all_is_listed_again(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(a_pod("chat-a"), a_pod("chat-b"))
    with finding(api, tmp_path) as finder:
        comes_to(finder, "chat-a", "chat-b")
        until(lambda: watches(api))
        api.pods.pop("uid-chat-a")
        api.compact()
        comes_to(finder, "chat-b")
        api.put(a_pod("chat-c"))
        comes_to(finder, "chat-b", "chat-c")
    assert lists(api) == 2
    # That is how the API works, and nothing to be told.
    assert finder.looks.failures == 0


def test_an_answer_of_410_to_the_request_itself_is_the_same(api: KubernetesApi, tmp_path: Path) -> None:
    api.put(a_pod("chat-a"))
    refused: list[str] = []

    def gone(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
        if "watch" in asked and not refused:
            refused.append(asked["resourceVersion"])
            reply(handler, {"kind": "Status", "code": 410}, 410)
            return True
        return False

    api.wrong = gone
    with finding(api, tmp_path) as finder:
        until(lambda: lists(api) == 2)
        comes_to(finder, "chat-a")


def _forbidden(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    reply(handler, {"kind": "Status", "code": 403, "message": "pods is forbidden"}, 403)
    return True


def _cut_list(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(b'{"kind": "PodList", "items": [')
    handler.close_connection = True
    return True


def _no_json(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    handler.send_response(200)
    handler.send_header("Content-Length", "6")
    handler.end_headers()
    handler.wfile.write(b"<html>")
    return True


def _no_list(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    reply(handler, {"kind": "PodList", "metadata": {}})
    return True


def _drips(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for _ in range(100):
        chunk(handler, b" ")
        time.sleep(0.05)
    return True


def _silent(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    time.sleep(2)
    handler.close_connection = True
    return True


def _empty(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
    if "watch" in asked:
        return False
    reply(handler, {"kind": "PodList", "metadata": {"resourceVersion": "101"}, "items": []})
    return True


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (_forbidden, "HTTP 403: the service account may not read pods"),
        (_cut_list, "namespace llm: "),
        (_no_json, "an answer that is truncated, or not JSON"),
        (_no_list, "the answer is not a list of pods"),
        (_drips, "no complete list within 0.3 s"),
        (_silent, "timed out"),
        (_empty, "no pod with this label has been ready"),
    ],
)
def test_a_list_that_fails_keeps_the_pods_of_before_and_is_tried_again(
    api: KubernetesApi,
    tmp_path: Path,
    wrong: Callable[[BaseHTTPRequestHandler, Mapping[str, str]], bool],
    why: str,
) -> None:
    ledger = MemoryLedger()
    api.put(a_pod("chat-a"))
    with finding(api, tmp_path, ledger) as finder:
        comes_to(finder, "chat-a")
    api.wrong = wrong
    with finding(api, tmp_path, ledger, deadline_seconds=0.3) as finder:
        until(lambda: finder.error)
        assert why in finder.error
        assert names(finder) == ["chat-a"]
        assert "1 server of before stays watched" in finder.note
        assert "secret-token" not in finder.note
        api.wrong = None
        api.compact()
        comes_to(finder, "chat-a")


def test_an_empty_list_is_believed_after_a_reload(api: KubernetesApi, tmp_path: Path) -> None:
    ledger = MemoryLedger()
    api.put(a_pod("chat-a"))
    with finding(api, tmp_path, ledger) as finder:
        comes_to(finder, "chat-a")
    api.delete(a_pod("chat-a"))
    with finding(api, tmp_path, ledger) as finder:
        until(lambda: finder.error)
        assert names(finder) == ["chat-a"]
        finder.hurry(takes_empty=True)
        comes_to(finder)


def test_several_namespaces_are_followed_each_by_itself(api: KubernetesApi, tmp_path: Path) -> None:
    """One that may not be read keeps its servers and costs the others nothing."""
    ledger = MemoryLedger()
    other = a_pod("chat-a", "127.9.0.2")
    other["metadata"] |= {"namespace": "other", "uid": "uid-other"}
    api.put(a_pod("chat-a"), other)
    forbidden = threading.Event()

    def elsewhere(handler: BaseHTTPRequestHandler, asked: Mapping[str, str]) -> bool:
        return "/namespaces/other/" in handler.path and forbidden.is_set() and _forbidden(handler, asked)

    api.wrong = elsewhere
    with finding(api, tmp_path, ledger, namespaces=["llm", "other"]) as finder:
        comes_to(finder, "chat-a.llm", "chat-a.other")
    forbidden.set()
    api.put(a_pod("chat-b"))
    with finding(api, tmp_path, ledger, namespaces=["llm", "other"]) as finder:
        until(lambda: names(finder) == ["chat-a.llm", "chat-a.other", "chat-b.llm"])
        assert "namespace other: HTTP 403" in finder.error
        assert "namespace llm" not in finder.error


def test_without_a_way_to_the_api_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    finder = PodFinder(KubernetesDiscoverySettings.model_validate({"selector": "app=vllm"}), MemoryLedger())
    finder.look()
    assert "run in a pod with a service account, or set kubeconfig_file" in finder.note
    (tmp_path / "bad").write_text("{}")
    given = {"selector": "app=vllm", "kubeconfig_file": str(tmp_path / "bad")}
    finder = PodFinder(KubernetesDiscoverySettings.model_validate(given), MemoryLedger())
    finder.look()
    assert "cannot reach the Kubernetes API" in finder.note
