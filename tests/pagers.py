"""Those who get alerts: plain HTTP servers that keep what came, and the incidents that are told to them."""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.waiting import WAIT_SECONDS
from watchdog.diagnosis.relations import lead_of
from watchdog.model import NO_LABELS, Evidence, Incident, Key, Remedy, Severity, State
from watchdog.notify.announcements import Ledger, MemoryLedger, memory_ledger
from watchdog.notify.notifiers import Notifiers
from watchdog.settings.model import (
    AlertmanagerSettings,
    ScrapeSettings,
    Settings,
    WebhookSettings,
    WebSettings,
)

WALL = 1_700_000_000.0


def incident(
    rule: str = "kv-pool-exhausted",
    state: State = State.FIRING,
    *,
    target: str = "gpu-0",
    model_name: str = "m",
    engine: str = "0",
    severity: Severity = Severity.CRITICAL,
    since: float = WALL,
    resolved_at: float | None = None,
    value: float = 0.98,
    symptoms: tuple[str, ...] = (),
    explained_by: tuple[str, ...] = (),
    unknown: bool = False,
) -> Incident:
    return Incident(
        key=Key(rule, target, model_name, engine),
        title="The KV cache is full",
        severity=severity,
        state=state,
        cause=f"12 requests wait while the KV cache is {value:.0%} full.",
        evidence=(Evidence("kv > 0.75", {"kv": value}, f"kv ({value}) > 0.75"),),
        remedies=(
            Remedy(
                "Limit the context",
                "--max-model-len",
                "8192",
                "The pool holds more.",
                "Longer ones are refused.",
            ),
            Remedy("Quantise the cache", "--kv-cache-dtype", "fp8", "It halves.", "A little quality."),
        ),
        unhelpful=(),
        runbook="https://runbooks.example/kv-pool-exhausted",
        pending_since=since - 5,
        firing_since=since if state is not State.PENDING else None,
        resolved_at=resolved_at,
        symptoms=symptoms,
        explained_by=explained_by,
        unknown=unknown,
    )


def resolved(resolved_at: float, rule: str = "kv-pool-exhausted", **others: Any) -> Incident:
    return incident(rule, State.RESOLVED, resolved_at=resolved_at, **others)


class Senders(Notifiers):
    """Notifiers that hear who leads each target as an incident book would say it, unless the test says it."""

    def observe(
        self,
        incidents: Iterable[Incident],
        at: float,
        wall: float,
        pageable: Collection[Key] | None = None,
        held: Collection[Key] = (),
        labels: Mapping[str, str] = NO_LABELS,
    ) -> None:
        standing = tuple(incidents)
        worth = leads(standing) if pageable is None else pageable
        super().observe(standing, at, wall, worth, held, labels)


class Ledgers(dict[str, Ledger]):
    """Ledgers by the name of who keeps them, for lives that follow each other: call it as a store's `ledger`."""

    def __missing__(self, sender: str) -> Ledger:
        self[sender] = MemoryLedger()
        return self[sender]

    def __call__(self, sender: str) -> Ledger:
        return self[sender]


def leads(incidents: Sequence[Incident]) -> set[Key]:
    firing = [one for one in incidents if one.state is State.FIRING]
    found = [
        lead_of([one for one in firing if one.key.target == name])
        for name in {one.key.target for one in firing}
    ]
    return {key for key in found if key is not None}


def senders(
    alertmanager: Mapping[str, Any] | None = None,
    webhooks: Sequence[Mapping[str, Any]] = (),
    *,
    external_url: str | None = "http://watchdog.example",
    dashboard_url: str = "",
    interval_seconds: float = 5.0,
    ledgers: Callable[[str], Ledger] = memory_ledger,
) -> Senders:
    """The senders of a configuration, with no heartbeat unless it is asked for."""
    settings = Settings().model_copy(
        update={
            "alertmanager": AlertmanagerSettings.model_validate({"heartbeat": False, **(alertmanager or {})}),
            "webhooks": [WebhookSettings.model_validate(each) for each in webhooks],
            "web": WebSettings.model_construct(external_url=external_url, dashboard_url=dashboard_url),
            "scrape": ScrapeSettings.model_construct(interval_seconds=interval_seconds),
        }
    )
    return Senders(settings, ledgers)


@dataclass(frozen=True)
class Post:
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    wait_seconds: float = 0.0
    location: str = ""


Judge = Callable[[Post], Reply]


