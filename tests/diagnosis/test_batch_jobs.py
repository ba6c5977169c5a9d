"""A job of many requests at once, on a server whose owner wants such jobs and on one whose owner said nothing."""

from math import inf

import pytest

from tests.pages import histogram, page, scrape
from tests.places import RECORDINGS
from tests.watching import lead, watch
from watchdog.model import Expectations, Severity, Snapshot, State, Verdict
from watchdog.scrape.recording import read, thin

STEP_SECONDS, SENT_AT, SENT, MOST_RUNNING, FINISHED_PER_SECOND = 5, 120, 2000, 512, 25


def served(at: int) -> str:
    """A calm server that is sent two thousand requests at once, and nothing after them."""
    calm = min(at, SENT_AT)
    done = min(SENT, max(0, at - SENT_AT) * FINISHED_PER_SECOND)
    left = SENT - done if at > SENT_AT else 0
    running = min(MOST_RUNNING, left) if at > SENT_AT else 1
    started = calm + (done + running if at > SENT_AT else 0)
    tokens = 100 * (calm + done)
    plain = page(
        num_requests_running=running,
        num_requests_waiting=max(0, left - running),
        kv_cache_usage_perc=0.6 * running / MOST_RUNNING,
        num_preemptions_total=0,
        generation_tokens_total=tokens,
        prompt_tokens_total=200 * started,
        request_success_total=calm + done,
        iteration_tokens_total_count=50 * at,
    )
    first = {0.1: calm, 40.0: started, inf: started}
    between = {0.025: tokens, inf: tokens}
    return (
        plain
        + histogram("time_to_first_token_seconds", first, 0.05 * calm + 20.0 * (started - calm))
        + histogram("inter_token_latency_seconds", between, 0.02 * tokens)
    )


def watched(expectations: Expectations) -> list[Snapshot]:
    times = range(0, SENT_AT + SENT // FINISHED_PER_SECOND, STEP_SECONDS)
    return watch((scrape(float(at), served(at)) for at in times), expectations)


def alarms(snapshots: list[Snapshot]) -> set[str]:
    return {
        one.key.rule
        for each in snapshots
        for one in each.incidents
        if one.state is State.FIRING and one.severity is not Severity.INFO
    }


def test_a_job_that_is_wanted_is_no_alarm_and_is_told() -> None:
    snapshots = watched(Expectations(batch_jobs=True))
    assert alarms(snapshots) == set()
    assert {each.verdict for each in snapshots[4:]} == {Verdict.HEALTHY}
    told = {one.key.rule for one in snapshots[-4].incidents if one.state is State.FIRING}
    assert "batch-job-runs" in told


def test_the_same_job_is_an_alarm_where_nobody_said_so() -> None:
    assert alarms(watched(Expectations())) & {"traffic-surge", "seqs-limited"}


@pytest.mark.parametrize("interval_seconds", [1, 5])
def test_nothing_leads_once_the_last_of_a_recorded_job_is_served(interval_seconds: float) -> None:
    recording, scrapes = read(RECORDINGS / "h200-batch-of-2000.jsonl.xz")
    job, recovery = recording.phases[1:]
    told = watch(thin(scrapes, interval_seconds))
    assert {lead(each) for each in told if each.wall >= recovery.start + interval_seconds} == {None}
    during = {lead(each) for each in told if job.start + 20 < each.wall < recovery.start}
    assert during <= {"traffic-surge", "seqs-limited"}, "users beside the job wait"
