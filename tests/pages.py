"""Pages of a made-up engine, for tests of what is computed from pages."""

from collections.abc import Iterable, Mapping

from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.model import Failure, Reason, Scrape, ServerInfo
from watchdog.scrape.exposition import SeriesCache, parse

LABELS = 'model_name="m",engine="0"'


def line(name: str, value: float, labels: str = LABELS) -> str:
    """One sample of vLLM."""
    return f"vllm:{name}{{{labels}}} {value!r}\n"


def histogram(name: str, counts: Mapping[float, float], total: float, labels: str = LABELS) -> str:
    """A histogram by the cumulated counts of its bounds."""
    text = ""
    for bound, count in counts.items():
        edge = "+Inf" if bound == float("inf") else repr(bound)
        text += line(f"{name}_bucket", count, f'{labels},le="{edge}"')
    most = max(counts.values(), default=0.0)
    return text + line(f"{name}_sum", total, labels) + line(f"{name}_count", most, labels)


def page(labels: str = LABELS, **values: float) -> str:
    """A page of plain samples."""
    return "".join(line(name, value, labels) for name, value in values.items())


def scrape(at: float, text: str, wall: float | None = None, server_info: ServerInfo | None = None) -> Scrape:
    """A scrape that answered 200 with this text."""
    return Scrape(
        at, at if wall is None else wall, 0.01, 200, text.encode(), None, server_info or ServerInfo()
    )


def failed(at: float, reason: Reason = Reason.REFUSED, status: int = 0) -> Scrape:
    """A scrape that gave nothing."""
    return Scrape(at, at, 0.01, status, b"", Failure(reason, str(reason)))


def history_of(pages: Iterable[tuple[float, str]]) -> History:
    """A history of pages at their times."""
    cache, history = SeriesCache(wanted), History()
    for at, text in pages:
        history.append(parse(text.encode(), cache), at)
    return history
