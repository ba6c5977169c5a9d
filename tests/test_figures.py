"""What the documents say that `serve` costs is one figure everywhere, and the bench writes it."""

from pathlib import Path

from tests.bench.endless import Endless
from tests.bench.figures import PLACES, told
from tests.bench.storm import target_seconds
from watchdog.history.names import wanted
from watchdog.scrape.exposition import SeriesCache, parse


def test_every_document_tells_the_same_cost() -> None:
    figures: dict[int, set[tuple[str, str]]] = {}
    for place in PLACES:
        figures.setdefault(place.targets, set()).add(told(place))
    assert {targets: len(found) for targets, found in figures.items()} == dict.fromkeys(figures, 1)


def test_pages_without_end_have_counters_that_never_fall() -> None:
    endless = Endless("h200-healthy")
    cache, before = SeriesCache(wanted), None
    for second in range(0, 400, 7):
        page = parse(endless.page(second), cache)
        now = dict(zip((each.name for each in page.series), page.values, strict=False))
        if before is not None:
            assert now["vllm:generation_tokens_total"] >= before["vllm:generation_tokens_total"]
            assert now.keys() == before.keys()
        before = now


def test_a_storm_costs_a_target_the_same_however_many_fire(tmp_path: Path) -> None:
    """One of 16 times as many costs twice as much at most: CPU, and some of it is the clock's."""
    few, many = tmp_path / "few", tmp_path / "many"
    for directory in (few, many):
        directory.mkdir()
    cost = {25: target_seconds(25, few), 400: target_seconds(400, many)}
    for part in ("begins", "goes on", "ends"):
        assert cost[400][part] < 2 * cost[25][part] + 100e-6, part
