"""The replay server: the page of the moment, round and round, and what stands beside it."""

from dataclasses import replace

import pytest
import requests

from watchdog.model import Failure, Reason, Scrape, ServerInfo, Target
from watchdog.replay.demo_server import CALM_SECONDS, RECORDING, ReplayServer, demo_server
from watchdog.replay.replay import replay
from watchdog.replay.rounds import carried_on, gains
from watchdog.rule.in_force import load_rules
from watchdog.scrape.recording import read
from watchdog.settings.model import RuleSettings


def scrapes(*walls: float) -> list[Scrape]:
    server_info = ServerInfo("0.32.0", 2048, ("tiny",))
    return [Scrape(wall, wall, 0.0, 200, f"page {wall:g}\n".encode(), None, server_info) for wall in walls]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def body_after(server: ReplayServer, clock: Clock, seconds: float) -> bytes:
    clock.now = 100.0 + seconds
    return server.current().body


def test_the_page_of_the_moment_is_served_at_the_recordings_pace() -> None:
    clock = Clock()
    server = ReplayServer(scrapes(1000, 1001, 1005), clock=clock)
    at = {
        0.0: b"page 1000\n",
        0.9: b"page 1000\n",
        1.0: b"page 1001\n",
        4.9: b"page 1001\n",
        5.0: b"page 1005\n",
    }
    assert {seconds: body_after(server, clock, seconds) for seconds in at} == at
    # The last page stands as long as the one before it, then all begins again.
    assert body_after(server, clock, 8.9) == b"page 1005\n"
    assert body_after(server, clock, 9.0) == b"page 1000\n"
    server.close()


def test_it_can_begin_in_the_middle_and_go_faster() -> None:
    clock = Clock()
    server = ReplayServer(scrapes(1000, 1010, 1020), begin_seconds=10, speed=2, clock=clock)
    assert body_after(server, clock, 0) == b"page 1010\n"
    assert body_after(server, clock, 5) == b"page 1020\n"
    assert body_after(server, clock, 10) == b"page 1010\n"
    server.close()


PAGE = b"""# TYPE done_total counter
done_total{a="b c"} %d.0
# TYPE running gauge
running 3.0
# TYPE took_seconds histogram
took_seconds_count %d.0
"""


def test_counters_go_on_from_round_to_round_and_gauges_do_not() -> None:
    gained = gains(PAGE % (5, 1), PAGE % (25, 2))
    assert carried_on(PAGE % (7, 1), gained, 0) == PAGE % (7, 1)
    assert carried_on(PAGE % (7, 1), gained, 3) == PAGE % (67, 4)


def test_a_recorded_restart_stays_one_in_each_round() -> None:
    assert gains(PAGE % (25, 2), PAGE % (5, 1)) == {}
    assert carried_on(PAGE % (7, 1), {}, 3) == PAGE % (7, 1)


def test_a_demo_that_is_left_running_has_its_one_cause_and_no_crash() -> None:
    clock = Clock()
    recording, recorded = read(RECORDING)
    pages = tuple(recorded)
    incident = next(phase for phase in recording.phases if phase.label == recording.name)
    server = ReplayServer(pages, incident.start - CALM_SECONDS - pages[0].wall, clock=clock)
    # Five rounds, a look every 5 s: four of them would be a crash loop.
    taken = []
    for step in range(int(server.round_seconds)):
        clock.now = 100.0 + 5 * step
        taken.append(replace(server.current(), at=clock.now, wall=pages[0].wall + 5 * step))
    server.close()
    rules = load_rules(RuleSettings())
    timeline = replay(Target("demo", server.url), taken, rules).timeline
    firing = {rule for moment in timeline for rule in moment.alarming}
    assert firing == {"kv-pool-exhausted", "queue-latency-high", "ttft-high", "e2e-high"}


def test_it_answers_as_vllm_does() -> None:
    with ReplayServer(scrapes(1000)) as server:
        root = server.url.removesuffix("/metrics")
        page = requests.get(server.url, timeout=5)
        assert (page.status_code, page.content) == (200, b"page 1000\n")
        assert page.headers["Content-Type"].startswith("text/plain")
        assert requests.get(f"{root}/version", timeout=5).json() == {"version": "0.32.0"}
        [model] = requests.get(f"{root}/v1/models", timeout=5).json()["data"]
        assert (model["id"], model["max_model_len"]) == ("tiny", 2048)
        assert requests.get(f"{root}/health", timeout=5).status_code == 200
        assert requests.get(f"{root}/other", timeout=5).status_code == 404


def test_requests_in_flight_are_served_where_they_were_recorded() -> None:
    clock = Clock()
    first, second = scrapes(1000, 1001)
    with ReplayServer([first, replace(second, load=4)], clock=clock) as server:
        load = server.url.replace("/metrics", "/load")
        assert requests.get(load, timeout=5).status_code == 503
        clock.now = 101.5
        assert requests.get(load, timeout=5).json() == {"server_load": 4}
    with ReplayServer([first]) as server:
        assert requests.get(server.url.replace("/metrics", "/load"), timeout=5).status_code == 404


def test_what_nobody_answered_is_not_answered() -> None:
    down = Scrape(1.0, 1.0, 0.0, 0, b"", Failure(Reason.REFUSED, "connection refused"))
    with ReplayServer([down]) as server, pytest.raises(requests.ConnectionError):
        requests.get(server.url, timeout=5)


def test_a_recording_without_a_scrape_cannot_be_served() -> None:
    with pytest.raises(ValueError, match="without a scrape"):
        ReplayServer([])


def test_the_embedded_recording_is_small_and_begins_calm() -> None:
    assert RECORDING.stat().st_size < 1_000_000
    recording, _ = read(RECORDING)
    incident = next(phase for phase in recording.phases if phase.label == "kv-pool-exhausted")
    with demo_server() as server:
        first = server.current()
        assert incident.start - first.wall == pytest.approx(CALM_SECONDS, abs=2)
        # A visitor has a minute and a half to see it.
        assert server.round_seconds > 90
        assert server.server_info.max_model_len == 2048
