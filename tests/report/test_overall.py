"""A reading of a server with several engines: what adds up is added, of the rest the worst engine counts."""

from dataclasses import replace

from tests.a_service import readings, snapshot
from watchdog.report.bodies import TargetBody, target_body
from watchdog.report.overall import glance, overall, overall_text


def server(*engines: dict[str, float | None]) -> TargetBody:
    made = [replace(readings(engine=str(number)), values=each) for number, each in enumerate(engines)]
    one = snapshot(readings=tuple(made))
    return target_body(one.target, one, one.wall)


def test_queues_add_up_and_of_all_else_the_worst_engine_counts() -> None:
    body = server(
        {"waiting_requests": 3.0, "kv_usage_ratio": 0.9, "ttft_p95_seconds": None},
        {"waiting_requests": 4.0, "kv_usage_ratio": 0.2, "ttft_p95_seconds": 1.5},
    )
    assert overall(body, "waiting_requests") == 7.0
    assert overall(body, "kv_usage_ratio") == 0.9
    assert glance(body) == "waiting 7, KV 90%, TTFT p95 1.5 s"


def test_what_no_engine_shows_is_a_dash_and_left_out() -> None:
    body = server({"waiting_requests": None, "kv_usage_ratio": 0.5})
    assert overall(body, "waiting_requests") is None
    assert overall_text(body, "waiting_requests") == "-"
    assert glance(body) == "KV 50%"
