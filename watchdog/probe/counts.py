"""A few numbers of one metrics page, summed over its engines: what a probe compares before and after."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from watchdog.history.names import PREFIX, spellings, wanted
from watchdog.model import Page, Scrape
from watchdog.scrape.exposition import ExpositionError, SeriesCache, parse

_CONFIG = PREFIX + "cache_config_info"
_SLEEP = PREFIX + "engine_sleep_state"
_SUMS = {
    "running": "num_requests_running",
    "waiting": "num_requests_waiting",
    "prompt_tokens": "prompt_tokens_total",
    "generation_tokens": "generation_tokens_total",
    "steps": "iteration_tokens_total_count",
    "first_tokens": "time_to_first_token_seconds_count",
    "queue_seconds": "request_queue_time_seconds_sum",
    "queue_requests": "request_queue_time_seconds_count",
    "prefix_queries": "prefix_cache_queries_total",
    "prefix_hits": "prefix_cache_hits_total",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """One page in numbers; a name is missing from `sums` where the page does not have it.

    `kv_usage_ratio` is that of the fullest engine; `asleep` None where the page does not tell; `config` holds the
    labels of cache_config_info.
    """

    sums: Mapping[str, float]
    kv_usage_ratio: float | None
    asleep: bool | None
    config: Mapping[str, str]

    def __getitem__(self, name: str) -> float | None:
        return self.sums.get(name)

    @property
    def block_size_tokens(self) -> int | None:
        """Tokens of a block, the least that a prefix must share; None where the page does not tell."""
        text = self.config.get("block_size", "")
        return int(text) if text.isdigit() and 0 < len(text) < 7 else None

    def progress(self) -> tuple[float | None, ...]:
        """What moves with each step."""
        return tuple(self[name] for name in ("steps", "generation_tokens", "prompt_tokens", "first_tokens"))

    def since(self, before: "Counts", name: str) -> float | None:
        """By how much a counter grew; None where a page lacks it or the server started again between them."""
        now, then = self[name], before[name]
        return None if now is None or then is None or now < then else now - then


def counts_of(scrape: Scrape) -> Counts | None:
    """The numbers of a page; None where there is no page, or none of vLLM."""
    if scrape.failure is not None:
        return None
    try:
        page = parse(scrape.body, SeriesCache(wanted))
    except ExpositionError:
        return None
    if not any(series.name.startswith(PREFIX) for series in page.series):
        return None
    return Counts(
        sums={name: total for name, metric in _SUMS.items() if (total := _sum(page, metric)) is not None},
        kv_usage_ratio=max(_values(page, "kv_cache_usage_perc"), default=None),
        asleep=_asleep(page),
        config=next((series.labels for series in page.series if series.name == _CONFIG), {}),
    )


def _values(page: Page, metric: str) -> list[float]:
    for spelling in spellings(PREFIX + metric):
        found = [
            value
            for series, value in zip(page.series, page.values, strict=True)
            if series.name == spelling and not isnan(value)
        ]
        if found:
            return found
    return []


def _sum(page: Page, metric: str) -> float | None:
    found = _values(page, metric)
    return sum(found) if found else None


def _asleep(page: Page) -> bool | None:
    awake = [
        value
        for series, value in zip(page.series, page.values, strict=True)
        if series.name == _SLEEP and series.labels.get("sleep_state", "awake") == "awake"
    ]
    return None if not awake else not all(awake)
