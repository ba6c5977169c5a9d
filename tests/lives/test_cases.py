"""Reduced inputs of public reports: over a made time line the product says what the right answer is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pages import scrape
from tests.places import CASES
from tests.watching import firing, lead, watch
from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.history.span import life_span
from watchdog.model import Lookup, ServerInfo, Snapshot, Subject, Verdict
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.signals.catalogue import Signals
from watchdog.signals.functions import View


def case(number: int) -> str:
    return (CASES / f"{number}.prom").read_text(encoding="utf-8")


def unchanged(text: str, seconds: int, server_info: ServerInfo | None = None) -> list[Snapshot]:
    return watch(scrape(float(at), text, server_info=server_info) for at in range(0, seconds + 1, 5))


def moving(text: str, seconds: int, moves: dict[str, Callable[[float, float], float]]) -> list[Snapshot]:
    """The page over time: the samples whose names are keys of `moves` change with (first value, seconds)."""

    def at(second: float) -> str:
        def moved(match: re.Match[str]) -> str:
            name, labels, value = match.groups()
            move = moves.get(name + labels) or moves.get(name)
            return match.group() if move is None else f"{name}{labels} {move(float(value), second)!r}"

        return re.sub(r"(?m)^(vllm:\w+)(\{.*\}) (\S+)$", moved, text)

    return watch(scrape(float(second), at(second)) for second in range(0, seconds + 1, 5))


def signals(text: str) -> Lookup:
    history = History()
    history.append(parse(text.encode(), SeriesCache(wanted)), 0.0)
    model_name, engine = history.subjects()[0] if history.subjects() else ("", "")
    return Signals(View(life=life_span(history, Subject("t", model_name, engine))))


@pytest.mark.parametrize("file", sorted(CASES.glob("*.prom")), ids=lambda path: path.stem)
def test_every_case_is_read_without_a_failure(file: Path) -> None:
    (snapshot,) = watch([scrape(0.0, file.read_text(encoding="utf-8"))])
    assert snapshot.failure is None
    assert snapshot.up


def test_5_a_request_larger_than_the_pool_can_never_be_admitted() -> None:
    last = unchanged(case(5), 120, ServerInfo(max_model_len=262144))[-1]
    assert lead(last) == "request-larger-than-kv-pool"
    assert "kv-pool-exhausted" not in firing(last)
    assert last.lead_incident is not None
    assert ("--max-model-len", "76544") in {
        (remedy.flag, remedy.value) for remedy in last.lead_incident.remedies
    } or "76,640" in last.lead_incident.cause


def test_8_deferred_requests_do_not_want_a_larger_batch() -> None:
    text = case(8) + 'vllm:generation_tokens_total{engine="0",model_name="acme/demo-7b"} 1000.0\n'
    text += 'vllm:iteration_tokens_total_count{engine="0",model_name="acme/demo-7b"} 1000.0\n'
    last = moving(
        text,
        600,
        {
            "vllm:num_requests_waiting": lambda value, second: 227 + (value - 227) * second / 600,
            "vllm:generation_tokens_total": lambda value, second: value + second,
            "vllm:iteration_tokens_total_count": lambda value, second: value + 0.2 * second,
        },
    )[-1]
    assert lead(last) == "deferred-backlog"
    assert last.lead_incident is not None
    assert all(remedy.flag != "--max-num-seqs" for remedy in last.lead_incident.remedies)


def test_27_an_idle_server_with_a_full_cache_is_idle_without_an_alarm() -> None:
    snapshots = unchanged(case(27), 120)
    assert all(not firing(snapshot) for snapshot in snapshots)
    assert snapshots[-1].verdict is Verdict.IDLE


def test_29_a_prefix_that_a_time_stamp_breaks() -> None:
    last = moving(
        case(29),
        180,
        {
            "vllm:prefix_cache_queries_total": lambda value, second: value + 100_000 * second / 60,
            "vllm:prefix_cache_hits_total": lambda value, second: value + 2_000 * second / 60,
        },
    )[-1]
    assert "prefix-cache-ineffective" in firing(last)
    (incident,) = [one for one in last.incidents if one.key.rule == "prefix-cache-ineffective"]
    told = " ".join(
        [incident.cause, *incident.unhelpful, *(f"{one.action} {one.why}" for one in incident.remedies)]
    ).lower()
    assert "time" in told
    assert (
        "head of the prompt" in told
        or "start of the prompt" in told
        or "from the first token" in told
        or "begin" in told
    )


def test_30_frozen_gauges_ask_for_one_small_request_before_any_restart() -> None:
    last = unchanged(case(30), 120)[-1]
    assert lead(last) == "engine-stalled"
    assert last.lead_incident is not None
    first = last.lead_incident.remedies[0]
    assert "small request" in f"{first.action} {first.why}".lower()


def test_38_without_a_block_count_the_pool_is_unknown_and_nothing_is_computed_from_it() -> None:
    snapshots = unchanged(case(38), 60)
    assert all(snapshot.failure is None for snapshot in snapshots)
    assert all(not firing(snapshot) for snapshot in snapshots)
    assert snapshots[-1].vllm.config["num_gpu_blocks"] == "None"


def test_40_the_pool_is_what_the_label_says_never_blocks_times_block_size() -> None:
    text = case(40) + 'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
    (readings,) = unchanged(text, 30)[-1].readings
    assert readings.values["kv_pool_tokens"] == 1_179_770


def test_42_idle_engines_beside_a_busy_one() -> None:
    tokens = "".join(
        f'vllm:generation_tokens_total{{engine="{engine}",model_name="acme/demo-7b"}} 1000.0\n'
        for engine in range(4)
    )
    name = "vllm:generation_tokens_total"
    last = moving(
        case(42) + tokens,
        300,
        {
            f'{name}{{engine="0",model_name="acme/demo-7b"}}': lambda value, second: value + 700 * second,
            f'{name}{{engine="1",model_name="acme/demo-7b"}}': lambda value, second: value + 150 * second,
        },
    )[-1]
    assert lead(last) == "dp-imbalance"
    assert last.lead_incident is not None
    assert all(remedy.flag != "--max-num-seqs" for remedy in last.lead_incident.remedies)


def test_48_the_newest_lora_line_is_the_current_one() -> None:
    lookup = signals(case(48) + 'vllm:num_requests_running{engine="0",model_name="m"} 1.0\n')
    assert lookup("lora_running_adapters") == 1
    assert lookup("lora_waiting_adapters") == 0
    assert lookup("lora_slots") == 1


def test_53_old_and_new_names_are_one_signal_and_created_is_no_value() -> None:
    page = parse(case(53).encode(), SeriesCache(wanted))
    assert not any(series.name.endswith("_created") for series in page.series)
    assert signals(case(53))("kv_usage_last_ratio") == 9.75010481363281e-06


def test_54_an_openmetrics_body_gives_the_same_signals() -> None:
    lookup = signals(case(54))
    assert lookup("running_last") == 3
    page = parse(case(54).encode(), SeriesCache(wanted))
    values = {series.name: value for series, value in zip(page.series, page.values, strict=True)}
    assert values["vllm:prompt_tokens_total"] == 34567503
    assert values["vllm:time_to_first_token_seconds_count"] == 12


def test_55_underscores_for_colons_give_the_same_signals() -> None:
    page = parse(case(55).encode(), SeriesCache(wanted))
    values = {series.name: value for series, value in zip(page.series, page.values, strict=True)}
    assert values == {"vllm:prompt_tokens_total": 1200.0, "vllm:num_requests_running": 4.0}


def test_58_a_byte_order_mark_is_stripped_and_told() -> None:
    (snapshot,) = watch([scrape(0.0, case(58))])
    assert snapshot.failure is None
    assert any("byte order mark" in note for note in snapshot.notes)
    assert signals(case(58))("running_last") == 2
