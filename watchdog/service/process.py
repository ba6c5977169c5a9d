"""The process around the service: its socket, its web server's thread, its signals and its end."""

import asyncio
import errno
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Protocol, cast

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from watchdog.errors import ConfigError
from watchdog.service.door import Door
from watchdog.settings.model import WebSettings

# How often the main thread looks after clocks, files and the web server.
LOOK_SECONDS = 1.0
DRAIN_SECONDS = 5.0
# Long enough for a page that asks again and a Prometheus that scrapes every 15 s.
KEEP_ALIVE_SECONDS = 20
HEAD_SECONDS = 10.0
BODY_SECONDS = 10.0
# Beyond `limit_concurrency` a connection is answered 503, beyond this multiple of it another one gives way.
CONNECTIONS_PER_REQUEST = 2
BACKLOG = 512
# What must be answered however many clients dawdle: without it we would be restarted, or miss an alert.
PLACES_KEPT_FOR = frozenset({"/healthz", "/-/healthy", "/readyz", "/-/ready", "/-/reload", "/alertmanager"})

log = logging.getLogger(__name__)


class Serviced(Protocol):
    """What a process needs of the service it runs."""

    def start(self) -> None:
        """Begins to watch."""

    def look(self) -> None:
        """Called about every second from the main thread."""

    def reload(self) -> Sequence[str]:
        """Reads everything again; returns the faults."""

    def stop(self, drain_seconds: float) -> None:
        """Stops scraping and sends pending notifications."""


