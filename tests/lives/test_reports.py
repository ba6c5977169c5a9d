"""Pages made after public reports of other people's servers, and what is to be said of them.

Each test names the report; the numbers are made.
"""

from collections.abc import Callable, Mapping
from math import inf

import pytest

from tests.pages import histogram, page, scrape
from tests.watching import firing, lead, watch
from watchdog.model import Incident, ServerInfo, Snapshot, Verdict

Moves = Mapping[str, float | Callable[[float], float]]
LABELS = 'model_name="m",engine="0"'
CONFIG = (
    'vllm:cache_config_info{engine="0",block_size="16",cache_dtype="auto",enable_prefix_caching="True",'
    'gpu_memory_utilization="0.9",num_gpu_blocks="4000",num_gpu_blocks_override="None"} 1.0\n'
)
# Idle, but for a step now and then: what a report does not speak of.
CALM: Moves = {
    "num_requests_running": 2,
    "num_requests_waiting": 0,
    "kv_cache_usage_perc": 0.05,
    "prompt_tokens_total": lambda at: 900 * at,
    "generation_tokens_total": lambda at: 80 * at,
    "iteration_tokens_total_count": lambda at: 40 * at,
    "time_to_first_token_seconds_count": lambda at: at,
    "num_preemptions_total": 3,
}
# No counter moves.
STILL: Moves = {name: 500.0 for name in CALM if name.endswith(("_total", "_count"))}


def page_at(at: float, moves: Moves, labels: str = LABELS, config: str = CONFIG) -> str:
    values = {name: float(move(at)) if callable(move) else float(move) for name, move in moves.items()}
    return page(labels, **values) + config


def over(seconds: int, moves: Moves, server_info: ServerInfo | None = None, config: str = CONFIG) -> Snapshot:
    """What is said at the end of this time of such pages, one every five seconds."""
    return watch(
        scrape(float(at), page_at(at, {**CALM, **moves}, config=config), server_info=server_info)
        for at in range(0, seconds + 1, 5)
    )[-1]


def incident(snapshot: Snapshot, rule: str) -> Incident:
    (found,) = [one for one in snapshot.incidents if one.key.rule == rule]
    return found


def flags(found: Incident) -> set[str | None]:
    return {remedy.flag for remedy in found.remedies}


def reason(deferred: float, capacity: float = 0.0) -> str:
    told = (("deferred", deferred), ("capacity", capacity))
    return "".join(
        f'vllm:num_requests_waiting_by_reason{{{LABELS},reason="{name}"}} {count}\n' for name, count in told
    )


def test_one_long_generation_holds_most_of_the_pool() -> None:
    """intel/llm-scaler issue 391: 1 runs at 5 tokens/s and 77 % for an hour, 14 wait."""
    last = over(
        120,
        {
            "num_requests_running": 1,
            "num_requests_waiting": 14,
            "kv_cache_usage_perc": lambda at: 0.765 + at / 1e5,
            "prompt_tokens_total": 4e4,
            "generation_tokens_total": lambda at: 5.4 * at,
            "iteration_tokens_total_count": lambda at: 5.4 * at,
            "time_to_first_token_seconds_count": 40,
        },
        ServerInfo(max_model_len=60_000),
    )
    assert lead(last) == "kv-full-decode-bound"
    assert "--max-num-seqs" not in flags(incident(last, "kv-full-decode-bound"))
    assert "--max-model-len" in flags(incident(last, "kv-full-decode-bound"))


@pytest.mark.parametrize("kv_usage", [0.0, 0.93])
def test_a_scheduler_that_admits_nothing_is_no_full_pool(kv_usage: float) -> None:
    """vLLM issues 45414 (an empty pool) and 45388 (a pool held by loads that never end)."""
    last = over(
        120,
        {
            **STILL,
            "num_requests_running": 0,
            "num_requests_waiting": 6,
            "kv_cache_usage_perc": kv_usage,
        },
    )
    assert lead(last) == "admission-livelock"
    assert flags(incident(last, "admission-livelock")) == {None}


def test_transfers_that_never_come_are_told_as_such() -> None:
    """vLLM issue 37308: all that waits is deferred, and nothing runs."""
    still = {**STILL, "num_requests_running": 0, "num_requests_waiting": 6, "kv_cache_usage_perc": 0.9}
    last = over(120, still, config=CONFIG + reason(6))
    assert lead(last) == "deferred-backlog"
    assert last.verdict is Verdict.CRITICAL
    assert any("KV connector" in remedy.action for remedy in incident(last, "deferred-backlog").remedies)


def test_a_decode_server_that_waits_for_remote_kv() -> None:
    """vLLM issue 50719: requests wait for remote KV and hold their blocks meanwhile, receives fail."""
    waits = {"num_requests_running": 6, "num_requests_waiting": 40, "kv_cache_usage_perc": 0.9}
    assert lead(over(120, waits, config=CONFIG + reason(40))) == "deferred-backlog"
    fails: Moves = {
        **waits,
        "mooncake_num_failed_transfers_total": 0,
        "mooncake_num_failed_recvs_total": lambda at: at / 2,
    }
    last = over(120, fails, config=CONFIG + reason(40))
    assert lead(last) == "kv-transfer-failures"
    assert firing(last) >= {"kv-transfer-failures", "deferred-backlog"}


