"""Faults of pages (F24 to F39) as they come out at the far end: in verdicts, texts, metrics and incidents."""

import time
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tests.a_service import AService
from tests.pages import LABELS, failed, histogram, page, scrape
from tests.watching import diagnosis, firing, shipped_rules, watch
from watchdog.history.layout import MOST_ENGINES
from watchdog.model import Snapshot, State
from watchdog.report.bodies import diagnosis_body
from watchdog.report.metrics import Metrics
from watchdog.report.text import diagnosis_text

BOUNDS = (0.1, 1.0, 10.0, inf)


def busy(
    at: float, counts: tuple[float, ...] | None = None, labels: str = LABELS, waiting: float = 0.0
) -> str:
    """An engine at work; of its times to first token so many were below each of the bounds."""
    text = page(
        labels,
        num_requests_running=2.0,
        num_requests_waiting=waiting,
        kv_cache_usage_perc=0.2,
        generation_tokens_total=100.0 * at,
        prompt_tokens_total=50.0 * at,
        iteration_tokens_total_count=20.0 * at,
    )
    if counts is not None:
        text += histogram("time_to_first_token_seconds", dict(zip(BOUNDS, counts, strict=True)), at, labels)
    return text


def reading(snapshot: Snapshot, name: str) -> float | None:
    return snapshot.readings[0].values[name]


def told(snapshot: Snapshot) -> Any:
    """The target's part of /diagnose, and the same as text."""
    body = diagnosis_body([snapshot.target], {snapshot.target.name: snapshot}, (), snapshot.wall)
    return body.model_dump(mode="json")["targets"][0], diagnosis_text(body)


def metrics_of(snapshot: Snapshot) -> str:
    service = AService(shipped_rules(), (snapshot.target,), {snapshot.target.name: snapshot})
    return Metrics(service).text().decode()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace('le="+Inf"', 'le="99"'),
        lambda text: text.replace('le="1.0"', 'le="abc"'),
        lambda text: text.replace('le="1.0"', 'le="0.10"'),
        lambda text: text.replace(',le="0.1"} ', ',le="0.1"} 9'),
        lambda text: text.replace('le="0.1"} ', 'le="0.1"} -'),
    ],
    ids=["no +Inf", "a bound that is a word", "a bound twice", "counts that fall", "negative counts"],
)  # fmt: skip
def test_f24_a_histogram_that_cannot_be_right_has_no_quantile(spoil: Any) -> None:
    good = [busy(at, (2.0 * at, 3.0 * at, 4.0 * at, 5.0 * at)) for at in range(5, 66, 5)]
    healthy = watch(scrape(5.0 * index, text) for index, text in enumerate(good))[-1]
    assert reading(healthy, "ttft_p50_seconds") is not None
    spoiled = watch(scrape(5.0 * index, spoil(text)) for index, text in enumerate(good))[-1]
    assert reading(spoiled, "ttft_p50_seconds") is None
    assert reading(spoiled, "generation_tokens_per_second") == pytest.approx(100)
    assert "vllm_watchdog_ttft_p50_seconds{" in metrics_of(healthy)
    assert "vllm_watchdog_ttft_p50_seconds{" not in metrics_of(spoiled)


def test_f24_buckets_that_change_their_bounds_give_no_quantile_until_the_window_is_over() -> None:
    def text(at: int) -> str:
        made = busy(at, (2.0 * at, 3.0 * at, 4.0 * at, 5.0 * at))
        return made if at < 60 else made.replace('le="0.1"', 'le="0.25"')

    known = [
        reading(snapshot, "ttft_p50_seconds") is not None
        for snapshot in watch(scrape(float(at), text(at)) for at in range(5, 121, 5))
    ]
    assert known[4:11] == [True] * 7
    assert known[11] is False
    assert known[-1] is True


def test_f25_a_quantile_in_the_open_bucket_is_a_bound_and_is_printed_as_one() -> None:
    last = watch(scrape(float(at), busy(at, (0.0, 0.0, at, 9.0 * at))) for at in range(5, 66, 5))[-1]
    assert reading(last, "ttft_p95_seconds") == 10
    data, text = told(last)
    assert data["readings"][0]["values"]["ttft_p95_seconds"] == 10
    assert data["readings"][0]["at_least"] == ["ttft_p50_seconds", "ttft_p95_seconds"]
    assert "TTFT p95 >= 10 s" in text


