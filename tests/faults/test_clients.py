"""Clients that break off, lie or talk something else: none of them leaves a stack trace in the log."""

import signal
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import trustme

from tests.faults.test_f87_f93_process import Process, serve

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


def test_no_client_leaves_a_stack_trace_over_tls(tmp_path: Path, rules: Path) -> None:
    certificate = trustme.CA().issue_cert("127.0.0.1")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    tls = {
        "WATCHDOG_WEB__TLS_CERT_FILE": str(tmp_path / "own.pem"),
        "WATCHDOG_WEB__TLS_KEY_FILE": str(tmp_path / "own.pem"),
    }
    with serve(tmp_path, rules, "--target", "http://127.0.0.1:9/metrics", **tls) as process:
        process.wait_for("address=")
        parts = urlsplit(process.text.partition("address=")[2].split()[0])
        address = (parts.hostname or "", parts.port or 0)
        with ThreadPoolExecutor(16) as clients:
            list(clients.map(lambda said: speak(address, said, resets=True, listens=False), SAID))
            list(clients.map(lambda said: speak(address, said, resets=False, listens=True), SAID))
        assert_quiet(process)