def test_a_block_that_no_request_can_fill() -> None:
    """vLLM issue 48401: a hybrid model with blocks of 8,320 tokens and --max-model-len 4096."""
    config = CONFIG.replace('block_size="16"', 'block_size="8320"')
    looked_up: Moves = {"prefix_cache_queries_total": lambda at: 900 * at, "prefix_cache_hits_total": 0}
    last = over(120, looked_up, ServerInfo(max_model_len=4096), config)
    assert "prefix-block-too-large" in firing(last)
    assert "prefix-cache-ineffective" not in firing(last)
    assert "--max-model-len" in flags(incident(last, "prefix-block-too-large"))


def test_an_engine_that_stands_still_beside_one_that_works() -> None:
    """One rank of data parallelism hangs; the connections that close are those of the other."""

    def both(at: float) -> str:
        stuck: Moves = {**STILL, "num_requests_running": 4, "num_requests_waiting": 3}
        other = page_at(at, CALM, labels='model_name="m",engine="1"', config="")
        return page_at(at, {**CALM, **stuck}) + other + f"process_open_fds {40 - (at > 30) * 4}\n"

    last = watch(scrape(float(at), both(at)) for at in range(0, 121, 5))[-1]
    assert lead(last) == "engine-stalled"
    assert "stale-gauges" not in firing(last)


def test_a_line_of_which_hardly_any_request_ends() -> None:
    """vLLM issue 11517: 1 runs, 3 wait for minutes, the pool is at 3 %; no mean of the queue can be had."""
    last = over(
        120,
        {
            "num_requests_waiting": 3,
            "kv_cache_usage_perc": 0.03,
            "time_to_first_token_seconds_count": lambda at: at // 20,
        },
    )
    assert lead(last) == "queue-latency-high"


def replicas(at: float, **kv_usage: float) -> str:
    """Two vLLM servers on one page, as Ray's agent of a node shows them."""
    return "".join(
        page_at(
            at,
            {**CALM, "num_requests_waiting": 4, "kv_cache_usage_perc": kv},
            config="",
            labels=f'model_name="m",engine="0",ReplicaId="{name}",WorkerId="w{name}"',
        )
        for name, kv in kv_usage.items()
    ).replace("vllm:", "ray_vllm_")


def test_pools_of_replicas_on_one_page_are_not_added_up() -> None:
    """Ray Serve: the agent of a node shows all its replicas under equal model and engine names."""
    *_, last = watch(scrape(float(at), replicas(at, a=0.55, b=0.5)) for at in range(0, 121, 5))
    assert "kv-pool-exhausted" not in firing(last)
    assert [reading.subject.engine for reading in last.readings] == ["0@a", "0@b"]
    assert any("ReplicaId" in note for note in last.notes)
    *_, last = watch(scrape(float(at), replicas(at, a=0.98, b=0.1)) for at in range(0, 121, 5))
    assert {one.key.engine for one in last.incidents if one.key.rule == "kv-pool-exhausted"} == {"0@a"}


def test_names_without_their_prefix_are_vllms() -> None:
    """NVIDIA NIM shows vLLM's names bare."""
    full = {**CALM, "num_requests_waiting": 20, "kv_cache_usage_perc": 0.98}
    *_, last = watch(
        scrape(float(at), page_at(at, full, labels='model_name="m"', config="").replace("vllm:", ""))
        for at in range(0, 121, 5)
    )
    assert lead(last) == "kv-pool-exhausted"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (
            'vllm:num_requests_running{server="http://a"} 3\nvllm:gpu_cache_usage_perc{server="http://a"} 1\n',
            "router",
        ),
        ('sglang:num_running_reqs{model_name="m"} 3\nsglang:token_usage{model_name="m"} 0.9\n', "SGLang"),
        ("tgi_queue_size 4\n", "Text Generation Inference"),
        ('nv_inference_count{model="m"} 4\n', "Triton"),
        ("llamacpp:requests_processing 1\n", "llama.cpp"),
        ("litellm_requests_metric_total 4\n", "LiteLLM"),
    ],
)
def test_another_programs_page_is_told_by_name_and_soon(text: str, program: str) -> None:
    """vLLM production-stack issue 318 (the router's page) and other servers behind the address."""
    *_, last = watch(scrape(float(at), text) for at in range(0, 41, 5))
    assert lead(last) == "metrics-missing"
    assert program in incident(last, "metrics-missing").cause
    assert flags(incident(last, "metrics-missing")) == {None}


def ranks(at: float) -> str:
    """Eight engines of one server: queues on two of them, room on the others."""
    hot: Moves = {"num_requests_running": 45, "num_requests_waiting": 110, "kv_cache_usage_perc": 0.99}
    cool: Moves = {"num_requests_running": 40, "kv_cache_usage_perc": 0.6}
    return "".join(
        page_at(at, {**CALM, **(hot if rank < 2 else cool)}, f'model_name="m",engine="{rank}"', "")
        for rank in range(8)
    )


