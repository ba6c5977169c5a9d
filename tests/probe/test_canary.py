"""The canary: what it asks, what it makes of an answer, how seldom it is sent, and what a verdict makes of it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pages import page
from tests.servers import Connection, Script, Server, answer, closed_port, hang, request, send
from tests.waiting import until
from tests.watching import lead, shipped_rules
from watchdog.http.endpoint import Endpoint
from watchdog.model import CanaryReading, Snapshot, Verdict
from watchdog.probe.canary import Canary
from watchdog.probe.completion import CompletionProbe, Outcome
from watchdog.scrape.fetch import Fetcher, FetchLimits
from watchdog.service.watch import Watch
from watchdog.settings.target import TargetSettings

TOKEN = answer(b'{"choices": [{"text": "2"}]}')


def probe_of(server: Server, key: Path | None = None) -> CompletionProbe:
    settings = TargetSettings.model_validate(
        {"url": server.url, "canary": {"enabled": True, **({"api_key_file": key} if key else {})}}
    )
    return CompletionProbe(settings.canary_endpoint())


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_it_asks_for_one_token_with_the_key_of_its_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame\n")
    bodies: list[bytes] = []

    def take(connection: Connection) -> None:
        head = connection.read_request()
        body = head.partition(b"\r\n\r\n")[2]
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            body += connection.peer.recv(65536)
        bodies.append(body)
        connection.peer.sendall(TOKEN)

    with Server([take]) as server:
        assert probe_of(server, key).ask("m", 5.0) is Outcome.ANSWERED
    [head] = server.requests
    assert head.startswith("POST /v1/completions HTTP/1.1")
    assert "Authorization: Bearer sesame" in head
    asked = json.loads(bodies[0])
    assert (asked["model"], asked["max_tokens"]) == ("m", 1)


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([request, send(TOKEN)], Outcome.ANSWERED),
        ([request, hang], Outcome.LATE),
        ([request, send(answer(b"{}", "401 Unauthorized"))], Outcome.REFUSED),
        ([request, send(answer(b"{}", "500 Internal Server Error"))], Outcome.REFUSED),
    ],
)
def test_what_is_made_of_an_answer(script: Script, outcome: Outcome) -> None:
    with Server(script) as server:
        assert probe_of(server).ask("m", 0.4 if outcome is Outcome.LATE else 5.0) is outcome


def test_a_server_that_is_not_there_refuses() -> None:
    with closed_port() as port:
        probe = CompletionProbe(Endpoint(f"http://127.0.0.1:{port}/v1/completions"))
        assert probe.ask("m", 5.0) is Outcome.REFUSED


def test_it_is_sent_once_a_minute_and_counts_what_came() -> None:
    clock = Clock()
    with Server([request, send(TOKEN)]) as server:
        canary = Canary(probe_of(server), clock)
        assert canary.send("m")
        until(lambda: canary.outcomes["answered"] == 1)
        assert canary.reading == CanaryReading(answered_at=1000.0)
        clock.now += 59.0
        assert not canary.send("m")
        clock.now += 1.0
        assert canary.send("m")
        until(lambda: canary.outcomes["answered"] == 2)
        canary.close()
    assert canary.outcomes == {"answered": 2, "late": 0, "refused": 0}


def test_one_that_had_no_answer_waits_since_the_first() -> None:
    clock = Clock()
    with Server([request, hang]) as server:
        canary = Canary(probe_of(server), clock, deadline_seconds=0.2)
        canary.send("m")
        until(lambda: canary.outcomes["late"] == 1)
        clock.now += 60.0
        canary.send("m")
        assert canary.reading.waits_since == 1000.0
        canary.close()


def test_a_key_that_is_not_taken_says_nothing_of_the_engine() -> None:
    with Server([request, send(answer(b"{}", "401 Unauthorized"))]) as server:
        canary = Canary(probe_of(server), Clock())
        canary.send("m")
        until(lambda: canary.outcomes["refused"] == 1)
        assert canary.reading == CanaryReading()
        canary.close()


def test_closing_ends_what_is_under_way() -> None:
    with Server([request, hang]) as server:
        canary = Canary(probe_of(server), Clock(), deadline_seconds=600.0)
        canary.send("m")
        until(lambda: bool(server.requests))
        canary.close()


class Vllm:
    """A server whose engine ends a step with each completion it is sent, unless it is dead; `extra` is on its page."""

    def __init__(self, is_dead: bool = False, extra: str = "", moves: bool = False) -> None:
        self.tokens = 5.0
        self.completions = 0
        self._is_dead = is_dead
        self._extra = extra
        self._moves = moves
        self._lock = threading.Lock()

    def await_canary(self, canary: Canary, sent_at: float) -> None:
        """Waits until a canary that was sent then has come here, and has gone back where the engine lives."""
        if canary.reading.waits_since == sent_at:
            until(lambda: self.completions > sum(canary.outcomes.values()) or not canary.reading.waits_since)
        if not self._is_dead:
            until(lambda: canary.reading.waits_since is None)

    def __call__(self, connection: Connection) -> None:
        while True:
            path = connection.read_request().split()[1]
            if path == b"/metrics":
                connection.peer.sendall(answer(self._page()))
            elif path == b"/v1/completions":
                with self._lock:
                    self.completions += 1
                    self.tokens += 0 if self._is_dead else 1
                connection.pause(600.0 if self._is_dead else 0.0)
                connection.peer.sendall(TOKEN)
            else:
                connection.peer.sendall(answer(b"{}", "404 Not Found"))

    def _page(self) -> bytes:
        self.tokens += self._moves
        text = page(
            num_requests_running=0.0,
            num_requests_waiting=0.0,
            generation_tokens_total=self.tokens,
            iteration_tokens_total_count=self.tokens,
        )
        return (text + self._extra).encode()


@contextmanager
def watching(vllm: Vllm) -> Iterator[Callable[[int], Snapshot]]:
    """Takes a number of looks, five seconds apart on a clock of their own."""
    clock = Clock()
    with Server([vllm]) as server:
        settings = TargetSettings.model_validate({"url": server.url, "canary": {"enabled": True}})
        fetcher = Fetcher(settings.endpoint(), FetchLimits(2.0))
        watch = Watch(settings.target(), fetcher, shipped_rules(), lambda _: None, steady=clock, wall=clock)
        watch.canary = canary = Canary(CompletionProbe(settings.canary_endpoint()), clock)

        def look(times: int) -> Snapshot:
            for _ in range(times):
                clock.now += 5.0
                watch.cycle()
                vllm.await_canary(canary, clock.now)
            assert watch.snapshot is not None
            return watch.snapshot

        yield look
        watch.close()


def test_an_idle_engine_is_proven_to_live_and_is_asked_once_a_minute() -> None:
    vllm = Vllm()
    with watching(vllm) as look:
        look(4)
        assert vllm.completions == 1
        told = [look(1) for _ in range(36)]
    assert vllm.completions in {3, 4}
    assert {one.verdict for one in told} == {Verdict.HEALTHY}


def test_a_dead_engine_is_named_though_nothing_on_its_page_shows_it() -> None:
    vllm = Vllm(is_dead=True)
    with watching(vllm) as look:
        last = look(10)
        assert (lead(last), last.verdict) == ("engine-stalled", Verdict.CRITICAL)
        assert last.lead_incident is not None
        assert "The canary has waited" in last.lead_incident.cause


@pytest.mark.parametrize(
    "vllm",
    [
        Vllm(moves=True),
        Vllm(extra='vllm:engine_sleep_state{model_name="m",engine="0",sleep_state="awake"} 0.0\n'),
        Vllm(extra='vllm:rl_weight_update_operations_in_flight{model_name="m",engine="0"} 1.0\n'),
    ],
    ids=["busy", "asleep", "given other weights"],
)
def test_who_works_or_sleeps_is_not_asked(vllm: Vllm) -> None:
    with watching(vllm) as look:
        look(8)
    assert vllm.completions == 0
