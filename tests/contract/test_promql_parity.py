"""A signal and its PromQL mean the same: both over one recording, the PromQL in a real Prometheus."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.contract.programs import Process, free_port, get, program, run
from tests.places import RECORDINGS
from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.history.span import baseline_span, life_span, now_span, recent_span
from watchdog.model import Lookup, Scrape, Subject
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.recording import read, thin
from watchdog.signals.algebra import View
from watchdog.signals.catalogue import formula, lookup_of

# Prometheus extrapolates to the edges of its window, and its window may lack the page at the far edge.
TOLERANCE = 0.12
SIGNALS = (
    "running_last",
    "running_mean",
    "running_peak",
    "waiting_last",
    "waiting_mean",
    "waiting_max",
    "kv_usage_last_ratio",
    "kv_usage_mean_ratio",
    "kv_usage_peak_ratio",
    "open_files",
    "preemptions_per_second",
    "first_tokens",
    "first_tokens_per_second",
    "finished_per_second",
    "generation_tokens_per_second",
    "prompt_tokens_per_second",
    "steps_per_second",
    "tokens_per_step",
    "prompt_tokens_per_first_token",
    "prompt_tokens_mean",
    "request_tokens_mean",
    "ttft_mean_seconds",
    "ttft_p50_seconds",
    "ttft_p95_seconds",
    "itl_mean_seconds",
    "itl_p50_seconds",
    "itl_p99_seconds",
    "queue_mean_seconds",
    "e2e_p50_seconds",
    "e2e_mean_seconds",
    # Not a rate: Prometheus divides by its whole window, of which ten minutes were not yet seen.
    "ttft_p50_seconds_baseline",
    "itl_p50_seconds_baseline",
)


def pages() -> list[Scrape]:
    """One page every 5 s, at times that are whole seconds, of a server whose pool runs full."""
    return list(thin(read(RECORDINGS / "h200-kv-pool-exhausted.jsonl.xz")[1], 5))


def openmetrics(scrapes: list[Scrape], begin: int) -> str:
    """The samples with their times, a metric's together, as promtool wants them for a backfill."""
    samples: dict[str, list[str]] = {}
    for index, scrape in enumerate(scrapes):
        for line in scrape.body.decode().splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                samples.setdefault(series.split("{")[0], []).append(f"{series} {value} {begin + 5 * index}")
    return "\n".join(text for lines in samples.values() for text in lines) + "\n# EOF\n"


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Scrape], int]]:
    """A Prometheus that holds the recording, and nothing else."""
    folder = tmp_path_factory.mktemp("prometheus")
    scrapes = pages()
    begin = int(scrapes[0].wall)
    (folder / "pages.txt").write_text(openmetrics(scrapes, begin))
    run("promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "pages.txt", folder / "data")
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with Process(command, f"{url}/-/ready", folder / "prometheus.log"):
        yield url, scrapes, begin


def ours(scrapes: list[Scrape]) -> Lookup:
    cache, history = SeriesCache(wanted), History()
    for index, scrape in enumerate(scrapes):
        history.append(parse(scrape.body, cache), 5.0 * index)
    subject = Subject("t", *history.subjects()[0])
    spans = (now_span(history, subject), recent_span(history, subject), life_span(history, subject))
    return lookup_of(View(*spans, baseline_span(history, subject)))


def theirs(url: str, name: str, at: int) -> float | None:
    query = formula(name).promql("30s").replace("\n", " ")
    answer: Any = get(f"{url}/api/v1/query?time={at}&query={quote(query, safe='')}")
    assert answer is not None, query
    values = [float(row["value"][1]) for row in answer["data"]["result"]]
    return values[0] if values else None


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("moment", [20, 27], ids=["exhausted", "later"])
def test_a_signal_and_its_promql_mean_the_same(
    prometheus: tuple[str, list[Scrape], int], name: str, moment: int
) -> None:
    url, scrapes, begin = prometheus
    at = begin + 5 * moment
    if name.endswith("_baseline"):
        at -= 30  # the baseline ends where now begins
    expected = ours(scrapes[: moment + 1])(name)
    found = theirs(url, name, at)
    assert expected is not None
    assert found is not None
    assert found == pytest.approx(expected, rel=TOLERANCE, abs=0.02)
