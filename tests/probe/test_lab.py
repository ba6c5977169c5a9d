"""The pure part of the lab: the knee, result files of others, pictures."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchdog.probe.drawing import Bar, bars_svg, bars_text
from watchdog.probe.exercises import plan_of, sweep_said
from watchdog.probe.knee import Step, knee, percentile
from watchdog.probe.results import steps_of


def steps(*pairs: tuple[float, float]) -> list[Step]:
    return [
        Step(streams, 10, tokens, ttft_mean_seconds=0.05 * streams, limit="compute")
        for streams, tokens in pairs
    ]


def test_the_knee_is_the_last_step_that_was_worth_its_streams() -> None:
    found = knee(steps((8, 720), (1, 100), (2, 198), (4, 390), (16, 760)), prompt_tokens=200)
    assert found is not None
    assert (found.step.concurrency, found.reached, found.max_num_seqs) == (8, True, 8)
    # 200 tokens in 50 ms are 4,000 a second: 200 in the 50 ms that a gap may grow by, so the least budget.
    assert found.token_budget == 256


def test_a_sweep_that_still_grows_has_no_knee() -> None:
    found = knee(steps((1, 100), (2, 200), (4, 400)))
    assert found is not None
    assert (found.step.concurrency, found.reached, found.max_num_seqs) == (4, False, None)
    assert "not reached" in sweep_said(steps((1, 100), (2, 200)), None)[0]
    assert knee([]) is None


def test_what_is_said_of_a_knee_names_what_binds_and_the_flags() -> None:
    text = " ".join(sweep_said(steps((1, 100), (2, 190), (4, 195)), 200))
    for part in ("knee is at 2 streams", "compute", "--max-num-seqs 2", "--max-num-batched-tokens 256"):
        assert part in text


@given(st.lists(st.tuples(st.floats(0.1, 1000), st.floats(0, 1e6)), max_size=8))
def test_any_steps_have_a_knee_among_them(pairs: list[tuple[float, float]]) -> None:
    given_steps = steps(*pairs)
    found = knee(given_steps, 200)
    assert (found is None) == (not given_steps)
    assert found is None or found.step in given_steps


def test_percentiles() -> None:
    assert percentile([], 0.95) is None
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([float(each) for each in range(101)], 0.95) == pytest.approx(95.0)


VLLM_BENCH = {
    "max_concurrency": 8,
    "completed": 100,
    "duration": 20.0,
    "request_throughput": 5.0,
    "output_throughput": 640.0,
    "mean_ttft_ms": 120.0,
    "p99_ttft_ms": 300.0,
    "mean_itl_ms": 12.0,
    "p99_itl_ms": 40.0,
}
GUIDELLM = {
    "benchmarks": [
        {
            "metrics": {
                "request_concurrency": {"successful": {"mean": 3.9}},
                "output_tokens_per_second": {"successful": {"mean": 310.0}},
                "time_to_first_token_ms": {
                    "successful": {"mean": 80.0, "count": 40, "percentiles": {"p95": 140.0}}
                },
                "inter_token_latency_ms": {"successful": {"mean": 11.0, "percentiles": {"p99": 30.0}}},
            }
        }
    ]
}


def test_results_of_vllm_bench_serve() -> None:
    [step] = steps_of(VLLM_BENCH)
    assert (step.concurrency, step.tokens_per_second, step.requests) == (8, 640.0, 100)
    assert (step.ttft_mean_seconds, step.itl_p99_seconds) == (0.12, 0.04)
    # Without a limit the streams at once follow from rate and time.
    [open_loop] = steps_of(VLLM_BENCH | {"max_concurrency": None, "mean_e2el_ms": 2000.0})
    assert open_loop.concurrency == 10.0
    # Its default leaves the whole time out: 0.12 s and 127 gaps of 10 ms, 5 a second.
    plain = VLLM_BENCH | {"max_concurrency": None, "mean_tpot_ms": 10.0, "total_output_tokens": 12_800}
    [without] = steps_of(plain)
    assert without.concurrency == pytest.approx(5 * (0.12 + 1.27))


def test_results_of_guidellm() -> None:
    [step] = steps_of(GUIDELLM)
    assert (step.concurrency, step.tokens_per_second, step.requests) == (3.9, 310.0, 40)
    assert (step.ttft_p95_seconds, step.itl_p99_seconds) == (0.14, 0.03)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["benchmarks", "metrics", "output_throughput", "successful"]), inner
        )
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_json_is_some_result_or_none(value: object) -> None:
    assert all(step.tokens_per_second >= 0 for step in steps_of(value))


def test_a_picture_is_well_formed_whatever_its_names() -> None:
    picture = bars_svg("a < b & c", [Bar("<script>", 1.0, '"1"'), Bar("none", 0.0, "")])
    root = ET.fromstring(picture)
    assert "<script>" in [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert bars_svg("nothing", [])
    assert "█" in bars_text("a", [Bar("x", 1.0, "1 s")])


@pytest.mark.parametrize("name", ["prefix", "jitter", "sweep"])
def test_each_plan_has_its_cost(name: str) -> None:
    plan = plan_of(name)
    assert plan.requests > 0
    assert plan.tokens > plan.requests