def test_queues_on_few_ranks_while_others_have_room() -> None:
    """vLLM issue 36748: eight ranks, more than a hundred wait on each of two, whose pools are full."""
    *_, last = watch(scrape(float(at), ranks(at)) for at in range(0, 61, 5))
    assert lead(last) == "dp-imbalance"
    assert "--max-num-seqs" not in flags(incident(last, "dp-imbalance"))
    assert "kv-pool-exhausted" in firing(last)


def test_hits_that_one_counter_shows_and_the_other_does_not() -> None:
    """vllm-ascend issue 16639: prompts hit, prefix_cache_hits stays 0."""
    block = CONFIG.replace('block_size="16"', 'block_size="1536"')

    def at_time(at: float) -> str:
        moves: Moves = {
            **CALM,
            "prompt_tokens_total": lambda at: 3000 * at,
            "prefix_cache_queries_total": lambda at: 3000 * at,
            "prefix_cache_hits_total": 0,
        }
        hits = f'vllm:prompt_tokens_by_source_total{{{LABELS},source="local_cache_hit"}} {2000 * at}\n'
        return page_at(at, moves, config=block + hits)

    *_, last = watch(scrape(float(at), at_time(at)) for at in range(0, 201, 5))
    assert firing(last) & {
        "prefix-counter-unreliable",
        "prefix-block-too-large",
        "prefix-cache-ineffective",
    } == {"prefix-counter-unreliable"}


def test_answers_that_no_metric_counts() -> None:
    """vllm-ascend issue 9370: requests are served, every metric of the engine stays 0."""

    def at_time(at: float) -> str:
        answers = 'http_requests_total{handler="/v1/chat/completions",method="POST",status="2xx"}'
        return page_at(at, dict.fromkeys(CALM, 0.0)) + f"{answers} {5 * at}\n"

    *_, last = watch(scrape(float(at), at_time(at)) for at in range(0, 61, 5))
    assert lead(last) == "metrics-not-counted"


def test_a_batch_that_is_all_prefill_wants_no_larger_one() -> None:
    """llm-d-autoscaling issue 662: 6000 tokens in and 2 out, 20 run, the line grows, the pool is at 32 %."""

    def at_time(at: float) -> str:
        moves: Moves = {
            **CALM,
            "num_requests_running": 20,
            "num_requests_waiting": lambda at: 20 + at,
            "kv_cache_usage_perc": 0.32,
            "prompt_tokens_total": lambda at: 42_000 * at,
            "generation_tokens_total": lambda at: 14 * at,
            "time_to_first_token_seconds_count": lambda at: 7 * at,
            "time_to_first_token_seconds_sum": lambda at: 84 * at,
            "request_prefill_time_seconds_count": lambda at: 7 * at,
            "request_prefill_time_seconds_sum": lambda at: 21 * at,
            "request_queue_time_seconds_count": lambda at: 7 * at,
            "request_queue_time_seconds_sum": lambda at: 63 * at,
        }
        gaps = histogram("inter_token_latency_seconds", {1.0: 0.0, 2.5: 7 * at, inf: 7 * at}, 12 * at)
        return page_at(at, moves) + gaps

    *_, last = watch(scrape(float(at), at_time(at)) for at in range(0, 121, 5))
    assert lead(last) == "queue-latency-high"
    assert any("prefill" in remedy.action for remedy in incident(last, "queue-latency-high").remedies)


def test_a_pool_that_holds_more_than_its_requests_can() -> None:
    """vLLM issue 27073: usage climbs for hours under load and never comes back."""
    leak: Moves = {"num_requests_running": 3, "kv_cache_usage_perc": lambda at: min(0.9, 0.3 + at / 2000)}
    config = CONFIG.replace('num_gpu_blocks="4000"', 'num_gpu_blocks="40000"')
    assert lead(over(640, leak, ServerInfo(max_model_len=32_768), config)) == "kv-leak-suspected"
    assert "kv-leak-suspected" not in firing(over(640, leak, ServerInfo(max_model_len=262_144), config))


def test_streams_that_crawl_beside_a_long_prefill() -> None:
    """vLLM issue 54919: 4 run, none waits, a stream gets a token every few seconds for minutes."""

    def at_time(at: float) -> str:
        begun = max(0.0, at - 120)
        crawl: Moves = {
            **CALM,
            "num_requests_running": 4,
            # The prompt that is in its prefill fills the pool, and is counted when it is done.
            "kv_cache_usage_perc": 0.1 + 0.004 * begun,
            "prompt_tokens_total": 900 * (at - begun),
            "time_to_first_token_seconds_count": at - begun,
            "generation_tokens_total": 80 * (at - begun) + 1.2 * begun,
            "iteration_tokens_total_count": 40 * (at - begun) + 0.4 * begun,
        }
        return page_at(at, crawl)

    *_, last = watch(scrape(float(at), at_time(at)) for at in range(0, 241, 5))
    assert lead(last) == "itl-high"
    assert "--max-num-batched-tokens" in flags(incident(last, "itl-high"))
