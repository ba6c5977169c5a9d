"""A loopback server that does to a client whatever its script says."""

import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


class Connection:
    """One client, as a script sees it; every wait ends when the server closes."""

    def __init__(self, peer: socket.socket, server: "Server") -> None:
        self.peer = peer
        self.server = server

    def read_request(self) -> bytes:
        """The next request, noted in the server's `requests`; raises EOFError at the end.

        Its body is read too: a connection closed over unread bytes is reset, not ended.
        """
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += self._part()
        head, _, body = seen.partition(b"\r\n\r\n")
        told = _LENGTH.search(head)
        missing = int(told[1]) - len(body) if told else 0
        while missing > 0:
            part = self._part()
            missing -= len(part)
            seen += part
        self.server.requests.append(seen.decode("latin-1"))
        return seen

    def _part(self) -> bytes:
        part = self.peer.recv(65536)
        if not part:
            raise EOFError
        return part

    def pause(self, seconds: float) -> None:
        """Wait, but not past the server's end."""
        if self.server.closing.wait(seconds):
            raise EOFError


Step = Callable[[Connection], None]
Script = Sequence[Step]


def request(connection: Connection) -> None:
    """Read the client's request."""
    connection.read_request()


def hang(connection: Connection) -> None:
    """Do nothing until the server closes."""
    connection.pause(600)


def reset(connection: Connection) -> None:
    """End the connection with a TCP reset."""
    connection.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.peer.close()


def wait_for_a_byte(connection: Connection) -> None:
    """Wait until the client has sent anything, and leave it unread."""
    connection.peer.recv(1, socket.MSG_PEEK)


def wait_for_client(connection: Connection) -> None:
    """Read until the client has closed its side."""
    with suppress(OSError):
        while connection.peer.recv(65536):
            pass


def wait(seconds: float) -> Step:
    """Make a step that waits."""
    return lambda connection: connection.pause(seconds)


def send(data: bytes) -> Step:
    """Make a step that sends."""
    return lambda connection: connection.peer.sendall(data)


def drip(data: bytes, every_seconds: float) -> Step:
    """Make a step that sends byte after byte with pauses."""

    def step(connection: Connection) -> None:
        for position in range(len(data)):
            connection.peer.sendall(data[position : position + 1])
            connection.pause(every_seconds)

    return step


def flood(data: bytes) -> Step:
    """Make a step that sends the same again and again until the client has had enough."""

    def step(connection: Connection) -> None:
        while not connection.server.closing.is_set():
            connection.peer.sendall(data)

    return step


def repeat(*steps: Step) -> Step:
    """Make a step that repeats others until the client leaves."""

    def step(connection: Connection) -> None:
        while True:
            for inner in steps:
                inner(connection)

    return step


def answer(body: bytes = b"", status: str = "200 OK", *headers: str, length: int | None = -1) -> bytes:
    """Build a response; `length` is announced, -1 for that of the body and None for none."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if length is not None:
        lines.append(f"Content-Length: {len(body) if length == -1 else length}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(*chunks: bytes, final: bool = True) -> bytes:
    """Build a chunked response; without `final` its end is missing."""
    parts = [f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks]
    head = answer(b"", "200 OK", "Transfer-Encoding: chunked", length=None)
    return head + b"".join(parts) + (b"0\r\n\r\n" if final else b"")


def serving(response: bytes) -> Script:
    """Script a server that answers every request alike."""
    return [repeat(request, send(response))]


class Server:
    """Listens on a free port; the n-th connection gets the n-th script, later ones the last."""

    def __init__(
        self, *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.requests: list[str] = []
        self.connections = 0
        self.closing = threading.Event()
        self._scripts = scripts
        self._tls = tls
        self._listener = socket.create_server((host, port), backlog=256)
        self.host, self.port = self._listener.getsockname()[:2]
        self._peers: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="server", daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """The URL of its metrics page."""
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}/metrics"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening, cut every connection and wait for every thread."""
        self.closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for peer in list(self._peers):
            with suppress(OSError):
                socket.socket.shutdown(peer, socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._play, args=(peer, script), name="server", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _play(self, plain: socket.socket, script: Script) -> None:
        peer = plain
        self._peers.add(peer)
        # What ends a script early is what the client did, and that is for the test to judge.
        with suppress(OSError, EOFError):
            try:
                if self._tls is not None:
                    peer = self._tls.wrap_socket(plain, server_side=True)
                    self._peers.add(peer)
                connection = Connection(peer, self)
                for step in script:
                    step(connection)
            finally:
                peer.close()
                plain.close()
                self._peers -= {peer, plain}


@contextmanager
def deaf_port() -> Iterator[int]:
    """Give a port whose queue is full: a further connection gets no answer, not even a refusal."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    """Give a port on which nothing listens: it is bound, so that nobody else takes it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
