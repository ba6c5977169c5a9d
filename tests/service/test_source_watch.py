"""What one Prometheus scrapes, look by look: servers that come, go or are missed, and a Prometheus in trouble."""

import logging
import time
from collections.abc import Iterator

import pytest

from tests.a_prometheus import APrometheus
from tests.waiting import until
from tests.watching import shipped_rules
from watchdog.model import Snapshot, Target, Verdict
from watchdog.notify.announcements import Ledger, MemoryLedger
from watchdog.service import source_watch
from watchdog.service.service import Service
from watchdog.service.source_watch import ServerWatch, SourceWatch, Surroundings
from watchdog.settings.model import Settings, load
from watchdog.settings.prometheus import SourceSettings

ONE = {"instance": "a:8000", "job": "vllm"}
TWO = {"instance": "b:8000", "job": "vllm"}


class Household:
    """A source and what it tells; `ended` are the servers that are over."""

    def __init__(
        self, prometheus: APrometheus, ledger: Ledger | None = None, since: float | None = None
    ) -> None:
        self.told: list[Snapshot] = []
        self.ended: list[str] = []
        self.names: set[str] = set()
        self.addresses: set[str] = set()
        around = Surroundings(self._begin, self._end, lambda: self.names, lambda: self.addresses)
        settings = SourceSettings.model_validate({"name": "here", "url": prometheus.url})
        self.source = SourceWatch(settings, around, ledger or MemoryLedger(), since)

    def _begin(self, target: Target) -> ServerWatch:
        return ServerWatch(target, shipped_rules(), self.told.append)

    def _end(self, server: ServerWatch) -> None:
        self.ended.append(server.target.name)

    def verdicts(self) -> dict[str, Verdict | None]:
        servers = self.source.servers.items()
        return {name: each.snapshot.verdict if each.snapshot else None for name, each in servers}


@pytest.fixture
def prometheus() -> Iterator[APrometheus]:
    with APrometheus() as one:
        yield one


def test_a_look_is_one_query_whatever_the_number_of_servers(prometheus: APrometheus) -> None:
    for number in range(20):
        prometheus.scraped({"instance": f"{number}:80", "job": "vllm"}, 40, 25, 10)
    home = Household(prometheus)
    home.source.poll()
    assert len(home.source.servers) == 20
    asked = len(prometheus.queries)
    home.source.poll()
    assert len(prometheus.queries) == asked + 1
    # Each look tells of each server, that its alerts go on: a scrape is judged once.
    assert [each.scrapes for each in home.told] == [3] * 40


