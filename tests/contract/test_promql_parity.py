"""Every signal and its PromQL mean the same: both over recordings of several versions, in a real Prometheus.

Prometheus holds all recordings at once, each as an instance of its own, so that one query asks for all of them. Their
pages are put 4.95 s apart and end at the same moment: the pages of our windows of 30 s, 10 s and ten minutes are then
those of Prometheus' ranges, whether it counts the far edge of a range in (2.x) or not (3.x).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from tests.contract.programs import Process, free_port, get, program, run
from tests.pages import histogram, line
from tests.places import RECORDINGS
from watchdog.history.history import History
from watchdog.history.names import COUNTERS, GAUGES, HISTOGRAMS, wanted
from watchdog.history.span import life_span, now_span, recent_span, span_between
from watchdog.model import Lookup, Subject
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.recording import read
from watchdog.signals.catalogue import CATALOGUE, Signal, Signals
from watchdog.signals.functions import View
from watchdog.signals.promql import NOW, NoPromQL, Stretch

SECONDS_APART = 4.95
# Ten minutes and a window before the end, so that rates over ten minutes are over all of it.
PAGES = 130
# Where no count lies within the tolerance of the fewest observations that a signal asks for.
LEFT_OUT = 2
END = 1_700_000_000
NAMES = (
    "v0.8.5-V0-kv-pool-exhausted",
    "v0.10.2-preemption-thrash",
    "v0.10.2-healthy",
    "h200-kv-pool-exhausted",
    "h200-prefix-cache-ineffective",
    "kv-pool-exhausted",
    "spec-decode",
    "engine-hang",
    "client-aborts",
    "dp-imbalance",
)

TOLERANCE = 0.02
SLACK = 1e-9
# A share moves by what one of the pages in a window weighs; the steps of a subquery are a second apart.
SLACK_BY_NAME = (("share_of_time", 0.21), ("seconds_since_progress", 2.0))


class Moment(NamedTuple):
    """Pages before the last one, and the stretch that is asked about there."""

    pages_ago: int
    stretch: Stretch

    @property
    def at(self) -> float:
        return END - self.pages_ago * SECONDS_APART

    @property
    def asked_at(self) -> float:
        """Our ten minutes end with the page where the window begins: so do those asked about a little later."""
        return self.at if self.stretch is NOW else self.at + 1.0


TEN_MINUTES = Stretch(600, 600, 600, ago=30)
MOMENTS = (Moment(0, NOW), Moment(20, NOW), Moment(0, TEN_MINUTES))


class Recorded(NamedTuple):
    """The pages of one server, the newest last."""

    instance: str
    pages: tuple[str, ...]

    def was_seen(self, moment: Moment) -> bool:
        """Whether it was seen for as long as the stretch is; Prometheus divides a rate by all of it."""
        return moment.stretch is NOW or len(self.pages) == PAGES


def recorded() -> Iterator[Recorded]:
    for name in NAMES:
        _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
        pages = [scrape.body.decode() for scrape in scrapes if scrape.failure is None]
        yield Recorded(name, tuple(pages[-PAGES - LEFT_OUT : -LEFT_OUT]))
    yield Recorded("made", tuple(made_page(number) for number in range(PAGES)))


def made_page(number: int) -> str:
    """A page on which every metric that is read moves: what no recording of ours has is compared on it."""
    of_labels = {
        "num_requests_waiting_by_reason": ('reason="deferred"', 'reason="capacity"'),
        "engine_sleep_state": ('sleep_state="awake"',),
        "prompt_tokens_by_source_total": ('source="local_compute"', 'source="local_cache_hit"'),
        "request_success_total": tuple(
            f'finished_reason="{reason}"' for reason in ("stop", "length", "abort", "error")
        ),
    }
    owner = 'model_name="made",engine="0"'
    texts = []
    for place, name in enumerate([*sorted(GAUGES), *sorted(COUNTERS)], start=2):
        value = (3 + number * place % 7) / 10 if name in GAUGES else 1e6 + 100.0 * place * number + number % 5
        texts += [line(name, value, f"{owner},{more}") for more in of_labels.get(name, ('x="y"',))]
    for place, name in enumerate(sorted(HISTOGRAMS), start=1):
        counts = {
            0.1: 7.0 * number,
            0.5: 19.0 * number,
            3.0: (20.0 + place) * number,
            float("inf"): 60.0 * number,
        }
        texts.append(histogram(name, counts, 40.0 * number * place, owner))
    for handler in ("/v1/completions", "/v1/chat/completions", "/v1/models"):
        for status in ("2xx", "5xx"):
            labels = f'handler="{handler}",method="POST",status="{status}"'
            texts.append(f"http_requests_total{{{labels}}} {len(handler) * number}\n")
    texts.append(f"process_open_fds {30 + number % 4}\nprocess_cpu_seconds_total {number * 3}\n")
    return "".join(texts)


def openmetrics(servers: list[Recorded]) -> str:
    """The samples with their times, a metric's together, as promtool wants them for a backfill."""
    samples: dict[str, list[str]] = {}
    for server in servers:
        for number, page in enumerate(server.pages, start=1 - len(server.pages)):
            at = f"{END + number * SECONDS_APART:.3f}"
            for text in page.splitlines():
                series, _, value = text.rpartition(" ")
                name, _, labels = series.partition("{")
                if not text.startswith("#") and wanted(name):
                    inside = ",".join(
                        filter(None, (f'instance="{server.instance}"', labels.rstrip("}").rstrip(",")))
                    )
                    samples.setdefault(name, []).append(f"{name}{{{inside}}} {value} {at}")
    return "\n".join(text for lines in samples.values() for text in lines) + "\n# EOF\n"


