"""A simulated vLLM server: traffic for its engines, its metrics page, and what a scraper sees of it."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from math import inf
from random import Random

from tests.lives.simulated_engine import Engine, Histogram, Request
from watchdog.model import Failure, Reason, Scrape

Lengths = Callable[[Random], int]


def traffic(
    random: Random, begin: float, end: float, rate: Callable[[float], float], prompt: Lengths, output: Lengths
) -> Iterator[Request]:
    """Requests at random moments, `rate` a second at each time."""
    at, most = begin, max(rate(begin + i * (end - begin) / 200) for i in range(201))
    while most > 0 and (at := at + random.expovariate(most)) < end:
        if random.random() * most < rate(at):
            yield Request(at, prompt(random), output(random))


def around(mean: float, spread: float = 0.5) -> Lengths:
    """Lengths with a long tail about a mean."""
    return lambda random: max(1, int(mean * random.lognormvariate(-spread * spread / 2, spread)))


def histogram_lines(one: Histogram, name: str, labels: str) -> Iterator[str]:
    """As vLLM exposes it."""
    below = 0
    for bound, count in zip((*one.bounds, inf), one.counts, strict=True):
        below += count
        yield f'{name}_bucket{{le="{"+Inf" if bound == inf else bound}",{labels}}} {below}'
    yield f"{name}_count{{{labels}}} {below}"
    yield f"{name}_sum{{{labels}}} {one.total}"


def page(one: Engine) -> Iterator[str]:
    """The lines of `/metrics` at a time to which it was advanced."""
    setup, old = one.setup, one.setup.version == "V0"
    labels = f'model_name="{setup.model_name}"' + ("" if old else f',engine="{setup.engine}"')
    blocks = setup.pool_tokens // 16
    told = "" if setup.version != "0.32" else f',kv_cache_size_tokens="{setup.pool_tokens}"'
    yield (
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}",cache_dtype="auto",'
        f'gpu_memory_utilization="0.9",enable_prefix_caching="{setup.prefix_caching}"{told},{labels}}} 1.0'
    )
    if old and not one.histograms["iteration_tokens_total"].total:
        return
    for name, value in _values(one).items():
        yield f"vllm:{name}{{{labels}}} {value}"
    yield f'vllm:request_success_total{{finished_reason="stop",{labels}}} {one.counters["stop"]}'
    for name, histogram in one.histograms.items():
        itl = name == "inter_token_latency_seconds"
        if not (itl and old):
            yield from histogram_lines(histogram, "vllm:" + name, labels)
        if itl and setup.version != "0.32":
            yield from histogram_lines(histogram, "vllm:time_per_output_token_seconds", labels)


def _values(one: Engine) -> dict[str, float]:
    version, count = one.setup.version, one.counters
    running, waiting, usage = one.gauges
    values: dict[str, float] = {"num_requests_running": running, "num_requests_waiting": waiting}
    if version != "0.32":
        values["gpu_cache_usage_perc"] = usage
    if version != "V0":
        values |= {"kv_cache_usage_perc": usage, "prefix_cache_queries_total": count["queries"]}
        values["prefix_cache_hits_total"] = count["hits"]
    values |= {"num_preemptions_total": count["preemptions"], "prompt_tokens_total": count["prompt"]}
    return values | {"generation_tokens_total": count["generation"]}


def process(one: Engine, at: float, began: float = 1.0) -> Iterator[str]:
    """The lines of the API server's process, which began at that unix time."""
    arrived, passed = bisect_left(one.arrivals, at), bisect_left(one.at_engine, at)
    yield f"process_start_time_seconds {began}"
    yield f"process_open_fds {40 + arrived - one.done}"
    yield f"process_cpu_seconds_total {0.02 * (at - began) + one.setup.api_seconds * passed}"


def scrapes(
    engines: list[Engine], end: float, interval: float = 5.0, jitter: float = 0.0, lost: float = 0.0
) -> Iterator[Scrape]:
    """What a scraper sees of a server with these engines; `jitter` in seconds, `lost` a share."""
    random, due = Random(1), 0.0
    while (due := due + interval) < end:
        at = due + random.uniform(-jitter, jitter)
        if random.random() < lost:
            yield Scrape(at, at, 4.0, 0, b"", Failure(Reason.TIMEOUT, "no answer in 4 s"))
            continue
        for one in engines:
            one.advance(at)
        lines = [line for one in engines for line in page(one)]
        if engines[0].setup.version != "V0":
            lines += process(engines[0], at)
        yield Scrape(at, at, 0.01, 200, ("\n".join(lines) + "\n").encode())