def test_one_failed_look_says_nothing_and_a_second_makes_all_unknown(
    prometheus: APrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    prometheus.scraped(ONE, 40, 25, 10)
    home = Household(prometheus)
    home.source.poll()
    before = home.verdicts()
    prometheus.status = 503
    home.source.poll()
    assert home.verdicts() == before
    home.source.poll()
    home.source.poll()
    assert home.verdicts() == {"a:8000": Verdict.UNKNOWN}
    failure = home.told[-1].failure
    assert failure is not None
    assert "its Prometheus cannot be read" in failure.detail
    assert "it is tired" in failure.detail
    assert "no server of the Prometheus here is seen" in home.source.note
    assert home.source.figures[1:2] == (False,)
    prometheus.status = 200
    prometheus.scraped(ONE, 0.5)
    home.source.poll()
    assert home.verdicts() == before
    assert home.source.note == ""
    assert [each.message for each in caplog.records].count("prometheus_failed") == 1


def test_what_a_partial_answer_lacks_is_not_gone(
    prometheus: APrometheus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source_watch, "GONE_SECONDS", 0.0)
    prometheus.scraped(ONE, 130, 115, 100)
    home = Household(prometheus)
    prometheus.targets, prometheus.warnings = [], ["a store is away"]
    home.source.poll()
    home.source.poll()
    assert (home.ended, home.verdicts()) == ([], {"a:8000": Verdict.UNKNOWN})
    assert "no longer scrapes it" in str(home.told[-1].failure)
    prometheus.warnings = []
    home.source.poll()
    home.source.poll()
    assert (home.ended, home.verdicts()) == (["a:8000"], {})
    assert "a store is away" in [getattr(each, "note", "") for each in caplog.records]
    # Its last scrapes are still there to be read: they do not begin it again.
    home.source.poll()
    assert home.verdicts() == {}


def test_a_server_that_is_not_scraped_any_more_is_unknown_and_kept(
    prometheus: APrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_watch, "GONE_SECONDS", 0.0)
    prometheus.scraped(ONE, 400, 385, 370)
    prometheus.scraped(TWO, 40, 25, 10)
    prometheus.targets = [TWO]
    home = Household(prometheus)
    home.source.poll()
    home.source.poll()
    # Nobody is shown for longer than five minutes: that it is not shown says nothing of whether it left.
    assert home.verdicts()["a:8000"] is Verdict.UNKNOWN
    assert home.ended == []


def test_what_comes_late_to_all_is_missed_by_none(prometheus: APrometheus) -> None:
    prometheus.scraped(ONE, 120, 105, 90)
    prometheus.scraped(TWO, 220, 205, 190)
    home = Household(prometheus)
    home.source.poll()
    prometheus.scraped(ONE, 75)
    home.source.poll()
    home.source.poll()
    last = {each.target.name: each.failure for each in home.told}
    assert last["a:8000"] is None
    assert "no longer scrapes it" in str(last["b:8000"])


def test_a_clock_that_is_ahead_is_read_by_its_own_time_and_told_in_ours(prometheus: APrometheus) -> None:
    prometheus.ahead_seconds = 3600.0
    prometheus.scraped(ONE, 40, 25, 10)
    home = Household(prometheus)
    home.source.poll()
    home.source.poll()
    [snapshot] = home.told[-1:]
    assert snapshot.scrapes == 3
    assert abs(time.time() - snapshot.wall - 10) < 5


def test_harmful_text_in_labels_harms_no_server(prometheus: APrometheus) -> None:
    harmful = "a\ud800\x1b[31m\n/\u202e"
    prometheus.scraped({"instance": harmful, "job": "vllm", "zone": harmful}, 25, 10)
    prometheus.scraped(ONE, 25, 10)
    home = Household(prometheus)
    home.source.poll()
    home.source.poll()
    assert {each.scrapes for each in home.told} == {2}
    for server in home.source.servers.values():
        target = server.target
        assert all(text.isprintable() for text in (target.name, target.url, *target.labels.values()))


def test_what_we_scrape_ourselves_is_not_watched_twice_and_names_are_not_shared(
    prometheus: APrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    prometheus.scraped(ONE, 25, 10)
    prometheus.scraped(TWO, 25, 10)
    home = Household(prometheus)
    home.addresses, home.names = {"a:8000"}, {"b:8000"}
    home.source.poll()
    assert list(home.source.servers) == ["b:8000 2"]
    assert "not watched twice" in " ".join(getattr(each, "note", "") for each in caplog.records)


def test_a_page_of_which_a_part_is_on_its_way_is_left_for_the_next_look(prometheus: APrometheus) -> None:
    whole = [f'vllm:num_requests_{name}{{engine="0",model_name="m"}} 1' for name in ("running", "waiting")]
    at = round(prometheus.now - 5, 3)
    prometheus.pages = [(ONE, {at - 15: whole, at: whole[:1]})]
    home = Household(prometheus)
    home.source.poll()
    assert home.told[-1].scrapes == 1
    prometheus.pages = [(ONE, {at - 15: whole, at: whole})]
    home.source.poll()
    assert home.told[-1].scrapes == 2


def test_an_earlier_life_is_gone_on_with_and_its_servers_end_where_they_left(
    prometheus: APrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = MemoryLedger()
    prometheus.scraped(ONE, 40, 25, 10)
    prometheus.scraped(TWO, 40, 25, 10)
    Household(prometheus, ledger).source.poll()
    prometheus.pages.pop()
    prometheus.targets = [ONE]
    monkeypatch.setattr(source_watch, "GONE_SECONDS", 0.0)
    home = Household(prometheus, ledger, since=prometheus.now - 20)
    assert set(home.source.servers) == {"a:8000", "b:8000"}
    home.source.poll()
    # Of the three scrapes two were judged before; they are remembered all the same.
    assert [each.scrapes for each in home.told if each.target.name == "a:8000"] == [3]
    home.source.poll()
    assert (home.ended, list(ledger.load())) == (["b:8000"], ["a:8000"])


def test_a_source_with_other_settings_goes_on_with_the_servers(
    prometheus: APrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watchdog")
    prometheus.scraped(ONE, 40, 25, 10)
    home, after = Household(prometheus), Household(prometheus)
    home.source.poll()
    [server] = home.source.servers.values()
    after.source.adopt(home.source)
    after.source.poll()
    assert list(after.source.servers.values()) == [server]
    asked = len(prometheus.queries)
    home.source.poll()
    assert len(prometheus.queries) == asked
    after.source.end_all()
    assert after.ended == ["a:8000"]


@pytest.mark.usefixtures("restored_root_logger")
def test_a_reload_takes_a_prometheus_in_and_out(prometheus: APrometheus) -> None:
    prometheus.scraped(ONE, 40, 25, 10)
    given: dict[str, object] = {}

    def configured() -> Settings:
        return load(None, given, {})

    service = Service(configured(), configured)
    service.start()
    try:
        given["prometheus"] = [{"url": prometheus.url, "interval_seconds": 1}]
        assert service.reload() == ()
        until(service.snapshots)
        [target] = service.targets()
        assert (target.name, target.labels) == ("a:8000", ONE)
        assert service.registry.get_sample_value(
            "vllm_watchdog_prometheus_servers", {"prometheus": prometheus.url.removeprefix("http://")}
        )
        given["prometheus"] = [{"url": prometheus.url, "interval_seconds": 1, "match": 'job="vllm"'}]
        assert service.reload() == ()
        assert [each.name for each in service.targets()] == ["a:8000"]
        given.clear()
        assert service.reload() == ()
        assert service.targets() == []
    finally:
        service.stop(1.0)