def listen(web: WebSettings) -> socket.socket:
    """A bound socket; raises ConfigError with a sentence where the address cannot be had."""
    try:
        infos = socket.getaddrinfo(web.host, web.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError([f"web.host: {web.host!r} is no address of this machine: {error}"]) from None
    family, kind, protocol, _, address = infos[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError([_why_not(web, error)]) from None
    return listener


def _why_not(web: WebSettings, error: OSError) -> str:
    where = f"{web.host}:{web.port}"
    if error.errno == errno.EADDRINUSE:
        return f"web.port: {where} is in use by another program; stop it or choose another with --port"
    if error.errno == errno.EACCES:
        return f"web.port: {where} may not be used by this user; choose a port above 1023 with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"web.host: {web.host} is no address of this machine"
    return f"web.port: cannot listen on {where}: {error.strerror}"


class PunctualProtocol(H11Protocol):
    """Closes a connection whose client takes its time over a request's head or body, or sends none at all.

    Without it, a few hundred connections that drip a byte now and then would use up `limit_concurrency`,
    and our own health check with it. Places are kept for that, and the client that dawdles longest gives way.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    opened_at = 0.0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # uvicorn would refuse before it knows what is asked for: we do so after.
        self._limit, self.limit_concurrency = self.limit_concurrency, None
        self._asked, self.app = self.app, self._admit

    async def _admit(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers, or says 503 where all places are taken and none of those kept is meant."""
        busy = self._limit is not None and max(len(self.connections), len(self.tasks)) >= self._limit
        refused = busy and scope["path"] not in PLACES_KEPT_FOR
        await (service_unavailable if refused else self._asked)(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stops waiting once a head is whole, and starts again with the first byte of the next."""
        super().data_received(data)
        if not self._is_idle:
            self._stop_waiting()
            self._await_body()
        elif self._head_timer is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the timer."""
        self._stop_waiting()
        self._stop_awaiting_body()
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def dawdles(self) -> bool:
        """Whether it is its client's turn: for a head, for the rest of a body, or for another request."""
        return self._is_idle or self._body_timer is not None

    @property
    def was_answered(self) -> bool:
        """Whether it rests between two requests."""
        return self.cycle is not None and self.cycle.response_complete

    def _await_body(self) -> None:
        """Begins to wait for the rest of a body, of which any byte may be long in coming."""
        if self.conn.their_state is not h11.SEND_BODY:
            self._stop_awaiting_body()
        elif self._body_timer is None:
            self._body_timer = self.loop.call_later(BODY_SECONDS, self.transport.abort)

    def _stop_awaiting_body(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class RestingServer(uvicorn.Server):
    """uvicorn that wakes once a second, for the date in its headers, and at once where it is to end.

    Its own loop looks ten times a second whether it is to: most of what an idle watchdog would cost.
    """

    def __init__(self, config: uvicorn.Config, places: Callable[[], int]) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends = asyncio.Event()
        self._places = places
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen, at a door of our own: uvicorn's lets in whoever comes."""
        await super().startup(sockets=[])
        self._door = Door(
            self._protocol,
            self._visitors,
            self._places,
            self.config.ssl,
            HEAD_SECONDS,
        )
        [listener] = sockets or []
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._door.accept(listener))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets nobody in any more, and lets those inside have their answers."""
        if self._accepting is not None:
            self._accepting.cancel()
            with suppress(asyncio.CancelledError):
                await self._accepting
        self._door.close()
        for visitor in self._visitors():
            if visitor.dawdles and not visitor.was_answered:
                # What it has half said would be waited for, and told as an error.
                visitor.transport.abort()
        await super().shutdown(sockets)

    def _visitors(self) -> Sequence[PunctualProtocol]:
        return tuple(cast("Iterable[PunctualProtocol]", self.server_state.connections))

    def _protocol(self) -> PunctualProtocol:
        return PunctualProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def main_loop(self) -> None:
        """Rests until it is to end."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), LOOK_SECONDS)

    def end(self) -> None:
        """Has it end, from another thread."""
        self.should_exit = True
        if self._loop is not None:
            # A loop that has ended already has nothing to be woken from.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ends.set)


class WebServer:
    """uvicorn in a thread of its own: no request ever waits for a scrape, and no scrape for a request."""

    def __init__(
        self,
        app: FastAPI,
        web: WebSettings,
        listener: socket.socket,
        places: Callable[[int], int] = lambda wanted: wanted,
    ) -> None:
        """`places` says how many of the wanted connections there may be."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=PunctualProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            limit_concurrency=web.limit_concurrency,
            ssl_certfile=web.tls_cert_file,
            ssl_keyfile=web.tls_key_file,
        )
        try:
            config.load()
        except (OSError, ValueError) as error:
            listener.close()
            raise ConfigError([f"web.tls_cert_file: cannot be used: {error}"]) from None
        wanted = CONNECTIONS_PER_REQUEST * web.limit_concurrency
        self._server = RestingServer(config, lambda: places(wanted))
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it still answers."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Ends open requests within a second or so."""
        self._server.end()
        self._thread.join(3.0)
        with suppress(OSError):
            self._listener.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])


class Signals:
    """What the operating system signalled; handlers only note it, the main thread acts.

    A second SIGTERM or SIGINT ends the process at once: somebody is in a hurry. SIGHUPs that come while one
    is being obeyed are one. Handlers write to a pipe: a lock (as a threading.Event has) may be held by the very
    thread that a handler interrupts, which then waits for itself for ever.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self.stopping: int | None = None
        self._reload_wanted = False

    def install(self) -> None:
        """Takes over the process's signals; to be called in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)

    def wait(self, seconds: float) -> None:
        """Returns at the next signal, or after so many seconds."""
        ready, _, _ = select.select([self._reader], [], [], seconds)
        if ready:
            os.read(self._reader, 4096)

    def take_reload(self) -> bool:
        """Whether a reload was asked for since this was last called."""
        wanted, self._reload_wanted = self._reload_wanted, False
        return wanted

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if self.stopping is not None:
            os._exit(128 + number)
        self.stopping = number
        self._wake()

    def _reload(self, _number: int, _frame: FrameType | None) -> None:
        self._reload_wanted = True
        self._wake()

    def _wake(self) -> None:
        # A full pipe wakes just as well.
        with suppress(OSError):
            os.write(self._writer, b"\0")


def run(service: Serviced, web_server: WebServer, signals: Signals, on_start: Callable[[], None]) -> int:
    """Serves until stopped; returns the exit code: 0 when stopped, 1 when the web server died."""
    service.start()
    web_server.start()
    on_start()
    while signals.stopping is None and web_server.alive:
        signals.wait(LOOK_SECONDS)
        if signals.take_reload():
            service.reload()
        service.look()
    log.info("stopping", extra={"signal": signals.stopping or "none"})
    began = time.monotonic()
    service.stop(DRAIN_SECONDS)
    web_server.stop()
    log.info("stopped", extra={"seconds": round(time.monotonic() - began, 2)})
    return 0 if signals.stopping is not None else 1
