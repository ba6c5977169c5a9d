"""The API on a loopback port, as `serve` runs it, and the plainest of clients."""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.a_service import NOW
from watchdog.service.process import WebServer, listen
from watchdog.settings.model import Settings, WebSettings
from watchdog.web.api import create_app
from watchdog.web.state import ServiceState

Served = TypeVar("Served", bound=ServiceState)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON, without the constants that JSON has not."""
        return json.loads(self.body, parse_constant=_refuse)

    @property
    def error(self) -> Any:
        """The error, which must be of the one shape."""
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"status", "reason", "message"}
        assert self.json["error"]["status"] == self.status
        return self.json["error"]


@dataclass(frozen=True)
class Site(Generic[Served]):
    """A running API; `context` is how a client trusts it where it speaks TLS."""

    port: int
    service: Served
    context: ssl.SSLContext | None = None

    def connection(self) -> http.client.HTTPConnection:
        """A connection for requests of one's own making."""
        if self.context is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=self.context)

    def ask(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """One request on a connection of its own; `Host` is localhost unless given."""
        connection = self.connection()
        given = {"Host": f"localhost:{self.port}", **(headers or {})}
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, fields, response.read())
        finally:
            connection.close()

    def post(self, path: str, value: object, headers: Mapping[str, str] | None = None) -> Answer:
        """A value as JSON."""
        fields = {"Content-Type": "application/json", **(headers or {})}
        return self.ask(path, "POST", fields, json.dumps(value).encode())


@contextmanager
def a_site(
    service: Served,
    settings: Settings | None = None,
    wall: Callable[[], float] = lambda: NOW,
    context: ssl.SSLContext | None = None,
) -> Iterator[Site[Served]]:
    """Serves until the block ends."""
    chosen = settings or Settings()
    web = chosen.web.model_copy(update={"port": 0})
    app = create_app(service, chosen, wall)
    listener = listen(web)
    server = WebServer(app, web, listener)
    port = listener.getsockname()[1]
    server.start()
    try:
        made = Site(port, service, context)
        _await(made)
        yield made
    finally:
        server.stop()


def web(**values: object) -> Settings:
    """Settings with these of the web server."""
    return Settings(web=WebSettings.model_validate(values))


def _await(site: Site[Any]) -> None:
    """Until the server's thread answers."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            site.ask("/healthz")
        except (ConnectionError, http.client.HTTPException):
            threading.Event().wait(0.01)
        else:
            return
    raise AssertionError("the server does not answer")


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
