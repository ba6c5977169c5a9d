"""What targets of one build share, and that it is the same as what each would have by itself."""

import gc
import random

from tests.places import RECORDINGS
from watchdog.history.history import History
from watchdog.history.names import wanted
from watchdog.history.shapes import Lines, Shapes
from watchdog.scrape.exposition import SeriesCache, parse
from watchdog.scrape.recording import read

PAGES = 4


def bodies(name: str) -> list[bytes]:
    _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    return [scrape.body for scrape in scrapes if scrape.body][10 : 10 + PAGES]


class OneTarget:
    def __init__(self, shapes: Shapes | None) -> None:
        self.cache = SeriesCache(wanted, shapes=shapes)
        self.history = History(shapes=shapes)

    def see(self, body: bytes) -> None:
        self.page = parse(body, self.cache)
        self.history.append(self.page, float(len(self.history.times)))


def test_targets_of_one_build_share_series_layout_and_lines() -> None:
    shapes = Shapes()
    one, other = OneTarget(shapes), OneTarget(shapes)
    for body in bodies("h200-healthy"):
        one.see(body)
        other.see(body)
    assert all(a is b for a, b in zip(one.page.series, other.page.series, strict=True))
    assert one.history.frames[-1].layout is other.history.frames[-1].layout
    assert isinstance(one.cache._younger, Lines)
    assert one.cache._younger is other.cache._younger


def test_what_is_shared_reads_as_what_is_not() -> None:
    """Pages of several builds in any order, some of them with lines that only one target has."""
    shapes, chance = Shapes(), random.Random(7)
    pages = [body for name in ("h200-healthy", "healthy", "dp-imbalance") for body in bodies(name)]
    shared = [OneTarget(shapes) for _ in range(3)]
    alone = [OneTarget(None) for _ in range(3)]
    for step in range(60):
        which, body = chance.randrange(3), chance.choice(pages)
        if chance.random() < 0.2:
            body += b'vllm:num_requests_waiting{model_name="extra",engine="%d"} 3\n' % step
        shared[which].see(body)
        alone[which].see(body)
        a, b = shared[which], alone[which]
        assert a.page.values == b.page.values
        assert [(s.name, s.labels) for s in a.page.series] == [(s.name, s.labels) for s in b.page.series]
        assert a.history.subjects() == b.history.subjects()


def test_what_no_target_uses_any_more_is_forgotten() -> None:
    shapes = Shapes()
    target = OneTarget(shapes)
    for body in bodies("h200-healthy"):
        target.see(body)
    assert all((shapes._series, shapes._layouts, shapes._lines))
    del target
    gc.collect()
    assert not any((shapes._series, shapes._layouts, shapes._lines))


def test_a_series_in_two_spellings_is_one_on_a_page_and_two_between_pages() -> None:
    shapes = Shapes()
    plain, ray = OneTarget(shapes), OneTarget(shapes)
    line = b'vllm:num_requests_running{model_name="m",engine="0"} 1\n'
    plain.see(line)
    ray.see(b"ray_" + line)
    assert (plain.page.series[0].leaves_zeros_out, ray.page.series[0].leaves_zeros_out) == (False, True)
    plain.see(line + b"ray_" + line)
    assert len(plain.page.series) == 1
