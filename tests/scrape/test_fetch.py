"""A fetch that goes well, what is sent for it, and what is found out beside the page."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Connection, Server, answer, drip, hang, repeat, request, send, serving
from watchdog import __version__
from watchdog.http.endpoint import Endpoint
from watchdog.http.url import redact_url
from watchdog.model import Reason, ServerInfo
from watchdog.scrape.fetch import Fetcher, FetchLimits

PAGE = b"vllm:num_requests_running 1\n"


def fetcher_for(url: str, deadline_seconds: float = 5.0, **endpoint: Any) -> Fetcher:
    return Fetcher(Endpoint(url, **endpoint), FetchLimits(deadline_seconds))


def header(head: str, name: str) -> str | None:
    lines = [line.partition(": ") for line in head.split("\r\n")]
    values = [value for key, _, value in lines if key.lower() == name.lower()]
    assert len(values) < 2
    return values[0] if values else None


def test_a_page_comes_with_its_times_and_status() -> None:
    with Server(serving(answer(PAGE))) as server:
        fetcher = fetcher_for(server.url)
        scrape = fetcher.fetch(at=12.5, wall=1.8e9)
        fetcher.close()
    assert (scrape.at, scrape.wall, scrape.status, scrape.body) == (12.5, 1.8e9, 200, PAGE)
    assert scrape.failure is None
    assert 0.0 < scrape.took_seconds < 5.0


def test_what_is_asked_for() -> None:
    with Server(serving(answer(PAGE))) as server:
        fetcher = fetcher_for(server.url + "?name=a%20b&x=1", deadline_seconds=4.0)
        assert fetcher.fetch(0.0, 0.0).body == PAGE
        fetcher.close()
    [head] = server.requests
    assert head.startswith("GET /metrics?name=a%20b&x=1 HTTP/1.1\r\n")
    assert header(head, "Accept") == "text/plain;version=0.0.4"
    assert header(head, "Accept-Encoding") == "identity"
    assert header(head, "User-Agent") == f"vllm-watchdog/{__version__}"
    assert header(head, "X-Prometheus-Scrape-Timeout-Seconds") == "4"
    assert header(head, "Authorization") is None
    assert header(head, "Cookie") is None


def test_basic_authorization_comes_from_settings_or_the_url(tmp_path: Path) -> None:
    password_file = tmp_path / "password"
    password_file.write_text("s:cret \n")
    with Server(serving(answer(PAGE))) as server:
        in_url = server.url.replace("http://", "http://us%40er:p%3Aw@")
        fetchers = [
            fetcher_for(server.url, username="user", password_file=password_file),
            fetcher_for(server.url, username="user", password="given"),
            fetcher_for(server.url, username="user"),
            fetcher_for(in_url),
            fetcher_for(in_url, bearer_token_file=password_file.with_name("token")),
        ]
        password_file.with_name("token").write_text("token")
        for fetcher in fetchers:
            assert fetcher.fetch(0.0, 0.0).failure is None
            fetcher.close()
    sent = [header(head, "Authorization") or "" for head in server.requests]
    expected = ["user:s:cret", "user:given", "user:", "us@er:p:w"]
    assert sent == [f"Basic {base64.b64encode(pair.encode()).decode()}" for pair in expected] + [
        "Bearer token"
    ]


def test_cookies_are_not_kept() -> None:
    with Server(serving(answer(PAGE, "200 OK", "Set-Cookie: sticky=1; Path=/"))) as server:
        fetcher = fetcher_for(server.url)
        for _ in range(2):
            fetcher.fetch(0.0, 0.0)
        fetcher.close()
    assert [header(head, "Cookie") for head in server.requests] == [None, None]


def by_path(**answers: bytes) -> Any:
    """Answer the last part of the path from `answers`, whatever else with 404."""

    def step(connection: Connection) -> None:
        path = connection.read_request().split(b" ")[1].decode()
        body = answers.get(path.rpartition("/")[2])
        connection.peer.sendall(answer(b"", "404 Not Found") if body is None else answer(body))

    return [repeat(step)]


def models(*entries: object) -> bytes:
    return json.dumps({"object": "list", "data": entries}).encode()


def server_info_of(
    script: Any, path: str = "/metrics", deadline_seconds: float = 5.0
) -> tuple[ServerInfo, list[str]]:
    with Server(script) as server:
        fetcher = fetcher_for(server.url.removesuffix("/metrics") + path, deadline_seconds)
        server_info = fetcher.server_info()
        assert fetcher.fetch(0.0, 0.0).server_info == server_info
        fetcher.close()
    return server_info, [head.split(" ")[1] for head in server.requests]


def test_facts_are_read_beside_the_page_and_come_with_every_scrape() -> None:
    script = by_path(
        version=b'{"version": "0.24.0"}',
        models=models({"id": "base", "max_model_len": 32768}, {"id": "lora", "max_model_len": None}),
        metrics=PAGE,
    )
    server_info, paths = server_info_of(script)
    assert server_info == ServerInfo("0.24.0", 32768, ("base", "lora"))
    assert paths == ["/version", "/v1/models", "/metrics"]


@pytest.mark.parametrize(
    ("path", "root"),
    [("/metrics/", ""), ("/serve/llm/metrics", "/serve/llm"), ("/metrics?token=1", ""), ("", "")],
)
def test_facts_are_asked_for_under_the_root_of_the_page(path: str, root: str) -> None:
    _, paths = server_info_of(by_path(), path)
    assert paths[:2] == [f"{root}/version", f"{root}/v1/models"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"version": 5, "data": 5}',
        b'{"version": "", "data": [5, null, {"id": 5, "max_model_len": true}, {"max_model_len": -1}]}',
        b'{"version": ["0.24"], "data": {"id": "m"}}',
        b"\xff\xfe",
        b'{"version": "' + b"x" * 2_000_000 + b'"}',
    ],
    ids=range(10),
)
def test_facts_of_a_server_that_tells_nonsense_are_unknown(body: bytes) -> None:
    server_info, _ = server_info_of(by_path(version=body, models=body))
    assert server_info == ServerInfo()


def test_facts_are_cut_to_what_can_be_shown() -> None:
    many = models(*({"id": f"m{number}"} for number in range(1000)))
    server_info, _ = server_info_of(
        by_path(version=b'{"version": "1\\n\\u001b[31m' + b"x" * 999 + b'"}', models=many)
    )
    assert server_info.version is not None
    assert server_info.version.isprintable()
    assert len(server_info.version) == 200
    assert len(server_info.models) == 200


def test_facts_are_not_fetched_from_another_host() -> None:
    with Server(serving(answer(b'{"version": "forged"}'))) as other:
        target = other.url.removesuffix("/metrics") + "/version"
        server_info, _ = server_info_of(serving(answer(b"", "302 Found", f"Location: {target}")))
        assert other.connections == 0
    assert server_info == ServerInfo()


def test_facts_are_not_waited_for_past_the_deadline() -> None:
    with Server([request, drip(answer(b'{"version": "late"}'), 0.1)]) as server:
        fetcher = fetcher_for(server.url, deadline_seconds=0.4)
        began = time.monotonic()
        assert fetcher.server_info() == ServerInfo()
        fetcher.close()
    assert time.monotonic() - began < 0.8


@pytest.mark.parametrize("tls", [False, True])
def test_close_ends_a_fetch_under_way(tls: bool) -> None:
    script = [hang] if tls else [request, send(answer(PAGE, length=None)), hang]
    with Server(script) as server:
        fetcher = fetcher_for(
            server.url.replace("http:", "https:") if tls else server.url, 2.0 if tls else 30.0
        )
        scrapes: list[Any] = []
        thread = threading.Thread(target=lambda: scrapes.append(fetcher.fetch(0.0, 0.0)))
        thread.start()
        time.sleep(0.2)
        fetcher.close()
        thread.join(5.0)
        assert not thread.is_alive()
        assert server.connections == 1
        # A page without an announced length must not look whole because its connection was cut.
        assert scrapes[0].failure.reason is Reason.TIMEOUT
        assert fetcher.fetch(0.0, 0.0).failure is not None


def test_a_fetch_never_raises() -> None:
    for url in [
        "",
        "/",
        "http://",
        "http:///metrics",
        "ftp://x/",
        "file:///etc/passwd",
        "http://[::1",
        "http://x:y/",
    ]:
        fetcher = fetcher_for(url)
        failure = fetcher.fetch(0.0, 0.0).failure
        fetcher.close()
        assert failure is not None
        assert failure.reason is Reason.PROTOCOL


def test_failures_do_not_tell_secrets() -> None:
    with Server([request]) as server:
        url = server.url.replace("http://", "http://user:hunter2@") + "?token=hunter3"
        for broken in [url, url.replace("http:", "https:"), url.replace("127.0.0.1", "host.invalid")]:
            fetcher = fetcher_for(broken, 1.0)
            failure = fetcher.fetch(0.0, 0.0).failure
            fetcher.close()
            assert failure is not None
            assert "hunter" not in failure.detail
            assert failure.detail


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:8000/metrics", "http://host:8000/metrics"),
        ("http://user:pw@host/metrics", "http://host/metrics"),
        ("https://a:b@c@[::1]:8000/m?x=1#f", "https://[::1]:8000/m"),
    ],
)
def test_redacted_urls(url: str, shown: str) -> None:
    assert redact_url(url).startswith(shown)
    for secret in ["pw", "a:b", "1#", "x=1"]:
        assert secret not in redact_url(url)
