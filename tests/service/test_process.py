"""The process's own web server: whom it hangs up on, and that nobody can use it up."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import requests
import trustme
from fastapi import FastAPI, Request

from tests.waiting import until
from watchdog.errors import ConfigError
from watchdog.service import process
from watchdog.service.process import WebServer, listen
from watchdog.settings.model import WebSettings

HEAD_SECONDS = 0.3


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that has little patience and few places."""
    monkeypatch.setattr(process, "HEAD_SECONDS", HEAD_SECONDS)
    monkeypatch.setattr(process, "BODY_SECONDS", 5 * HEAD_SECONDS)
    app = FastAPI()
    app.get("/")(lambda: "well")
    app.get("/healthz")(lambda: "alive")
    app.post("/alertmanager")(taken)
    web = WebSettings(port=0, limit_concurrency=5)
    listener = listen(web)
    server = WebServer(app, web, listener)
    number = listener.getsockname()[1]
    server.start()
    yield number
    server.stop()
    assert not server.alive


async def taken(request: Request) -> int:
    return len(await request.body())


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def is_closed_within(peer: socket.socket, seconds: float) -> bool:
    peer.settimeout(seconds)
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_client_that_sends_nothing_is_hung_up_on(port: int) -> None:
    with connect(port) as peer:
        assert is_closed_within(peer, 10 * HEAD_SECONDS)


def test_a_client_that_never_shakes_hands_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "HEAD_SECONDS", HEAD_SECONDS)
    own = tmp_path / "own.pem"
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(own))
    web = WebSettings(port=0, tls_cert_file=own, tls_key_file=own)
    listener = listen(web)
    number = listener.getsockname()[1]
    server = WebServer(FastAPI(), web, listener)
    server.start()
    try:
        with connect(number) as silent, connect(number) as half:
            half.sendall(b"\x16\x03\x01")
            assert is_closed_within(silent, 20)
            assert is_closed_within(half, 20)
    finally:
        server.stop()


def test_a_client_that_drips_its_head_is_hung_up_on(port: int) -> None:
    with connect(port) as peer:
        ends_at = time.monotonic() + 20 * HEAD_SECONDS
        while not is_closed_within(peer, HEAD_SECONDS / 5):
            assert time.monotonic() < ends_at
            with suppress(OSError):
                peer.sendall(b"G")


def test_a_client_that_drips_its_second_head_is_hung_up_on_too(port: int) -> None:
    with connect(port) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while b'"well"' not in received:
            received += peer.recv(65536)
        time.sleep(2 * HEAD_SECONDS)  # between two requests it may rest
        peer.sendall(b"GET")
        assert is_closed_within(peer, 10 * HEAD_SECONDS)


def test_a_client_in_time_is_answered_again_and_again(port: int) -> None:
    with requests.Session() as session:
        for _ in range(3):
            assert session.get(f"http://127.0.0.1:{port}/", timeout=5).json() == "well"
            time.sleep(1.5 * HEAD_SECONDS)


def test_silent_clients_use_it_up_for_a_moment_only(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(port))
        ends_at = time.monotonic() + 20 * HEAD_SECONDS
        while True:
            try:
                if requests.get(f"http://127.0.0.1:{port}/", timeout=5).status_code == 200:
                    break
            except requests.RequestException:
                pass
            assert time.monotonic() < ends_at
            time.sleep(0.05)


HALF_A_BODY = b"POST /alertmanager HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"


def test_a_client_that_drips_its_body_is_hung_up_on(port: int) -> None:
    with connect(port) as peer:
        peer.sendall(HALF_A_BODY)
        ends_at = time.monotonic() + 50 * HEAD_SECONDS
        while not is_closed_within(peer, HEAD_SECONDS):
            assert time.monotonic() < ends_at
            with suppress(OSError):
                peer.sendall(b"")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX-Slow: ", HALF_A_BODY])
def test_health_and_the_sender_of_alerts_are_answered_however_many_dawdle(port: int, said: bytes) -> None:
    with ExitStack() as stack:
        for _ in range(30):
            peer = stack.enter_context(connect(port))
            with suppress(OSError):
                peer.sendall(said)
            # A connection may be taken only after the oldest one has gone.
            assert requests.get(f"http://127.0.0.1:{port}/healthz", timeout=5).json() == "alive"
        assert requests.post(f"http://127.0.0.1:{port}/alertmanager", b"123", timeout=5).json() == 3


@pytest.mark.parametrize("host", ["no such host", "a" * 300, "host.invalid"])
def test_a_host_that_is_none_is_told_in_a_sentence(host: str) -> None:
    with pytest.raises(ConfigError, match=r"web\.host"):
        listen(WebSettings(host=host, port=0))


def test_it_listens_on_ipv6_as_well() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with listen(WebSettings(host="::1", port=0)) as listener:
        assert listener.family == socket.AF_INET6


def test_an_idle_server_wakes_seldom_and_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour between two looks: only a call can end it."""
    monkeypatch.setattr(process, "LOOK_SECONDS", 3600.0)
    web = WebSettings(port=0)
    server = WebServer(FastAPI(), web, listen(web))
    server.start()
    until(lambda: server._server.started)
    server.stop()
    assert not server.alive


def test_a_server_that_is_ended_before_it_runs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 3600.0)
    web = WebSettings(port=0)
    server = WebServer(FastAPI(), web, listen(web))
    server._server.end()
    server.start()
    until(lambda: not server.alive)
    server.stop()
