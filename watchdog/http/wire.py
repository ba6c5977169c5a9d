"""A connection on which one deadline holds for all: the name, the connect, the handshake and every read."""

import io
import ipaddress
import socket
import ssl
import threading
import time
from contextlib import suppress
from enum import StrEnum
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import Any, ClassVar, cast

from requests import PreparedRequest, Session
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context, resolve_cert_reqs

# How often a name is looked up beside a connection that is kept, and how long that may take.
LOOK_AGAIN_SECONDS = 60.0
LOOK_BESIDE_SECONDS = 0.5

# As `socket.getaddrinfo` gives them: family, kind, protocol, canonical name, address.
Address = tuple[Any, Any, int, str, tuple[Any, ...]]


class Stage(StrEnum):
    """How far an exchange has come, in the words of a failure's message."""

    RESOLVING = "looking up the name"
    CONNECTING = "connecting"
    HANDSHAKE = "in the TLS handshake"
    WAITING = "waiting for the answer"
    READING = "reading it"


class Wire:
    """The state of one exchange at a time: its deadline, how far it has come, and the socket it uses.

    requests restarts its timeout at each read, so that a server which drips bytes holds it for ever.
    Here each read of the socket gets what is left of the whole: no timer is needed, and a body that was
    cut by the deadline cannot pass for a short one.
    """

    def __init__(self) -> None:
        self.stage = Stage.RESOLVING
        self.fresh = False
        self.received_bytes = 0
        self.addresses: list[Address] = []
        self.peer: str | None = None
        self.stopped = False
        # When the last connection was ready, its handshake included; monotonic seconds.
        self.connected_at: float | None = None
        self._socket: socket.socket | None = None
        self._lookup = _Lookup()
        self._server = ("", 0)
        self._is_resolved = False
        self._looked_up_at = float("-inf")
        self._ends_at = 0.0
        self._max_header_bytes = 0

    def begin(self, seconds: float, max_header_bytes: int) -> None:
        """Starts an exchange that has this many seconds from now on."""
        self.stage = Stage.RESOLVING
        self._ends_at = time.monotonic() + seconds
        self._max_header_bytes = max_header_bytes
        self._is_resolved = False
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Starts one request of the exchange, maybe the second, within the same deadline."""
        self.fresh = False
        self.received_bytes = 0

    def remaining_seconds(self) -> float:
        """Tells what is left; raises TimeoutError where nothing is, or where the exchange was stopped."""
        seconds = self._ends_at - time.monotonic()
        if seconds <= 0 or self.stopped:
            raise TimeoutError("the deadline has passed")
        return seconds

    def resolve(self, host: str, port: int) -> None:
        """Looks the name up; raises OSError (gaierror), UnicodeError or TimeoutError."""
        self.stage = Stage.RESOLVING
        self.addresses = self._lookup.addresses(host, port, self.remaining_seconds())
        self._looked_up_at = time.monotonic()
        self._is_resolved = True
        self.stage = Stage.WAITING

    def aim(self, host: str, port: int) -> None:
        """Says which server is meant: its name is looked up for a new connection.

        Beside one that is kept it is so once a minute, to follow a name that leads elsewhere while the old server goes
        on answering; a lookup that fails then says nothing of the server.
        """
        self._server = (host, port)
        self.stage = Stage.WAITING
        now = time.monotonic()
        if not self._keeps_connection or now - self._looked_up_at < LOOK_AGAIN_SECONDS:
            return
        self._looked_up_at = now
        with suppress(OSError, UnicodeError):
            seconds = min(self.remaining_seconds(), LOOK_BESIDE_SECONDS)
            self.addresses = self._lookup.addresses(host, port, seconds)

    @property
    def _keeps_connection(self) -> bool:
        return self._socket is not None and self._socket.fileno() >= 0

    @property
    def peer_is_current(self) -> bool:
        """Whether the name still leads to the address that the last connection went to."""
        return self.peer is None or any(address[4][0] == self.peer for address in self.addresses)

    def connect(self) -> socket.socket:
        """Connects to the first address that answers; the socket is armed for a handshake to follow."""
        if not self._is_resolved:
            self.resolve(*self._server)
        self.stage = Stage.CONNECTING
        self.fresh = True
        connection = self._first_that_answers()
        try:
            self.arm(connection)
        except TimeoutError:
            connection.close()
            raise
        return connection

    def _first_that_answers(self) -> socket.socket:
        """Tries the addresses in turn; each gets an equal part of what is left."""
        failure: OSError = OSError("the name has no address")
        for position, (family, kind, protocol, _, address) in enumerate(self.addresses):
            share_seconds = self.remaining_seconds() / (len(self.addresses) - position)
            try:
                connection = _connected(socket.socket(family, kind, protocol), address, share_seconds)
            except OSError as error:
                failure = error
                continue
            self.peer = str(address[0])
            return connection
        raise failure

    def arm(self, connection: socket.socket) -> None:
        """Gives the next wait on the socket what is left of the whole."""
        connection.settimeout(self.remaining_seconds())
        self._socket = connection

    def count(self, size_bytes: int) -> None:
        """Counts what was received; raises HTTPException where a header does not end."""
        self.received_bytes += size_bytes
        if self.stage is Stage.WAITING and self.received_bytes > self._max_header_bytes:
            raise HTTPException(f"a header of more than {self._max_header_bytes} bytes")

    def stop(self) -> None:
        """Ends the exchange under way from another thread, and refuses further ones."""
        self.stopped = True
        self._lookup.stop()
        connection = self._socket
        if connection is not None:
            try:
                # The plain method: that of a TLS socket would pull its state from under the reader.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError:
                return  # closed already


def _connected(connection: socket.socket, address: tuple[Any, ...], seconds: float) -> socket.socket:
    try:
        connection.settimeout(seconds)
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connection.close()
        raise
    return connection


class _Lookup:
    """Looks names up in a thread of its own, as the system's resolver knows no deadline.

    There is one such thread at most: a lookup that outlives its deadline is waited for again the next time.
    """

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._found: list[Address] = []
        self._error: Exception | None = None
        self._stopped = False

    def addresses(self, host: str, port: int, seconds: float) -> list[Address]:
        if _is_address(host):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        if self._thread is None:
            self._done.clear()
            self._thread = threading.Thread(target=self._look_up, args=(host, port), daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                self._thread = None
                raise
        if not self._done.wait(seconds) or self._stopped:
            raise TimeoutError("the name was not resolved in time")
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        return self._found

    def stop(self) -> None:
        self._stopped = True
        self._done.set()

    def _look_up(self, host: str, port: int) -> None:
        try:
            self._found, self._error = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), None
        except (OSError, UnicodeError) as error:
            self._error = error
        self._done.set()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class _Reader(io.RawIOBase):
    """Reads a socket so that every single wait ends with the exchange's deadline."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket, wire: Wire) -> None:
        self._raw = raw
        self._connection = connection
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._wire.arm(self._connection)
        size: int | None = self._raw.readinto(buffer)
        self._wire.count(size or 0)
        return size

    def close(self) -> None:
        # The raw reader lets go of the socket: its connection stays open until all have.
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """A response that is read within the deadline and whose header must be whole."""

    def __init__(self, connection: socket.socket, wire: Wire, method: str | None) -> None:
        super().__init__(connection, method=method)
        self._wire = wire
        raw: Any = self.fp.detach()
        self.fp = io.BufferedReader(_Reader(raw, connection, wire))

    def begin(self) -> None:
        try:
            super().begin()
            self._check_header(self.msg)
        except BaseException:
            # The library leaves it to the garbage collector where the server closed: an open file until then.
            self.close()
            raise
        self._wire.stage = Stage.READING

    @staticmethod
    def _check_header(message: HTTPMessage) -> None:
        if message.defects:
            raise HTTPException("a malformed header line")