class Inbox:
    """Keeps every POST and answers as `judge` says; can go down and come back on the same port.

    A post of no alert asks only for the time, which answers tell where `date` is set (unix seconds); it is not kept.
    """

    def __init__(self, judge: Judge | None = None, date: Callable[[], float] | None = None) -> None:
        self.date = date
        self.judge: Judge = judge or (lambda _: Reply())
        self.posts: list[Post] = []
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def up(self) -> None:
        self.closing.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def down(self) -> None:
        self.closing.set()
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def wait_for(self, count: int, seconds: float = WAIT_SECONDS) -> list[Post]:
        """The posts, once there are that many; fails where they do not come."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.posts) >= count, seconds), self.posts
            return list(self.posts)

    def wait_until(self, holds: Callable[[list[Post]], bool], seconds: float = WAIT_SECONDS) -> list[Post]:
        with self._changed:
            assert self._changed.wait_for(lambda: holds(self.posts), seconds), self.posts
            return list(self.posts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _keep(self, post: Post) -> Reply:
        with self._changed:
            self.posts.append(post)
            reply = self.judge(post)
            self._changed.notify_all()
        return reply

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                post = Post(self.path, dict(self.headers.items()), body, time.monotonic())
                reply = Reply() if body == b"[]" else inbox._keep(post)
                if reply.wait_seconds and inbox.closing.wait(reply.wait_seconds):
                    return
                self.send_response_only(reply.status)
                if inbox.date is not None:
                    self.send_header("Date", formatdate(inbox.date(), usegmt=True))
                self.send_header("Content-Type", reply.content_type)
                self.send_header("Content-Length", str(len(reply.body)))
                if reply.location:
                    self.send_header("Location", reply.location)
                self.end_headers()
                self.wfile.write(reply.body)

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def unix(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Pager(Inbox):
    """An Alertmanager in miniature: merges by labels, ends alerts at their end, and refuses bad ones with 400.

    `page_log` holds each alert's changes of state by its alertname and target, as a pager would show them.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, is_bad: Callable[[Any], bool] = lambda _: False
    ) -> None:
        self.alerts: dict[str, dict[str, Any]] = {}
        self.page_log: list[tuple[str, str]] = []
        self._clock = clock
        self._is_bad = is_bad
        super().__init__(self._take)

    def up(self) -> None:
        """Comes back; what it notified is known, of what has not been sent since it knows nothing."""
        for alert in self.alerts.values():
            alert["endsAt"] = "9999-01-01T00:00:00Z"
        super().up()

    def forget(self) -> None:
        """What a restart without its data does."""
        self.alerts.clear()

    def expire(self) -> None:
        """Ends what nobody has sent again in time."""
        now = self._clock()
        for alert in self.alerts.values():
            if alert["firing"] and unix(alert["endsAt"]) <= now:
                self._turn(alert, firing=False)

    def firing(self) -> set[str]:
        self.expire()
        return {alert["labels"]["alertname"] for alert in self.alerts.values() if alert["firing"]}

    def _take(self, post: Post) -> Reply:
        if post.path != "/api/v2/alerts":
            return Reply(404)
        self.expire()
        refused = 0
        for alert in post.json:
            if self._is_bad(alert) or unix(alert["endsAt"]) < unix(alert["startsAt"]):
                refused += 1
            else:
                self._merge(alert)
        return Reply(400, b'{"code":400,"message":"bad"}') if refused else Reply()

    def _merge(self, alert: dict[str, Any]) -> None:
        labels = {name: value for name, value in alert["labels"].items() if value}
        identity = json.dumps(labels, sort_keys=True)
        firing = unix(alert["endsAt"]) > self._clock()
        known = self.alerts.get(identity)
        if known is None:
            known = self.alerts[identity] = {"firing": False}
        if known["firing"] and firing:
            alert["startsAt"] = min(alert["startsAt"], known["startsAt"])
        was_firing = known["firing"]
        known.update(alert, firing=was_firing)
        if firing != was_firing:
            self._turn(known, firing=firing)

    def _turn(self, alert: dict[str, Any], *, firing: bool) -> None:
        alert["firing"] = firing
        self.page_log.append((alert["labels"]["alertname"], "firing" if firing else "resolved"))


@contextmanager
def running(sender: Any, drain_seconds: float = 2.0) -> Iterator[Any]:
    """A sender whose threads run, and end with the test."""
    sender.run()
    try:
        yield sender
    finally:
        sender.stop(drain_seconds)
