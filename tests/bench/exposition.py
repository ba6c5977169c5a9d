"""`python -m tests.bench.exposition`: what a page costs, beside the library's parser on the same page."""

import timeit
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from tests.places import RECORDINGS
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.recording import read

RECORDING = RECORDINGS / "h200-healthy.jsonl.xz"
ROUNDS = 20


def wanted(name: str) -> bool:
    """All that any signal could read."""
    return name.startswith(("vllm:", "process_", "http_"))


def best_seconds(work: Callable[[], object], rounds: int) -> float:
    """The best of many short rounds: what the work costs where nothing else disturbs it."""
    return min(timeit.repeat(work, number=1, repeat=rounds))


def compare() -> dict[str, float]:
    """Milliseconds on the last page of the recording: cold, warm and by the library; and the warm gain."""
    _, scrapes = read(RECORDING)
    *_, last = scrapes
    cache = SeriesCache(wanted)
    text = last.body.decode()
    warm = best_seconds(lambda: parse(last.body, cache), 20 * ROUNDS)
    cold = best_seconds(lambda: parse(last.body, SeriesCache(wanted)), ROUNDS)
    library = best_seconds(lambda: list(text_string_to_metric_families(text)), ROUNDS)
    return {
        "lines": text.count("\n"),
        "series": len(parse(last.body, cache).series),
        "cold_milliseconds": cold * 1e3,
        "warm_milliseconds": warm * 1e3,
        "library_milliseconds": library * 1e3,
        "warm_gain": library / warm,
    }


def main() -> None:
    """Print the comparison."""
    figures = compare()
    print(f"a page of vLLM 0.24: {figures['lines']:.0f} lines, {figures['series']:.0f} series of interest")
    print(f"  first sight        {figures['cold_milliseconds']:7.2f} ms")
    print(f"  known              {figures['warm_milliseconds']:7.3f} ms")
    print(
        f"  prometheus_client  {figures['library_milliseconds']:7.2f} ms, {figures['warm_gain']:.0f} times as long"
    )


if __name__ == "__main__":
    main()