class _Timed:
    """What both kinds of connection do alike; `wire` is set on a subclass made for one fetcher."""

    wire: ClassVar[Wire]
    sock: Any

    def _new_conn(self) -> socket.socket:
        connection = self.wire.connect()
        self.wire.stage = Stage.HANDSHAKE
        return connection

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.wire.connected_at = time.monotonic()
        self.wire.stage = Stage.WAITING

    def send(self, data: Any) -> None:
        if self.sock is not None:
            self.wire.arm(self.sock)
        super().send(data)  # type: ignore[misc]

    def response_class(self, connection: socket.socket, *, method: str | None = None) -> _Response:
        return _Response(connection, self.wire, method)


class _PlainConnection(_Timed, HTTPConnection):  # type: ignore[misc]
    pass


class _TlsSocket(ssl.SSLSocket):
    """Gives the handshake what is left of the deadline, after certificates were loaded; made for one fetcher."""

    wire: ClassVar[Wire]

    def do_handshake(self, block: bool = False) -> None:
        self.wire.arm(self)
        super().do_handshake(block)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        # Used before the handshake only, to see whether the peer is gone; the library then forgets to close.
        try:
            return super().recv(buflen, flags)
        except OSError:
            self.close()
            raise


class _TlsConnection(_Timed, HTTPSConnection):  # type: ignore[misc]
    socket_class: ClassVar[type[_TlsSocket]]

    def connect(self) -> None:
        self.ssl_context = create_urllib3_context(cert_reqs=resolve_cert_reqs(self.cert_reqs))
        self.ssl_context.sslsocket_class = self.socket_class
        super().connect()


