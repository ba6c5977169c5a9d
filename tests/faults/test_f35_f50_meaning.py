"""Time and series (F35 to F43), and what vLLM's figures mean (F44 to F50)."""

from collections.abc import Iterator

import pytest

from tests.pages import LABELS, failed, histogram, line, page, scrape
from tests.watching import diagnosis, firing, lead, watch
from watchdog.history.layout import Selector
from watchdog.history.span import now_span
from watchdog.model import Reason, Scrape, State, Subject, Verdict

SECOND = 'model_name="m",engine="1"'


def engine(
    at: float,
    running: float = 2.0,
    waiting: float = 0.0,
    tokens: float | None = None,
    labels: str = LABELS,
    usage: float = 0.1,
) -> str:
    """An engine that works: 100 tokens and 20 steps a second, unless told otherwise."""
    return page(
        labels,
        num_requests_running=running,
        num_requests_waiting=waiting,
        kv_cache_usage_perc=usage,
        generation_tokens_total=100.0 * at if tokens is None else tokens,
        prompt_tokens_total=50.0 * at if tokens is None else tokens,
        iteration_tokens_total_count=20.0 * at if tokens is None else tokens,
        num_preemptions_total=0.0,
    )


def steady(until: int, begin: int = 0, interval: int = 5) -> Iterator[Scrape]:
    return (scrape(float(at), engine(at)) for at in range(begin, until + 1, interval))


def test_f35_a_restart_gives_no_negative_and_no_giant_rate() -> None:
    texts = [(at, engine(at)) for at in range(0, 61, 5)]
    texts += [(at, engine(at - 80)) for at in range(85, 121, 5)]
    one = diagnosis()
    for at, text in texts:
        snapshot = one.observe(scrape(float(at), text))
        for readings in snapshot.readings:
            rate = readings.values["generation_tokens_per_second"]
            assert rate is None or rate == pytest.approx(100)
    assert "engine-restarted" in firing(snapshot)


def test_f36_a_restart_that_overtakes_the_old_counter_is_seen_by_the_start_time() -> None:
    def text(at: float, started: float, tokens: float) -> str:
        return f"process_start_time_seconds {started}\n" + engine(at, tokens=tokens)

    before = [scrape(float(at), text(at, 1000, 10.0 * at)) for at in range(0, 41, 5)]
    after = [scrape(float(at), text(at, 1041, 5000 + 10.0 * at)) for at in range(45, 81, 5)]
    last = watch(before + after)[-1]
    assert "engine-restarted" in firing(last)
    assert last.readings[0].values["generation_tokens_per_second"] == pytest.approx(10)


def test_f37_one_engine_of_a_group_resets_alone() -> None:
    def text(at: float) -> str:
        other = at if at < 50 else at - 50
        return engine(at) + engine(other, labels=SECOND)

    last = watch(scrape(float(at), text(at)) for at in range(0, 61, 5))[-1]
    restarted = [one.key for one in last.incidents if one.key.rule == "engine-restarted"]
    assert [key.engine for key in restarted] == ["1"]
    rates = {one.subject.engine: one.values["generation_tokens_per_second"] for one in last.readings}
    assert rates == {"0": pytest.approx(100), "1": None}


def test_f38_rates_are_unknown_until_half_a_window_and_gaps_are_no_zeros() -> None:
    one = diagnosis()
    for at in (0, 5, 10):
        snapshot = one.observe(scrape(float(at), engine(at)))
        assert snapshot.readings[0].values["generation_tokens_per_second"] is None
        assert snapshot.verdict is Verdict.STARTING
    for at in (30, 35):  # four scrapes were lost
        snapshot = one.observe(scrape(float(at), engine(at)))
        assert snapshot.readings[0].values["generation_tokens_per_second"] == pytest.approx(100)


