"""One GET on the connection that is kept: what is written, and the answer as it is read.

A session, a pool and the library's own reading do for each page of each target what is the same for all of them, at
four times the cost of the exchange itself.
"""

import io
import socket
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse
from typing import Any

from requests import PreparedRequest

from watchdog.http.wire import EagerPool, Stage, Wire

# A page of vLLM in two reads; less than a head may have.
_BUFFER_BYTES = 32 * 1024
# Of requests that are written again; those with a deadline of their own are not.
_MOST_WRITTEN = 32
_GOOD = b"HTTP/1.1 200 "
_END_OF_HEAD = b"\r\n\r\n"


class Headers(dict[str, str]):
    """The headers of an answer, by their names in any case; what came twice is joined by a comma."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        for name, value in pairs:
            known = super().get(name.lower())
            self[name.lower()] = value if known is None else f"{known}, {value}"

    def get(self, name: str, default: Any = None) -> Any:
        """The value of one; the default where it did not come."""
        return super().get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name.lower() if isinstance(name, str) else name)


class _Source(io.RawIOBase):
    """Reads a socket so that every single wait ends with the exchange's deadline."""

    def __init__(self, connection: socket.socket, wire: Wire) -> None:
        self._connection = connection
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._wire.arm(self._connection)
        size = self._connection.recv_into(buffer)
        self._wire.count(size)
        return size

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What an answer is read from: the library asks a socket for it."""
        return io.BufferedReader(self, _BUFFER_BYTES)


class Answering(HTTPResponse):
    """An answer that is read within the deadline.

    The head that nearly every answer has is taken apart at once: for each page of each target the library would run a
    parser of mail. Whatever is unusual in it goes to the library.
    """

    def __init__(self, connection: socket.socket, wire: Wire) -> None:
        super().__init__(_Source(connection, wire), method="GET")  # type: ignore[arg-type]
        self._wire = wire

    headers: Headers  # type: ignore[assignment]

    def begin(self) -> None:
        """Reads the head; raises HTTPException for what is none."""
        if not self._begin_at_once():
            super().begin()
            if self.msg.defects:
                raise HTTPException("a malformed header line")
            self.headers = Headers(self.msg.items())
        self._wire.stage = Stage.READING

    @property
    def is_whole(self) -> bool:
        """Whether nothing of its body is missing, as far as its head says how long that is."""
        return not self.length

    def _begin_at_once(self) -> bool:
        """Takes a usual head from what has come; false, with nothing taken, where it is not whole or not usual."""
        come = self.fp.peek()
        end = come.find(_END_OF_HEAD)
        if end < 0 or not come.startswith(_GOOD):
            return False
        first, *lines = come[:end].decode("iso-8859-1").split("\r\n")
        pairs = [_pair(line) for line in lines]
        headers = Headers(pair for pair in pairs if pair is not None)
        if len(headers) < len(lines):
            return False
        length, encoding = headers.get("content-length"), headers.get("transfer-encoding", "").lower()
        if encoding not in ("", "chunked") or not (length is None or (length.isascii() and length.isdigit())):
            return False
        if length is not None and len(length) > 18:
            return False
        self.fp.read(end + len(_END_OF_HEAD))
        self.code = self.status = 200
        self.reason, self.version = first[len(_GOOD) :].strip(), 11
        self.msg = HTTPMessage()
        self.headers = headers
        self.chunked, self.chunk_left = bool(encoding), None
        self.length = None if encoding or length is None else int(length)
        closes = "close" in headers.get("connection", "").lower()
        self.will_close = closes or (self.length is None and not self.chunked)
        return True


def _pair(line: str) -> tuple[str, str] | None:
    """The name and the value of a header; None for a line that is no usual one."""
    name, colon, value = line.partition(":")
    usual = colon and name and name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return (name, value.strip(" \t")) if usual and value.isprintable() else None


class Requests:
    """The texts of requests, each written once by the library."""

    def __init__(self) -> None:
        self._written: dict[tuple[object, ...], bytes] = {}

    def text(self, connection: HTTPConnection, request: PreparedRequest, headers: Mapping[str, str]) -> bytes:
        """A request with further headers, for a connection to its server."""
        key = (request.url, *headers.items())
        written = self._written.get(key)
        if written is None:
            if len(self._written) >= _MOST_WRITTEN:
                self._written.clear()
            paper = _Paper(connection)
            paper.request("GET", request.path_url, headers={**request.headers, **headers})
            written = self._written[key] = paper.written
        return written


class _Paper(HTTPConnection):
    """A connection that keeps what the library would send."""

    def __init__(self, connection: HTTPConnection) -> None:
        super().__init__(connection.host, connection.port)
        self.default_port = connection.default_port
        self.written = b""

    def send(self, data: Any) -> None:
        self.written += data


class Exchange:
    """A request that is sent when it is made; `finish` it once its answer was read, or is of no use."""

    def __init__(
        self,
        pool: EagerPool,
        wire: Wire,
        requests: Requests,
        request: PreparedRequest,
        headers: Mapping[str, str],
    ) -> None:
        self._pool = pool
        self._connection = pool.lend()
        try:
            if self._connection.is_closed:
                # Before anything is sent, or a reset while connecting is taken for one while sending.
                self._connection.connect()
            self._connection.send(requests.text(self._connection, request, headers))
            self.answer = Answering(self._connection.sock, wire)
        except BaseException:
            self._connection.close()
            raise
        try:
            self.answer.begin()
        except BaseException:
            self.finish()
            raise

    def finish(self) -> None:
        """Keeps the connection where its answer was read whole and it may stay, else closes it."""
        answer = self.answer
        is_read = answer.isclosed() and not answer.length
        answer.close()
        if is_read and not answer.will_close:
            self._pool.take_back(self._connection)
        else:
            self._connection.close()