class EagerPool:
    """Connects before it sends, as the library takes a reset while connecting for one while sending.

    It also does without the library's warning at each request: who asked not to verify a certificate knows.
    """

    def _validate_conn(self, conn: Any) -> None:
        if conn.is_closed:
            conn.connect()

    def lend(self) -> HTTPConnection:
        """The connection that is kept, or a closed one where there is none.

        One that the server has closed, or on which it has sent what nobody asked for, is closed first.
        """
        lent: HTTPConnection = self._get_conn()  # type: ignore[attr-defined]
        return lent

    def take_back(self, connection: HTTPConnection) -> None:
        """Keeps it for the next request."""
        self._put_conn(connection)  # type: ignore[attr-defined]


class _PlainPool(EagerPool, HTTPConnectionPool):
    pass


class _TlsPool(EagerPool, HTTPSConnectionPool):
    pass


class Adapter(HTTPAdapter):
    """Makes requests use a wire; it keeps one connection at most."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ready: dict[str, EagerPool] = {}
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *arguments: Any, **keywords: Any) -> None:
        """Gives the pools connections of ours."""
        super().init_poolmanager(*arguments, **keywords)
        shared = {"wire": self._wire}
        plain = type("Plain", (_PlainConnection,), shared)
        tls_socket = type("TlsSocket", (_TlsSocket,), shared)
        tls = type("Tls", (_TlsConnection,), {**shared, "socket_class": tls_socket})
        self.poolmanager.pool_classes_by_scheme = {
            "http": type("PlainPool", (_PlainPool,), {"ConnectionCls": plain}),
            "https": type("TlsPool", (_TlsPool,), {"ConnectionCls": tls}),
        }

    def pool(self, session: Session, request: PreparedRequest) -> EagerPool:
        """Where the connection to a request's server is kept, as `send` sets it up: once, not for each request."""
        server = str(request.url).partition("?")[0]
        pool = self._ready.get(server)
        if pool is None:
            pool = self._ready[server] = self._prepared(session, request)
        return pool

    def _prepared(self, session: Session, request: PreparedRequest) -> EagerPool:
        verify, certificate = session.verify, session.cert
        pool: Any = self.get_connection_with_tls_context(request, verify, cert=certificate)
        self.cert_verify(pool, str(request.url), verify, certificate)  # type: ignore[no-untyped-call]
        return cast("EagerPool", pool)

    def drop(self) -> None:
        """Closes the connection kept for the next exchange."""
        # The manager only lets go of its pools.
        ready, self._ready = self._ready, {}
        for pool in ready.values():
            pool.close()  # type: ignore[attr-defined]
        self.poolmanager.clear()

    def close(self) -> None:
        """Closes what is kept."""
        self.drop()
        super().close()
