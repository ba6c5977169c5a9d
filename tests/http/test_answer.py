"""An answer whose head is taken apart at once is the answer that the library reads."""

import socket
from http.client import HTTPException, HTTPResponse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.http.answer import Answering
from watchdog.http.wire import Wire

BODY = b"vllm:num_requests_running 1\n"
CHUNKED = b"1c\r\n" + BODY + b"\r\n0\r\n\r\n"
USUAL = ("content-type: text/plain", "Server: uvicorn", "date: Tue, 01 Dec 2026 16:00:00 GMT", "x_y-z:")
ODD = ("Content-Length: 28", "content-length: 28", "Content-Length: +28", "Content-Length: 1e1", "CONTENT-LENGTH:0028",
       "Transfer-Encoding: chunked", "transfer-encoding: CHUNKED", "Transfer-Encoding: gzip, chunked", " folded: 1",
       "a line without a colon", ": no name", "sp ace: 1", "Connection: close", "connection: keep-alive, Close",
       "Keep-Alive: timeout=5", "x: \xe9", "x:\t1\t", "Upgrade: h2c")  # fmt: skip
STATUS = (
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 ",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 503 Busy",
    "HTTP/1.1 200",
)


def read(kind: type[HTTPResponse], sent: bytes) -> tuple[object, ...] | str:
    """What is made of these bytes: status, reason, headers, body, whether the connection closes."""
    client, server = socket.socketpair()
    with client, server:
        server.sendall(sent)
        server.shutdown(socket.SHUT_WR)
        wire = Wire()
        wire.begin(5.0, 64 * 1024)
        try:
            answer = Answering(client, wire) if kind is Answering else kind(client, method="GET")
            answer.begin()
            known = {name.lower(): answer.headers.get(name) for name in answer.headers}
            told = (answer.status, answer.reason, known, answer.will_close, answer.length)
            return (*told, b"".join(iter(lambda: answer.read(100), b"")))
        except (HTTPException, ValueError) as error:
            return type(error).__name__
        finally:
            answer.close()


@given(
    st.sampled_from(STATUS),
    st.lists(st.sampled_from([*USUAL, *ODD]), unique_by=lambda line: line.partition(":")[0].lower(), max_size=6),
    st.sampled_from([BODY, CHUNKED, b"", BODY[:9], CHUNKED[:9]]),
)  # fmt: skip
def test_it_is_read_as_the_library_reads_it(status: str, lines: list[str], body: bytes) -> None:
    sent = "\r\n".join([status, *lines, "", ""]).encode("iso-8859-1") + body
    theirs, ours = read(HTTPResponse, sent), read(Answering, sent)
    # A line that is no header is passed over by the library, and refused here.
    if ours != "HTTPException":
        assert ours == theirs
    else:
        assert {"a line without a colon", " folded: 1", ": no name", "sp ace: 1"} & set(lines)


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_head_that_comes_in_parts_is_read_whole(cut: int) -> None:
    sent = b"HTTP/1.1 200 OK\r\ncontent-length: 28\r\ncontent-type: text/plain\r\n\r\n" + BODY
    client, server = socket.socketpair()
    with client, server:
        server.sendall(sent[:cut])
        wire = Wire()
        wire.begin(5.0, 64 * 1024)
        answer = Answering(client, wire)
        assert answer.fp.peek() == sent[:cut]
        server.sendall(sent[cut:])
        answer.begin()
        assert (answer.status, answer.length, answer.read(28), answer.isclosed()) == (200, 28, BODY, True)


def test_what_came_twice_is_joined() -> None:
    sent = b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\ncontent-length: 0\r\n\r\n"
    client, server = socket.socketpair()
    with client, server:
        server.sendall(sent)
        wire = Wire()
        wire.begin(5.0, 64 * 1024)
        answer = Answering(client, wire)
        answer.begin()
        assert answer.headers.get("A") == "1, 2"
        answer.close()
