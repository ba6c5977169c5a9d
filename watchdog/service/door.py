"""The door of the web server: takes connections in, and never more of them than there are places."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

_log = logging.getLogger(__name__)

# A peer that does not say goodbye within this is hung up on.
_GOODBYE_SECONDS = 2.0
# After the system refused a descriptor: one may be free again then.
_PAUSE_SECONDS = 0.5


class Visitor(Protocol):
    """A connection that has come in; `opened_at` is in the loop's time."""

    opened_at: float
    transport: asyncio.Transport

    @property
    def dawdles(self) -> bool:
        """Whether it is its client's turn."""

    @property
    def was_answered(self) -> bool:
        """Whether it rests between two requests."""


class Door:
    """Accepts from a socket while `accept` runs; where all places are taken the client slowest to speak gives way.

    A connection counts from its accept on: before its TLS handshake it holds a descriptor as well, and descriptors
    are what scrapes and alerts need. `visitors` are those that have come in, `places` how many there may be.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        visitors: Callable[[], Sequence[Visitor]],
        places: Callable[[], int],
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._make = make
        self._visitors = visitors
        self._places = places
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        # Those at the threshold: their sockets, and since when; the first came first.
        self._entering: dict[asyncio.Task[None], tuple[socket.socket, float]] = {}
        self._is_full = False

    async def accept(self, listener: socket.socket) -> None:
        """Lets clients in until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError as error:
                await self._wait_for_a_descriptor(error)
                continue
            self._admit(peer)
            # A crowd at the door must not keep those inside from being answered.
            await asyncio.sleep(0)

    def close(self) -> None:
        """Hangs up on those that are still at the threshold."""
        while self._entering:
            self._turn_away(next(iter(self._entering)))

    def _admit(self, peer: socket.socket) -> None:
        """Lets a client in; the one that has kept us waiting longest goes for it, or itself where none does."""
        inside = self._visitors()
        if len(inside) + len(self._entering) < self._places() or self._turn_one_out(inside):
            loop = asyncio.get_running_loop()
            entering = loop.create_task(self._let_in(peer))
            self._entering[entering] = (peer, loop.time())
            entering.add_done_callback(self._is_through)
        else:
            peer.close()

    def _turn_one_out(self, inside: Sequence[Visitor]) -> bool:
        """Whether there was one whose turn it is to speak; those that were answered before go last."""
        slow = [each for each in inside if each.dawdles and not each.transport.is_closing()]
        slowest = min(slow, key=lambda each: (each.was_answered, each.opened_at), default=None)
        first = next(iter(self._entering), None)
        if first is not None and (
            slowest is None or slowest.was_answered or self._entering[first][1] < slowest.opened_at
        ):
            self._turn_away(first)
            return True
        if slowest is None:
            return False
        slowest.transport.abort()
        return True

    def _turn_away(self, entering: asyncio.Task[None]) -> None:
        peer, _ = self._entering.pop(entering)
        # Its handshake ends with that, and its socket with its handshake, however far it is.
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    async def _let_in(self, peer: socket.socket) -> None:
        seconds: dict[str, float] = {}
        if self._tls is not None:
            seconds = {
                "ssl_handshake_timeout": self._handshake_seconds,
                "ssl_shutdown_timeout": _GOODBYE_SECONDS,
            }
        # A client that breaks off is no fault of ours.
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make, peer, ssl=self._tls, **seconds
            )

    def _is_through(self, entering: asyncio.Task[None]) -> None:
        self._entering.pop(entering, None)

    async def _wait_for_a_descriptor(self, error: OSError) -> None:
        if not self._is_full:
            _log.warning("connections_wait", extra={"why": error.strerror or str(error)})
        self._is_full = True
        self._turn_one_out(self._visitors())
        await asyncio.sleep(_PAUSE_SECONDS)