def test_f26_no_observation_in_the_window_is_unknown_and_neither_zero_nor_a_number() -> None:
    last = watch(scrape(float(at), busy(at, (5.0, 6.0, 7.0, 8.0))) for at in range(5, 66, 5))[-1]
    assert reading(last, "ttft_p95_seconds") is None
    data, text = told(last)
    assert data["readings"][0]["values"]["ttft_p95_seconds"] is None
    assert "TTFT" not in text
    assert "vllm_watchdog_ttft_p95_seconds{" not in metrics_of(last)


def test_f31_many_engines_are_judged_up_to_a_limit_that_is_told() -> None:
    """Where the list of faults wants one incident "too many", ours is a note: it is no fault of the server's,
    and nobody should be woken by it."""
    many = "".join(busy(0, labels=f'model_name="m{number}",engine="0"') for number in range(1000))
    shipped_rules()
    one = diagnosis()
    began = time.process_time()
    snapshot = one.observe(scrape(0.0, many))
    assert time.process_time() - began < 10
    assert len(snapshot.readings) == MOST_ENGINES
    assert "1000 models and engines are on the page" in snapshot.notes[0]
    assert metrics_of(snapshot).count("vllm_watchdog_running_requests{") == MOST_ENGINES


def test_f31_a_new_model_at_each_scrape_leaves_nothing_behind() -> None:
    one = diagnosis()
    for number in range(400):
        text = busy(5.0 * number, labels=f'model_name="m{number}",engine="0"', waiting=9.0)
        snapshot = one.observe(scrape(5.0 * number, text))
    assert len(snapshot.incidents) < 300
    assert len(one._history.frames) < 160
    assert len(one._engines._stretches) < 160


def test_f33_labels_that_are_ours_to_give_are_taken_from_no_page() -> None:
    claims = 'target="evil",rule="evil",severity="evil",alertname="evil",instance="evil",'
    text = busy(0.0, waiting=3.0).replace("{", "{" + claims)
    last = watch(scrape(float(at), text) for at in range(0, 121, 5))[-1]
    assert firing(last)
    assert all(incident.key.target == "server" for incident in last.incidents)
    assert "evil" not in metrics_of(last)
    assert "evil" not in str(told(last))


def test_f21_a_bad_byte_on_a_page_costs_no_diagnosis_and_is_told() -> None:
    scrapes = []
    for at in range(0, 121, 5):
        text = busy(min(at, 60), waiting=5.0).encode()  # stalled from 60 s on
        page_end = b'vllm:lora_requests_info{running_lora_adapters="caf\xe9"} 1\n'
        scrapes.append(replace(scrape(float(at), ""), body=text + page_end))
    snapshot = watch(scrapes)[-1]
    assert "engine-stalled" in firing(snapshot)
    body, text_of_it = told(snapshot)
    assert [note for note in body["notes"] if "is not UTF-8 text and was skipped" in note]
    assert "is not UTF-8 text and was skipped" in text_of_it


def test_f39_what_an_incident_rests_on_disappears_and_comes_back_without_a_flap() -> None:
    """Unknown meanwhile: it neither ends nor begins again."""
    changes = []
    one = diagnosis()
    for at in range(0, 241, 5):
        text = busy(min(at, 60), waiting=5.0)  # stalled from 60 s on
        if 120 <= at < 180:
            text = "\n".join(
                each for each in text.split("\n") if "iteration" not in each and "tokens_total" not in each
            )
        snapshot = one.observe(scrape(float(at), text))
        changes += [
            (at, each.incident.state)
            for each in snapshot.transitions
            if each.incident.key.rule == "engine-stalled" and each.incident.state is not State.PENDING
        ]
        if at >= 100:
            assert "engine-stalled" in firing(snapshot)
    assert [state for _, state in changes] == [State.FIRING]


def test_f39_a_server_that_fails_now_and_then_in_an_incident_makes_no_second_one() -> None:
    changes = []
    one = diagnosis()
    for at in range(0, 301, 5):
        made = failed(float(at)) if at % 25 == 0 and at else scrape(float(at), busy(min(at, 60), waiting=5.0))
        snapshot = one.observe(made)
        changes += [
            each.incident.state
            for each in snapshot.transitions
            if each.incident.key.rule == "engine-stalled" and each.incident.state is not State.PENDING
        ]
    assert changes == [State.FIRING]
