"""Clients that break off, lie, dawdle or talk something else leave no stack trace, and keep nothing from working."""

import json
import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import trustme

from tests.faults.test_f87_f93_process import Process, serve
from tests.lives.test_restarts import vllm_page
from tests.pagers import Pager
from tests.servers import Server, answer, serving

HEAD = b"POST /alertmanager HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAID = [
    b"",
    b"\0" * 100,
    b"\xff\xfe\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nHo",
    b"GET \xff\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /%ff%00%0d%0a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET http:// HTTP/1.1\r\nHost: [::1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: \xff\r\nAuthorization: \xff\r\nCookie: \xff\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000,
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ),
    GET % b"/metrics" * 50,
    GET % b"/diagnose?target=%ff&format=text" * 50,
    HEAD + b"Content-Length: 1000\r\n\r\n{",
    HEAD + b"Content-Length: 5\r\n\r\n{\xff\xff\xff}",
    HEAD + b"Content-Length: -5\r\n\r\n{}",
    HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}",
    HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    HEAD + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    CHUNKED + b"5\r\n{\r\n",
    CHUNKED + b"zz\r\n{}\r\n",
    CHUNKED + b"ffffffffffffffffff\r\n{}\r\n",
    CHUNKED + b"2\r\n{}\r\n0\r\nX",
    HEAD + b"Content-Length: 70000\r\n\r\n" + b'{"alerts":' + b"[" * 69_990,
    HEAD + b"Content-Length: 2000000\r\n\r\n" + b" " * 1_500_000,
]


def speak(address: tuple[str, int], said: bytes, resets: bool, listens: bool) -> None:
    with suppress(OSError), socket.create_connection(address, timeout=5) as peer:
        if resets:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(said)
        if listens:
            peer.shutdown(socket.SHUT_WR)
            peer.recv(10)


def speak_to(process: Process) -> None:
    parts = urlsplit(process.address)
    address = (parts.hostname or "", parts.port or 0)
    ways = [(said, resets, listens) for said in SAID for resets in (False, True) for listens in (False, True)]
    with ThreadPoolExecutor(16) as clients:
        list(clients.map(lambda way: speak(address, *way), ways))


def assert_quiet(process: Process) -> None:
    assert process.end(signal.SIGTERM)[0] == 0
    assert "Traceback" not in process.text
    assert "level=error" not in process.text


def test_no_client_leaves_a_stack_trace(tmp_path: Path, rules: Path) -> None:
    with serve(tmp_path, rules, "--target", "http://127.0.0.1:9/metrics") as process:
        speak_to(process)
        assert process.get("/healthz").status_code == 200
        assert_quiet(process)


def own_tls(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    return {
        "WATCHDOG_WEB__TLS_CERT_FILE": str(tmp_path / "own.pem"),
        "WATCHDOG_WEB__TLS_KEY_FILE": str(tmp_path / "own.pem"),
    }


def address_of(process: Process) -> tuple[str, int]:
    process.wait_for("address=")
    parts = urlsplit(process.text.partition("address=")[2].split()[0])
    return parts.hostname or "", parts.port or 0


def test_no_client_leaves_a_stack_trace_over_tls(tmp_path: Path, rules: Path) -> None:
    with serve(tmp_path, rules, "--target", "http://127.0.0.1:9/metrics", **own_tls(tmp_path)) as process:
        address = address_of(process)
        with ThreadPoolExecutor(16) as clients:
            list(clients.map(lambda said: speak(address, said, resets=True, listens=False), SAID))
            list(clients.map(lambda said: speak(address, said, resets=False, listens=True), SAID))
        assert_quiet(process)


# Few files may be open, and more clients than that hold on to their connections.

FEW_FILES = ("sh", "-c", 'ulimit -n 300; exec "$@"', "sh")
DAWDLERS = 600
HALF_SAID = [b"", b"GET /healthz HTTP/1.1\r\nHo", HEAD + b"Content-Length: 1000\r\n\r\n{", GET % b"/healthz"]


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
def test_clients_that_dawdle_keep_nothing_from_working(tmp_path: Path, is_tls: bool) -> None:
    page = vllm_page(0.0).encode()
    with ExitStack() as stack:
        pager = stack.enter_context(Pager())
        server = stack.enter_context(Server(serving(answer(page, "200 OK", "Content-Type: text/plain"))))
        environment = {
            "WATCHDOG_RULES__SHIPPED": "true",
            "WATCHDOG_RULES__DIRECTORIES": "[]",
            "WATCHDOG_ALERTMANAGER__URLS": json.dumps([pager.url]),
            "WATCHDOG_WEB__RELOAD_ENDPOINT": "true",
            "WATCHDOG_STATE__DIRECTORY": str(tmp_path / "state"),
            **(own_tls(tmp_path) if is_tls else {}),
        }
        process = stack.enter_context(
            serve(tmp_path, tmp_path, "--target", server.url, before=FEW_FILES, **environment)
        )
        address = address_of(process)
        url = f"{'https' if is_tls else 'http'}://{address[0]}:{address[1]}"
        for number in range(DAWDLERS):
            peer = stack.enter_context(socket.create_connection(address, timeout=5))
            with suppress(OSError):
                # Over TLS none of it is a handshake, and what is none at all is silence.
                peer.sendall(b"" if is_tls else HALF_SAID[number % len(HALF_SAID)])
        session = stack.enter_context(requests.Session())
        session.trust_env = False
        session.headers["Connection"] = "close"
        session.verify = str(tmp_path / "authority.pem")
        assert session.get(f"{url}/healthz", timeout=5).status_code == 200
        assert session.post(f"{url}/-/reload", timeout=10).status_code == 200
        assert len(list(Path(f"/proc/{process.process.pid}/fd").iterdir())) < 200
        if is_tls:
            server.close()
            pager.wait_until(lambda _: ("VllmTargetDown", "firing") in pager.page_log)
            assert session.get(f"{url}/healthz", timeout=5).status_code == 200
        assert process.end(signal.SIGTERM)[0] == 0
        assert "Traceback" not in process.text
        assert "level=error" not in process.text