def test_f39_a_series_that_comes_back_is_no_burst() -> None:
    preempted = line("num_preemptions_total", 900.0)
    scrapes = []
    for at in range(0, 121, 5):
        text = engine(at, usage=0.97).replace(line("num_preemptions_total", 0.0), "")
        scrapes.append(scrape(float(at), text + (preempted if not 40 <= at <= 60 else "")))
    assert all("preemption-thrash" not in firing(snapshot) for snapshot in watch(scrapes))


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_f40_a_wall_clock_that_jumps_changes_nothing(jump: float) -> None:
    def scrapes(shift: float) -> Iterator[Scrape]:
        for at in range(0, 181, 5):
            text = engine(min(at, 60), running=4.0)
            yield scrape(float(at), text, wall=1e9 + at + (shift if at >= 90 else 0.0))

    plain, jumped = watch(scrapes(0.0)), watch(scrapes(jump))
    assert [firing(one) for one in plain] == [firing(one) for one in jumped]
    for snapshot in jumped:
        for incident in snapshot.incidents:
            ends = [incident.firing_since, incident.resolved_at]
            assert all(end is None or end >= 0 for end in ends)
            if incident.resolved_at is not None:
                assert incident.resolved_at >= (incident.firing_since or incident.pending_since)


def test_f41_after_a_suspension_old_data_says_nothing() -> None:
    one = diagnosis()
    for made in steady(60):
        one.observe(made)
    snapshot = one.observe(scrape(660.0, engine(60, running=4.0)))
    assert snapshot.readings[0].values["generation_tokens_per_second"] is None
    assert lead(snapshot) != "traffic-surge"


def test_f42_a_value_that_flaps_around_its_threshold_makes_one_incident() -> None:
    fired = 0
    one = diagnosis()
    for at in range(0, 301, 5):
        usage = 0.97 if at % 10 else 0.80
        text = engine(at, running=9.0, waiting=5.0, usage=usage)
        snapshot = one.observe(scrape(float(at), text))
        fired += sum(
            change.incident.state is State.FIRING and change.incident.key.rule == "kv-pool-exhausted"
            for change in snapshot.transitions
        )
    assert fired <= 1


def test_f43_without_a_wait_it_fires_at_the_first_true_and_else_at_the_first_tick_after() -> None:
    one = diagnosis()
    times = [float(at) for at in range(0, 40, 7)]
    down_at = [at for at in times if "target-down" in firing(one.observe(failed(at)))]
    assert down_at
    assert down_at[0] == 14.0  # two failures and ten seconds: the first tick at or after


def test_f44_a_hung_engine_is_named_soon_though_its_page_answers() -> None:
    one = diagnosis()
    for made in steady(60):
        one.observe(made)
    named = None
    for at in range(65, 120, 5):
        if lead(one.observe(scrape(float(at), engine(60)))) == "engine-stalled" and named is None:
            named = at - 60
    assert named is not None
    assert named <= 30


def test_f45_a_saturated_engine_and_a_long_prefill_are_not_stalled() -> None:
    saturated = watch(scrape(float(at), engine(at, running=8.0, waiting=50.0)) for at in range(0, 181, 5))
    assert all("engine-stalled" not in firing(snapshot) for snapshot in saturated)

    def prefill(at: float) -> str:  # steps end, no output token yet
        return page(
            num_requests_running=1.0,
            num_requests_waiting=0.0,
            kv_cache_usage_perc=0.2,
            generation_tokens_total=10.0,
            prompt_tokens_total=10.0,
            iteration_tokens_total_count=at // 10,
        )

    chunked = watch(scrape(float(at), prefill(at)) for at in range(0, 181, 5))
    assert all("engine-stalled" not in firing(snapshot) for snapshot in chunked)


def test_f46_idle_asleep_and_loading_are_no_fault() -> None:
    idle = watch(scrape(float(at), engine(0, running=0.0)) for at in range(0, 121, 5))
    assert idle[-1].verdict is Verdict.IDLE
    assert not firing(idle[-1])
    asleep = engine(0, running=0.0) + line("engine_sleep_state", 0.0, LABELS + ',sleep_state="awake"')
    assert not firing(watch(scrape(float(at), asleep) for at in range(0, 121, 5))[-1])
    loading = watch(scrape(float(at), "process_open_fds 9\n") for at in range(0, 121, 5))
    assert not firing(loading[-1])
    assert loading[-1].verdict in {Verdict.STARTING, Verdict.UNKNOWN}


