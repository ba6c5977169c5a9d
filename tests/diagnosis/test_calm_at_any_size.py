"""A server that serves what comes is calm, whatever the number of its engines, the rate, the lengths and the pool."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pages import histogram, line, page, scrape
from tests.watching import watch
from watchdog.model import Severity, State

RAN_BEFORE_SECONDS = 1000
STEP_SECONDS, STEPS, SECONDS_A_TOKEN = 5, 12, 0.02


def calm(engine: int, at: int, rate: float, prompt: int, output: int, pool: int) -> str:
    """One engine after so many seconds: each request is served at once."""
    labels = f'model_name="m",engine="{engine}"'
    running = rate * output * SECONDS_A_TOKEN
    came = int(rate * (at + RAN_BEFORE_SECONDS))
    done = max(0, came - round(running))
    tokens = int(came * output * 0.9)
    usage = min(0.5, running * (prompt + output) / pool)
    plain = page(
        labels,
        num_requests_running=float(round(running)),
        num_requests_waiting=0,
        kv_cache_usage_perc=usage,
        num_preemptions_total=0,
        generation_tokens_total=tokens,
        prompt_tokens_total=came * prompt,
        request_success_total=done,
        iteration_tokens_total_count=50 * (at + RAN_BEFORE_SECONDS),
    )
    config = f'{labels},num_gpu_blocks="{pool // 16}",block_size="16",enable_prefix_caching="True"'
    first = histogram("time_to_first_token_seconds", {0.1: came, inf: came}, 0.05 * came, labels)
    between = histogram(
        "inter_token_latency_seconds", {0.025: tokens, inf: tokens}, SECONDS_A_TOKEN * tokens, labels
    )
    return plain + line("cache_config_info", 1, config) + first + between


@settings(max_examples=8, deadline=None)
@given(
    engines=st.integers(1, 6),
    rate=st.floats(0.05, 200),
    prompt=st.integers(1, 30_000),
    output=st.integers(1, 2_000),
    pool=st.integers(20_000, 20_000_000),
)
def test_equal_engines_that_keep_up_are_calm(
    engines: int, rate: float, prompt: int, output: int, pool: int
) -> None:
    pages = (
        "".join(calm(engine, at, rate, prompt, output, pool) for engine in range(engines))
        for at in range(0, STEPS * STEP_SECONDS, STEP_SECONDS)
    )
    snapshots = watch(scrape(float(STEP_SECONDS * step), text) for step, text in enumerate(pages))
    alarms = {
        one.key.rule
        for each in snapshots
        for one in each.incidents
        if one.state is State.FIRING and one.severity is not Severity.INFO
    }
    assert alarms == set()