class Both(NamedTuple):
    """The signals of each engine at each moment, and the Prometheus that holds the same pages."""

    url: str
    ours: dict[Moment, dict[tuple[str, str, str], Lookup]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("prometheus")
    servers = list(recorded())
    (folder / "pages.txt").write_text(openmetrics(servers))
    run("promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "pages.txt", folder / "data")
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    url = f"http://127.0.0.1:{free_port()}"
    command: list[str | Path] = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with Process(command, f"{url}/-/ready", folder / "prometheus.log"):
        yield Both(url, {moment: ours(servers, moment) for moment in MOMENTS})


def ours(servers: list[Recorded], moment: Moment) -> dict[tuple[str, str, str], Lookup]:
    """What the signals of each engine look up, by instance, model and engine."""
    lookups: dict[tuple[str, str, str], Lookup] = {}
    for server in (one for one in servers if one.was_seen(moment)):
        cache, history = SeriesCache(wanted), History()
        seen = server.pages[: len(server.pages) - moment.pages_ago]
        for number, page in enumerate(seen):
            at = moment.at - (len(seen) - 1 - number) * SECONDS_APART
            assert history.append(parse(page.encode(), cache), at) == (), (
                "a restart is no part of what is compared"
            )
        for engine in history.subjects():
            subject = Subject("t", *engine)
            lookups[server.instance, *engine] = Signals(view_of(history, subject, moment))
    return lookups


def view_of(history: History, subject: Subject, moment: Moment) -> View:
    """The spans of our signals that are the ranges of its queries."""
    if moment.stretch is NOW:
        return View(now_span(history, subject), recent_span(history, subject), life_span(history, subject))
    end = history.times[-1] - moment.stretch.ago * 0.98
    span = span_between(history, subject, end - moment.stretch.window, end)
    return View(span, span, span)


def theirs(url: str, query: str, at: float) -> list[tuple[dict[str, str], float]]:
    answer: Any = get(f"{url}/api/v1/query?time={at:.3f}&query={quote(query, safe='')}")
    assert answer is not None, query
    return [(row["metric"], float(row["value"][1])) for row in answer["data"]["result"]]


def is_of(labels: dict[str, str], instance: str, model_name: str, engine: str) -> bool:
    """Whether a value is that engine's; one without these labels is every engine's."""
    owner = {"instance": instance, "model_name": model_name, "engine": engine}
    return all(labels.get(name, value) == value for name, value in owner.items())


WITH_PROMQL = [one for _, one in sorted(CATALOGUE.items()) if not isinstance(one.formula.promql, NoPromQL)]
WITHOUT = [one for _, one in sorted(CATALOGUE.items()) if isinstance(one.formula.promql, NoPromQL)]


@pytest.mark.parametrize("signal", WITH_PROMQL, ids=lambda signal: signal.name)
def test_a_signal_and_its_promql_mean_the_same(both: Both, signal: Signal) -> None:
    slack = next((slack for end, slack in SLACK_BY_NAME if signal.name.endswith(end)), SLACK)
    known = 0
    for moment in MOMENTS:
        query = signal.formula.query(moment.stretch)
        assert query is not None
        rows = theirs(both.url, query, moment.asked_at)
        engines = both.ours[moment]
        instances = {instance for instance, _, _ in engines}
        for labels, _ in rows:
            assert labels["instance"] not in instances or any(is_of(labels, *engine) for engine in engines)
        for engine, lookup in engines.items():
            expected = lookup(signal.name)
            found = [value for labels, value in rows if is_of(labels, *engine)]
            place = f"{engine} {moment.pages_ago} pages before the end: {expected} here, {found} there"
            assert len(found) == (expected is not None), place
            if expected is not None:
                known += 1
                assert found[0] == pytest.approx(expected, rel=TOLERANCE, abs=slack), place
    assert known >= 2, "nothing was compared"


@pytest.mark.parametrize("signal", WITHOUT, ids=lambda signal: signal.name)
def test_a_signal_without_promql_says_why(signal: Signal) -> None:
    assert isinstance(signal.formula.promql, NoPromQL)
    assert re.fullmatch(r"[a-zA-Z`].{20,}[^.]", signal.formula.promql.reason)
    assert signal.formula.query() is None