def test_f47_a_metric_the_version_lacks_makes_a_rule_blind_and_says_so() -> None:
    last = watch(steady(60))[-1]
    blind = {one.rule: one.missing for one in last.blind}
    assert "seqs-limited" in blind or "kv-pool-exhausted" not in blind
    assert any("vllm:inter_token_latency_seconds_bucket" in missing for missing in blind.values())
    assert last.verdict is Verdict.HEALTHY


def test_f48_several_faults_at_once_make_one_lead_with_the_rest_below() -> None:
    from tests.lives.test_recordings import FILES
    from watchdog.scrape.recording import read, thin

    path = next(path for path in FILES if path.name.startswith("h200-kv-pool-exhausted"))
    last = watch(thin(read(path)[1], 5))[-1]
    assert lead(last) == "kv-pool-exhausted"
    assert last.lead_incident is not None
    assert {"ttft-high", "preemption-thrash"} <= set(last.lead_incident.symptoms)
    assert {"ttft-high", "preemption-thrash"} <= firing(last)


def test_f49_the_sick_engine_is_named_and_the_sum_does_not_hide_it() -> None:
    def text(at: float) -> str:
        return engine(at) + engine(min(at, 60.0), running=5.0, labels=SECOND)

    last = watch(scrape(float(at), text(at)) for at in range(0, 121, 5))[-1]
    stalled = [one.key for one in last.incidents if one.key.rule == "engine-stalled"]
    assert [key.engine for key in stalled] == ["1"]


def test_f50_an_address_that_answers_from_two_servers_is_told_and_gives_no_nonsense_rates() -> None:
    def text(at: int) -> str:
        return engine(at) if (at // 5) % 2 else engine(at + 5000)

    last = watch(scrape(float(at), text(at)) for at in range(0, 181, 5))[-1]
    assert lead(last) == "target-not-single"
    rate = last.readings[0].values["generation_tokens_per_second"]
    assert rate is None or rate < 1000


def test_unknown_values_of_a_histogram_stay_unknown() -> None:
    text = engine(0) + histogram("time_to_first_token_seconds", {0.1: 5.0, float("inf"): 5.0}, float("nan"))
    last = watch(scrape(float(at), text) for at in range(0, 61, 5))[-1]
    assert last.readings[0].values["ttft_p50_seconds"] is None
    one = diagnosis()
    for made in steady(60):
        one.observe(made)
    span = now_span(one._history, Subject("server", "m", "0"))
    assert span is not None
    assert span.increase(Selector("vllm:request_success_total")) is None


def test_reasons_of_failed_scrapes_are_counted() -> None:
    one = diagnosis()
    one.observe(failed(0.0, Reason.TIMEOUT))
    snapshot = one.observe(failed(5.0, Reason.STATUS, 503))
    assert snapshot.failures == {Reason.TIMEOUT: 1, Reason.STATUS: 1}
    assert not snapshot.up
    assert snapshot.verdict is Verdict.UNKNOWN


def test_gauges_left_by_clients_that_went_stay_no_alarm_for_as_long_as_nothing_happens() -> None:
    def text(at: float) -> str:
        files = 62.0 if at <= 60 else 40.0
        return f"process_open_fds {files}\n" + engine(min(at, 60.0), running=22.0)

    for snapshot in watch(scrape(float(at), text(at)) for at in range(0, 1501, 10)):
        assert "engine-stalled" not in firing(snapshot)
    assert "stale-gauges" in firing(snapshot)


def test_a_hang_stays_a_hang_when_its_clients_lose_patience() -> None:
    def text(at: float) -> str:
        files = 62.0 + min(max(at - 60, 0.0), 60.0) if at <= 130 else 40.0
        return f"process_open_fds {files}\n" + engine(min(at, 60.0), running=22.0)

    snapshots = watch(scrape(float(at), text(at)) for at in range(0, 301, 5))
    assert lead(snapshots[-1]) == "engine-stalled"


def test_two_servers_behind_one_address_are_no_crash_loop_afterwards() -> None:
    def text(at: int) -> str:
        return engine(at + 5000) if at > 120 or (at // 5) % 2 else engine(at)

    last = watch(scrape(float(at), text(at)) for at in range(0, 601, 5))[-1]
    assert not firing(last) - {"engine-restarted"}
