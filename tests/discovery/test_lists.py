"""Servers from lists in Prometheus' form, in files and over HTTP: what counts, and what is kept where it fails."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server, answer, closed_port, request, send, serving, wait
from watchdog.discovery.lists import FileFinder, HttpFinder
from watchdog.notify.announcements import MemoryLedger
from watchdog.settings.discovery import FileDiscoverySettings, HttpDiscoverySettings


def files(*patterns: Path, **more: Any) -> FileFinder:
    settings = FileDiscoverySettings.model_validate({"files": list(map(str, patterns)), **more})
    return FileFinder(settings, MemoryLedger())


def a_list(url: str, **more: Any) -> HttpFinder:
    return HttpFinder(HttpDiscoverySettings.model_validate({"url": url, **more}), MemoryLedger())


def found(finder: FileFinder | HttpFinder) -> dict[str, str]:
    finder.look()
    return {each.name: each.url for each in finder.found}


def told(text: str, kind: str = "application/json; charset=utf-8") -> bytes:
    return answer(text.encode(), "200 OK", f"Content-Type: {kind}")


def test_json_and_yaml_files_name_servers_with_labels(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '[{"targets": ["vllm-0:8000", "[::1]:8001"], "labels": {"team": "chat"}}]'
    )
    (tmp_path / "b.yml").write_text("- targets: [vllm-2]\n- targets: ['vllm-3:1']\n  labels: {zone: a}\n")
    (tmp_path / "c.txt").write_text("not read")
    finder = files(tmp_path / "*.json", tmp_path / "*.yml")
    assert found(finder) == {
        "vllm-0:8000": "http://vllm-0:8000/metrics",
        "[::1]:8001": "http://[::1]:8001/metrics",
        "vllm-2": "http://vllm-2:8000/metrics",
        "vllm-3:1": "http://vllm-3:1/metrics",
    }
    assert [dict(each.labels) for each in finder.found] == [
        *({"team": "chat"}, {"team": "chat"}),
        *({}, {"zone": "a"}),
    ]


def test_labels_that_prometheus_keeps_for_itself_say_where_the_page_is(tmp_path: Path) -> None:
    labels = {"__scheme__": "https", "__metrics_path__": "/m", "job": "vllm", "pod": "chat-0", "zone": "a"}
    (tmp_path / "a.json").write_text(json.dumps([{"targets": ["h:1"], "labels": labels}]))
    finder = files(tmp_path / "a.json", name_label="pod", keep_labels=["zone", "none"])
    assert found(finder) == {"chat-0": "https://h:1/m"}
    assert dict(finder.found[0].labels) == {"zone": "a"}


def test_a_file_is_read_again_where_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"targets": ["a:1"]}]')
    finder = files(path)
    assert list(found(finder)) == ["a:1"]
    # As a ConfigMap is: another file takes its place, of the same size and perhaps the same time.
    other = tmp_path / "other"
    other.write_text('[{"targets": ["b:1"]}]')
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    other.replace(path)
    assert list(found(finder)) == ["b:1"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "must be a list of groups"),
        ("[", "no YAML"),
        ("a: 1", "must be a list of groups"),
        ("- targets: a:1", "group 1: `targets` must be a list of addresses"),
        ("- targets: [1]", "group 1: `targets` must be a list of addresses"),
        ("- targets: [a]\n  labels: {b: 1}", "group 1: `labels` must be a mapping of text to text"),
        ("[]", "an empty list, which is accepted only after a reload"),
        ("a: &a [*a]", "must be a list of groups"),
    ],
)
def test_what_is_bad_or_empty_keeps_the_servers_of_before_and_is_logged_once(
    tmp_path: Path, content: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "a.yaml"
    path.write_text("- targets: [a:1, b:1]")
    finder = files(path)
    finder.look()
    path.write_text(content)
    for _ in range(3):
        assert list(found(finder)) == ["a:1", "b:1"]
    assert why in finder.note
    assert "2 servers of before stay watched" in finder.note
    assert (finder.looks.is_well, finder.looks.failures, finder.looks.servers) == (False, 3, 2)
    path.write_text("- targets: [c:1]")
    assert list(found(finder)) == ["c:1"]
    assert finder.note == ""
    assert [each.message for each in caplog.records] == ["discovery_failed", "discovery_works_again"]


def test_of_several_files_a_bad_one_costs_its_own_servers_nothing_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    one, two = tmp_path / "1.json", tmp_path / "2.json"
    one.write_text('[{"targets": ["a:1"]}]')
    two.write_text('[{"targets": ["b:1"]}]')
    finder = files(tmp_path / "*.json")
    assert list(found(finder)) == ["a:1", "b:1"]
    one.write_text("{")
    two.write_text('[{"targets": ["c:1"]}]')
    assert list(found(finder)) == ["a:1", "c:1"]
    assert f"{one}: no JSON" in finder.note
    one.unlink()
    assert list(found(finder)) == ["c:1"]
    two.unlink()
    assert list(found(finder)) == ["c:1"]
    assert "no such file" in finder.note


def test_an_earlier_lifes_servers_are_known_until_the_first_answer(tmp_path: Path) -> None:
    path, ledger = tmp_path / "a.json", MemoryLedger()
    settings = FileDiscoverySettings.model_validate(str(path))
    path.write_text('[{"targets": ["a:1"], "labels": {"team": "chat"}}]')
    FileFinder(settings, ledger).look()
    path.unlink()
    finder = FileFinder(settings, ledger)
    assert [(each.name, dict(each.labels)) for each in finder.found] == [("a:1", {"team": "chat"})]
    assert list(found(finder)) == ["a:1"]
    path.write_text('[{"targets": ["b:1"]}]')
    assert list(found(finder)) == ["b:1"]
    assert [each.name for each in FileFinder(settings, ledger).found] == ["b:1"]


def test_an_empty_list_is_believed_where_people_have_said_that_they_mean_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"targets": ["a:1"]}]')
    finder = files(path)
    finder.look()
    path.write_text("[]")
    assert list(found(finder)) == ["a:1"]
    finder.hurry(takes_empty=True)
    assert found(finder) == {}
    assert finder.note == ""


def test_a_list_over_http_is_asked_for_as_prometheus_asks() -> None:
    with Server(
        serving(told('[{"targets": ["a:1"], "labels": {"team": "chat"}}, {"targets": []}]'))
    ) as server:
        finder = a_list(f"http://user:secret@127.0.0.1:{server.port}/sd?shard=1", refresh_seconds=30)
        assert found(finder) == {"a:1": "http://a:1/metrics"}
        assert finder.settings.name == f"127.0.0.1:{server.port}"
        asked = server.requests[0].lower()
    assert asked.startswith("get /sd?shard=1 ")
    assert "accept: application/json" in asked
    assert "authorization: basic" in asked
    assert "x-prometheus-refresh-interval-seconds: 30" in asked


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (told("[]"), "an empty list"),
        (told("[", "text/html"), "Content-Type text/html, where a list has application/json"),
        (told('{"targets": []}'), "must be a list of groups"),
        (answer(b"no", "503 Service Unavailable"), "HTTP 503 Service Unavailable"),
        (
            answer(b'[{"targets": ["b:1"]}]', "200 OK", "Content-Type: application/json", length=400),
            "the connection closed within",
        ),
        (answer(b"\xff\xfe", "200 OK", "Content-Type: application/json"), "no JSON"),
        (told("[" * 50_000), "no JSON"),
        (told('[{"targets": ["' + "b" * 70_000 + '"]}]'), "larger than 65536 bytes"),
    ],
)
def test_an_answer_that_is_of_no_use_keeps_the_servers_of_before(response: bytes, why: str) -> None:
    good = [
        request,
        send(
            answer(b'[{"targets": ["a:1"]}]', "200 OK", "Content-Type: application/json", "Connection: close")
        ),
    ]
    with Server(good, [request, send(response)]) as server:
        finder = a_list(f"http://127.0.0.1:{server.port}/", max_body_bytes=65536)
        assert list(found(finder)) == ["a:1"]
        assert list(found(finder)) == ["a:1"]
    assert why in finder.note


def test_a_list_that_is_slow_or_away_keeps_the_servers_of_before() -> None:
    with Server([request, wait(30)]) as server:
        finder = a_list(server.url, deadline_seconds=0.2)
        assert found(finder) == {}
        assert "no complete list within 0.2 s" in finder.note
        assert finder.answered
    with closed_port() as port:
        finder = a_list(f"http://user:secret@127.0.0.1:{port}/sd")
        assert found(finder) == {}
        assert "no connection" in finder.note
        assert "secret" not in finder.note
