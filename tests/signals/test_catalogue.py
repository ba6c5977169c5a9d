"""The catalogue: a signal says what it is, has PromQL that Prometheus accepts, is unknown without its metric."""

import subprocess
from math import inf
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pages import histogram, history_of, page
from tests.places import SAMPLES
from watchdog.facts.fact import Fact
from watchdog.history.names import ALIASES, spellings, wanted
from watchdog.history.number import AtLeast, AtMost, finite
from watchdog.history.span import life_span, now_span, recent_span, span_between, span_since_start
from watchdog.language.expression import parse
from watchdog.model import Lookup, Subject
from watchdog.signals.catalogue import (
    CATALOGUE,
    COMPARISONS,
    REMEMBERED,
    Signals,
    metrics_of,
    remembered,
    signal_names,
    since_start,
)
from watchdog.signals.functions import View, bounded, fact
from watchdog.signals.promql import NOW, Stretch

ENGINE = Subject("t", "m", "0")
PAGES = sorted(SAMPLES.glob("*.prom"))


def test_prometheus_accepts_the_promql_of_every_signal(tmp_path: Path) -> None:
    rules = [
        {"record": f"signal:{name}_{place}", "expr": query}
        for name, signal in sorted(CATALOGUE.items())
        for place, stretch in enumerate([NOW, Stretch(600, 600, 600, ago=30)])
        if (query := signal.formula.query(stretch)) is not None
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "signals", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_names_end_in_their_unit_where_they_have_one() -> None:
    endings = {"s": "_seconds", "ratio": "_ratio", "1/s": "_per_second", "tokens/s": "_per_second"}
    for signal in CATALOGUE.values():
        ending = endings.get(signal.unit)
        named = ending is None or ending.strip("_") in signal.name or signal.name.endswith("_share_of_time")
        assert named, signal.name
        assert signal.description.endswith(".")


def test_every_remembered_signal_has_a_name_for_each_comparison() -> None:
    assert set(COMPARISONS) == {"baseline", "lately", "lowest"}
    assert signal_names() == {*CATALOGUE, *(f"{name}_{past}" for name in REMEMBERED for past in COMPARISONS)}
    assert len(set(REMEMBERED)) == len(REMEMBERED)


def test_what_a_stretch_keeps_is_what_the_signals_were_over_it() -> None:
    pages = [
        (float(at), page(num_requests_running=3.0, generation_tokens_total=10.0 * at))
        for at in range(0, 121, 5)
    ]
    span = span_between(history_of(pages), ENGINE, 30.0, 60.0)
    assert span is not None
    figures = remembered(span)
    assert figures.keys() == set(REMEMBERED)
    assert figures["running_mean"] == 3
    assert figures["stream_tokens_per_second"] == pytest.approx(10 / 3)
    assert figures["ttft_p50_seconds"] is None


def served(requests: float) -> str:
    """A page of an engine that has served so many requests of 500 + 100 tokens, each 4 s in the batch."""
    return page(
        num_requests_running=9.0,
        num_requests_waiting=40.0,
        prompt_tokens_total=500 * requests,
        generation_tokens_total=100 * requests,
        time_to_first_token_seconds_count=requests,
        time_to_first_token_seconds_sum=0.2 * requests,
        request_prefill_time_seconds_sum=1 * requests,
        request_decode_time_seconds_sum=3 * requests,
    )


def test_the_first_page_tells_what_was_usual_since_the_server_started() -> None:
    history = history_of([(1000.0, served(200))])
    span = span_since_start(history, ENGINE, 400.0)
    assert span is not None
    figures = since_start(span, {"pool_tokens": 60_000.0})
    assert figures["requests_since_start"] == 200
    assert figures["prompt_tokens_per_first_token"] == 500
    assert figures["ttft_mean_seconds"] == pytest.approx(0.2)
    assert figures["first_tokens_per_second"] == figures["arrivals_per_second"] == 0.5
    # What the gauges show in this moment says nothing of the time before.
    assert figures["running_mean"] == 2
    assert figures["stream_tokens_per_second"] == 25
    assert figures["kv_usage_per_request_ratio"] == pytest.approx(0.01)
    assert figures["kv_usage_mean_ratio"] is None


def test_a_server_of_unknown_age_has_averages_and_no_rates() -> None:
    span = span_since_start(history_of([(1000.0, served(200))]), ENGINE, 0.0)
    assert span is not None
    figures = since_start(span, {})
    assert figures["ttft_mean_seconds"] == pytest.approx(0.2)
    assert figures["first_tokens_per_second"] is figures["running_mean"] is None


def test_a_server_that_has_hardly_served_has_no_averages() -> None:
    span = span_since_start(history_of([(1000.0, served(40))]), ENGINE, 400.0)
    assert span is not None
    assert since_start(span, {}) == {}
    assert span_since_start(history_of([]), ENGINE, 400.0) is None


def test_a_figure_known_only_as_a_bound_is_not_kept() -> None:
    def text(count: float) -> str:
        counts = {0.5: 0.0, inf: count}
        return page(num_requests_running=1.0) + histogram("e2e_request_latency_seconds", counts, 9 * count)

    span = span_between(history_of([(0.0, text(0)), (30.0, text(100))]), ENGINE, 0.0, 30.0)
    assert span is not None
    assert isinstance(Signals(View(span))("e2e_p50_seconds"), AtLeast)
    assert remembered(span)["e2e_p50_seconds"] is None


def test_what_is_compared_with_is_looked_up_in_the_past_of_the_view() -> None:
    signals = Signals(View(past={"baseline": {"itl_p50_seconds": 0.02}.get}))
    assert signals("itl_p50_seconds_baseline") == 0.02
    assert signals("ttft_p50_seconds_baseline") is None
    assert Signals(View())("itl_p50_seconds_baseline") is None


def test_a_name_that_is_none_raises() -> None:
    for name in ("running", "running_last_yesterday", "_baseline"):
        with pytest.raises(KeyError):
            Signals(View())(name)


def test_a_signal_is_computed_once_a_step() -> None:
    history = history_of((float(at), page(num_requests_running=4.0)) for at in range(0, 61, 5))
    facts = {"pool_tokens": 5.0}
    lookup = Signals(View(now_span(history, ENGINE), facts=facts))
    assert lookup("pool_tokens") == 5
    facts["pool_tokens"] = 6.0
    assert lookup("pool_tokens") == 5


def beyond_the_last_bucket() -> Lookup:
    """Thirty requests of over 20,000 prompt and 10 output tokens, and gaps of over 2.5 s."""
    none, all_beyond = {20_000.0: 0.0, inf: 0.0}, {20_000.0: 0.0, inf: 30.0}
    short, gaps = {20.0: 30.0, inf: 30.0}, {2.5: 0.0, inf: 90.0}

    def text(beyond: bool) -> str:
        prompts = histogram("request_prompt_tokens", all_beyond if beyond else none, 9e5 * beyond)
        outputs = histogram(
            "request_generation_tokens", short if beyond else dict.fromkeys(short, 0.0), 300.0 * beyond
        )
        latency = histogram(
            "inter_token_latency_seconds", gaps if beyond else dict.fromkeys(gaps, 0.0), 400.0 * beyond
        )
        return prompts + outputs + latency + page(num_requests_running=1.0)

    history = history_of([(0.0, text(False)), (15.0, text(False)), (30.0, text(True))])
    return Signals(View(now_span(history, ENGINE)))


def test_what_lies_beyond_the_last_bucket_stays_a_bound_in_what_is_computed_from_it() -> None:
    lookup = beyond_the_last_bucket()
    for name, expected in (
        ("prompt_tokens_p99", AtLeast(20_000)),
        ("output_tokens_p99", 19.8),
        ("request_tokens_p99", AtLeast(20_019.8)),
        ("itl_p50_seconds", AtLeast(2.5)),
        ("single_stream_tokens_per_second", AtMost(0.4)),
    ):
        found = lookup(name)
        assert type(found) is type(expected), name
        assert found == pytest.approx(expected), name


def test_no_gap_is_a_stall_where_the_usual_gap_lies_beyond_the_last_bucket() -> None:
    assert beyond_the_last_bucket()("itl_stall_ratio") is None


NUMBERS = (
    st.none()
    | st.floats(-1e6, 1e6)
    | st.sampled_from([0.0, 1.0, -1.0, 2.0, 1e308, inf])
    | st.floats(-1e6, 1e6).map(AtLeast)
    | st.floats(-1e6, 1e6).map(AtMost)
)


@pytest.mark.slow
@given(NUMBERS, NUMBERS)
@settings(max_examples=500)
def test_signals_compute_as_clauses_do(one: float | None, other: float | None) -> None:
    values = {name: value for name, value in (("a", one), ("b", other)) if value is not None}
    first_one, second = (fact(Fact(name, "things", "Something.")) for name in "ab")
    formulas = {
        "a + b": first_one + second,
        "a - b": first_one - second,
        "a * b": first_one * second,
        "a / b": first_one / second,
        "1 - a": 1.0 - first_one,
        "1 / a": 1.0 / first_one,
        "max(a, 0)": bounded(first_one, 0.0),
        "max(min(a, 1), 0)": bounded(first_one, 0.0, 1.0),
    }
    for text, formula in formulas.items():
        in_signals = finite(formula.value(View(facts=values)))
        in_clauses = parse(text, {"a", "b"}).number(values.get)
        assert type(in_signals) is type(in_clauses), text
        assert in_signals == in_clauses, text


def test_every_metric_a_signal_reads_is_taken_from_the_page() -> None:
    for name in signal_names():
        for metric in metrics_of(name):
            assert metric in ALIASES
            assert all(wanted(spelling) for spelling in spellings(metric))


@pytest.mark.slow
@pytest.mark.parametrize("sample", PAGES, ids=lambda path: path.stem)
def test_every_signal_evaluates_on_a_page_of_every_version(sample: Path) -> None:
    history = history_of((float(at), sample.read_text()) for at in range(0, 61, 5))
    assert history.subjects()
    for model_name, engine in history.subjects():
        subject = Subject("t", model_name, engine)
        spans = (now_span(history, subject), recent_span(history, subject), life_span(history, subject))
        lookup = Signals(View(*spans))
        values = {name: lookup(name) for name in signal_names()}
        assert values["running_last"] is not None
        assert values["waiting_last"] is not None
        assert values["kv_usage_last_ratio"] is not None
        assert values["prompt_tokens_per_second"] == 0
        assert values["ttft_p50_seconds"] is None  # nothing was observed in the window


@pytest.mark.parametrize("sample", PAGES, ids=lambda path: path.stem)
def test_old_and_new_names_become_the_same_signals(sample: Path) -> None:
    text = sample.read_text()
    history = history_of([(0.0, text)])
    layout = history.frames[-1].layout
    model_name, engine = history.subjects()[0]
    for core in ("kv_cache_usage_perc", "num_requests_running", "generation_tokens_total"):
        columns = [layout.by_name[name] for name in spellings(f"vllm:{core}") if name in layout.by_name]
        assert columns, core
    usage = Signals(View(life=life_span(history, Subject("t", model_name, engine))))
    assert usage("kv_usage_last_ratio") == pytest.approx(0.412, abs=0.6)
