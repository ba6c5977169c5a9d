"""The running service, in this process, against servers on loopback."""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.commands import RECORDING, write_rule
from tests.pagers import Inbox, Pager
from tests.servers import Server, answer, closed_port, hang, request, serving
from tests.waiting import until
from watchdog.diagnosis import inherited
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import RuleError
from watchdog.model import EnginePast, Incident, Snapshot, State, Subject, Transition, Verdict
from watchdog.replay.demo_server import ReplayServer
from watchdog.rule.in_force import RuleFiles
from watchdog.scrape.recording import read
from watchdog.service.service import Service
from watchdog.settings.model import RuleSettings, Settings, load
from watchdog.state import database
from watchdog.state.database import Mode
from watchdog.state.store import FILE_NAME, Store

pytestmark = pytest.mark.usefixtures("restored_root_logger")

INTERVAL_SECONDS = 0.1


@pytest.fixture(scope="module")
def page() -> bytes:
    _, scrapes = read(RECORDING)
    return next(scrapes).body


class Configured:
    """Settings that a test changes between two reloads."""

    def __init__(self, rules: Path, *targets: Any, **more: Any) -> None:
        self.values: dict[str, Any] = {
            "targets": list(targets),
            "scrape.interval_seconds": INTERVAL_SECONDS,
            "rules.shipped": False,
            "rules.directories": [str(rules)],
            **more,
        }

    def __call__(self) -> Settings:
        return load(None, self.values, {})


@contextmanager
def running(configured: Callable[[], Settings], started: bool = True) -> Iterator[Service]:
    service = Service(configured(), configured)
    service.start()
    try:
        if started:
            until(lambda: service.started)
        yield service
    finally:
        service.stop(1.0)


def metric(service: Service, name: str, **labels: str) -> float | None:
    return service.registry.get_sample_value(f"vllm_watchdog_{name}", labels)


# Watching


def test_a_target_is_watched_from_its_first_interval_on(rules: Path, sick_server: ReplayServer) -> None:
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url})) as service:
        until(lambda: service.snapshots()["gpu"].scrapes >= 3)
        snapshot = service.snapshots()["gpu"]
        assert (snapshot.up, snapshot.verdict) == (True, Verdict.CRITICAL)
        assert snapshot.lead_incident is not None
        assert snapshot.lead_incident.labels == {"target": "gpu", "model_name": "tiny", "engine": "0"}
        until(service.cycle_alive)
        assert metric(service, "target_up", target="gpu") == 1


def test_version_and_models_are_asked_for_once_the_server_is_up(
    rules: Path, sick_server: ReplayServer
) -> None:
    with running(Configured(rules, sick_server.url)) as service:
        until(lambda: next(iter(service.snapshots().values())).vllm.version == "0.32.0")


def test_a_target_that_hangs_costs_the_others_nothing(rules: Path, sick_server: ReplayServer) -> None:
    with Server([request, hang]) as hung:
        targets = [{"name": f"hung-{number}", "url": f"{hung.url}?{number}"} for number in range(10)]
        configured = Configured(rules, *targets, {"name": "gpu", "url": sick_server.url})
        with running(configured) as service:

            def ten_scrapes_seconds() -> float:
                began, before = time.monotonic(), service.snapshots()["gpu"].scrapes
                until(lambda: service.snapshots()["gpu"].scrapes >= before + 10)
                return time.monotonic() - began

            # Once is enough: others may use the machine's cores, but hung targets are there all the time.
            until(lambda: ten_scrapes_seconds() < 20 * INTERVAL_SECONDS)
            failures = {
                reason
                for name, each in service.snapshots().items()
                if name != "gpu"
                for reason in each.failures
            }
            assert failures == {"timeout"}


def test_the_caps_of_the_settings_hold_for_pages(rules: Path, page: bytes) -> None:
    with Server(serving(answer(page))) as server:
        configured = Configured(rules, {"name": "gpu", "url": server.url}, **{"scrape.max_series": 10})
        with running(configured) as service:
            assert set(service.snapshots()["gpu"].failures) == {"too_large"}


def test_a_service_without_targets_starts_and_is_alive(rules: Path) -> None:
    with running(Configured(rules)) as service:
        until(service.cycle_alive)
        assert service.started
        assert service.targets() == []


def test_rules_that_do_not_load_refuse_the_start(rules: Path) -> None:
    write_rule(rules, "bad", **{"waiting_last > least": "waitin_last > least"})
    configured = Configured(rules)
    with pytest.raises(RuleError, match="waitin_last"):
        Service(configured(), configured)


# What goes wrong inside


def test_a_step_that_raises_is_counted_and_the_loop_goes_on(
    rules: Path, sick_server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = TargetDiagnosis.observe
    broken = False

    def observe_or_raise(self: TargetDiagnosis, scrape: Any) -> Any:
        if broken:
            raise ZeroDivisionError("a bug")
        return observe(self, scrape)

    monkeypatch.setattr(TargetDiagnosis, "observe", observe_or_raise)
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url})) as service:
        until(lambda: service.snapshots()["gpu"].verdict is Verdict.CRITICAL)
        since = service.snapshots()["gpu"].incidents[0].firing_since
        broken = True
        until(lambda: (metric(service, "cycle_errors_total", target="gpu") or 0) >= 4)
        assert service.snapshots()["gpu"].verdict is Verdict.UNKNOWN
        assert "failed inside the watchdog" in service.snapshots()["gpu"].notes[-1]
        until(lambda: not service.cycle_alive())
        broken = False
        until(lambda: service.snapshots()["gpu"].verdict is Verdict.CRITICAL)
        until(service.cycle_alive)
        # A fresh start of the diagnosis is no new incident.
        assert service.snapshots()["gpu"].incidents[0].firing_since == since


def test_an_output_that_raises_leaves_the_diagnosis_as_it_is(
    rules: Path, sick_server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("watchdog.notify.notifiers.Notifiers.observe", fail)
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url})) as service:
        until(lambda: (metric(service, "cycle_errors_total", target="gpu") or 0) >= 3)
        assert service.snapshots()["gpu"].verdict is Verdict.CRITICAL
        until(service.cycle_alive)


def test_ticks_that_come_while_a_scrape_lasts_are_skipped_and_counted(rules: Path) -> None:
    with Server([request, hang]) as hung:
        configured = Configured(rules, {"name": "gpu", "url": hung.url})
        # Any deadline must be shorter than the interval; a slow publisher is not bound by it.
        with running(configured, started=False) as service:
            slow = service._watches["gpu"]
            slow._publish = lambda _: time.sleep(5 * INTERVAL_SECONDS)
            until(lambda: (metric(service, "skipped_cycles_total", target="gpu") or 0) >= 3)
            assert hung.connections <= service.snapshots()["gpu"].scrapes + 1


# Reload


def test_reload_takes_targets_in_and_out_and_keeps_the_rest(rules: Path, page: bytes) -> None:
    with Server(serving(answer(page))) as one, Server(serving(answer(page))) as two:
        configured = Configured(rules, {"name": "one", "url": one.url})
        with running(configured) as service:
            kept = service._watches["one"]
            configured.values["targets"].append({"name": "two", "url": two.url})
            assert service.reload() == ()
            until(lambda: set(service.snapshots()) == {"one", "two"})
            assert service._watches["one"] is kept
            configured.values["targets"] = configured.values["targets"][1:]
            assert service.reload() == ()
            assert [target.name for target in service.targets()] == ["two"]
            scrapes = len(one.requests)
            time.sleep(3 * INTERVAL_SECONDS)
            assert len(one.requests) <= scrapes + 1


@pytest.mark.parametrize(("kept", "is_told"), [(0, True), (1, True), (2, False)])
def test_a_reload_to_far_fewer_targets_is_told(
    kept: int, is_told: bool, rules: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closed_port() as port:
        targets = [{"name": f"t{each}", "url": f"http://127.0.0.1:{port}/{each}"} for each in range(4)]
        configured = Configured(rules, *targets)
        with running(configured, started=False) as service, caplog.at_level(logging.WARNING):
            configured.values["targets"] = targets[:kept]
            assert service.reload() == ()
    assert ("targets_dropped" in [record.message for record in caplog.records]) is is_told


def test_a_target_that_is_gone_ends_its_alerts(rules: Path, sick_server: ReplayServer) -> None:
    with Pager() as pager:
        configured = Configured(
            rules, {"name": "gpu", "url": sick_server.url}, **{"alertmanager.urls": [pager.url]}
        )
        with running(configured) as service:
            until(lambda: ("VllmKvPoolExhausted", "firing") in _log(pager))
            configured.values["targets"] = []
            assert service.reload() == ()
            until(lambda: ("VllmKvPoolExhausted", "resolved") in _log(pager))


def test_a_bad_file_keeps_everything_as_it_was(rules: Path, sick_server: ReplayServer) -> None:
    configured = Configured(rules, {"name": "gpu", "url": sick_server.url})
    with running(configured) as service:
        before = service.rules
        path = write_rule(rules, "second", **{"waiting_last > least": "waitin_last > least"})
        [fault, *_] = service.reload()
        assert str(path) in fault
        assert service.rules is before
        assert metric(service, "config_last_reload_successful") == 0
        path.unlink()
        write_rule(rules, "third")
        assert service.reload() == ()
        assert [rule.id for rule in service.rules.rules] == ["kv-pool-exhausted", "third"]
        assert metric(service, "config_last_reload_successful") == 1
        assert metric(service, "rules") == 2


def test_bad_settings_keep_everything_as_it_was(rules: Path, sick_server: ReplayServer) -> None:
    configured = Configured(rules, {"name": "gpu", "url": sick_server.url})
    with running(configured) as service:
        configured.values["web.port"] = "many"
        assert re.search("web.port", "; ".join(service.reload()))
        configured.values["web.port"] = 1
        assert service.reload() == ()


def test_whatever_raises_in_a_reload_is_a_fault(rules: Path) -> None:
    configured = Configured(rules)

    def load_badly() -> Settings:
        raise OSError("the disk is gone")

    service = Service(configured(), load_badly)
    assert service.reload() == ["internal error: OSError"]
    service.stop(0.1)


def test_an_incident_keeps_its_identity_through_a_reload(rules: Path, sick_server: ReplayServer) -> None:
    configured = Configured(rules, {"name": "gpu", "url": sick_server.url})
    with running(configured) as service:
        until(lambda: service.snapshots()["gpu"].firing)
        before = service.snapshots()["gpu"].firing[0]
        write_rule(rules, **{"value: 0,": "value: 1,"})
        assert service.reload() == ()
        configured.values["targets"] = [
            {"name": "gpu", "url": sick_server.url, "expected_shared_prefix_tokens": 500}
        ]
        assert service.reload() == ()
        until(lambda: service.snapshots()["gpu"].target.expectations.expected_shared_prefix_tokens == 500)
        after = service.snapshots()["gpu"].firing[0]
        assert (after.key, after.pending_since, after.firing_since) == (
            before.key,
            before.pending_since,
            before.firing_since,
        )


def test_what_was_seen_of_a_server_outlives_a_reload_that_changes_how_it_is_watched(rules: Path) -> None:
    quick = {"target-down": {"parameters": {"least_seconds": 0.3}}}
    with closed_port() as port:
        down = {"name": "down", "url": f"http://127.0.0.1:{port}/metrics"}
        configured = Configured(rules, down, **{"rules.overrides": quick})
        configured.values |= {"rules.shipped": True, "rules.directories": []}
        with running(configured) as service:
            until(lambda: service.snapshots()["down"].firing)
            for change in (
                {"scrape.max_series": 1000},
                {"targets": [{**down, "slo": {"ttft_p95_seconds": 1}}]},
            ):
                before, watch = service.snapshots()["down"], service._watches["down"]
                configured.values |= change
                assert service.reload() == ()
                assert service._watches["down"] is not watch
                began = service.snapshots()["down"]
                until(partial(_has_scraped_since, service, began))
                after = service.snapshots()["down"]
                assert after.transitions == ()
                assert after.firing[0].firing_since == before.firing[0].firing_since
                failures = after.firing[0].evidence[0].values["failed_scrapes"]
                assert failures is not None
                assert failures > 3
            assert after.target.expectations.objectives.ttft_p95_seconds == 1


def _has_scraped_since(service: Service, before: Snapshot) -> bool:
    return service.snapshots()[before.target.name].scrapes > before.scrapes + 3


def test_another_server_under_the_same_name_is_watched_afresh(rules: Path, page: bytes) -> None:
    with Server(serving(answer(page))) as one, Server(serving(answer(page))) as two:
        configured = Configured(rules, {"name": "gpu", "url": one.url})
        with running(configured) as service:
            until(lambda: service.snapshots()["gpu"].scrapes > 5)
            configured.values["targets"] = [{"name": "gpu", "url": two.url}]
            assert service.reload() == ()
            until(lambda: service.snapshots()["gpu"].scrapes < 3)


def test_a_rule_that_is_gone_ends_its_incident(rules: Path, sick_server: ReplayServer) -> None:
    write_rule(rules, "other")
    configured = Configured(rules, {"name": "gpu", "url": sick_server.url})
    with running(configured) as service:
        until(lambda: len(service.snapshots()["gpu"].firing) == 2)
        (rules / "kv-pool-exhausted.yaml").unlink()
        assert service.reload() == ()
        until(lambda: [each.key.rule for each in service.snapshots()["gpu"].firing] == ["other"])


def test_alerts_go_where_the_new_settings_say(rules: Path, sick_server: ReplayServer) -> None:
    with Pager() as old, Pager() as new:
        configured = Configured(
            rules, {"name": "gpu", "url": sick_server.url}, **{"alertmanager.urls": [old.url]}
        )
        with running(configured) as service:
            until(lambda: ("VllmKvPoolExhausted", "firing") in _log(old))
            configured.values["alertmanager.urls"] = [new.url]
            assert service.reload() == ()
            until(lambda: ("VllmKvPoolExhausted", "firing") in _log(new))
            assert ("VllmKvPoolExhausted", "resolved") not in _log(old)


# Rule folders


def test_a_change_of_rule_files_counts_once_it_stands_still(rules: Path) -> None:
    files = RuleFiles(RuleSettings(directories=[rules], shipped=False))
    assert not files.changed(100.0)
    path = write_rule(rules, "second")
    assert not files.changed(105.0), "it may still be written"
    path.write_text(path.read_text() + "\n")
    assert not files.changed(110.0), "it was"
    assert not files.changed(111.0), "that was a second ago"
    assert files.changed(115.0)
    assert not files.changed(120.0)


def test_a_folder_that_is_gone_is_told_once(rules: Path) -> None:
    files = RuleFiles(RuleSettings(directories=[rules], shipped=False))
    for path in rules.iterdir():
        path.unlink()
    rules.rmdir()
    assert [files.changed(at) for at in (100.0, 105.0, 110.0, 115.0)] == [False, True, False, False]


def test_a_mount_that_is_swapped_is_read_anew(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    for version in ("one", "two"):
        write_rule(mount / version, f"rule-{version}")
    (mount / "..data").symlink_to("one")
    settings = RuleSettings(directories=[mount], shipped=False)
    files = RuleFiles(settings)
    (mount / "..new").symlink_to("two")
    (mount / "..new").rename(mount / "..data")
    assert [files.changed(at) for at in (100.0, 105.0, 110.0)] == [False, True, False]


# Memory


def test_a_restart_goes_on_with_what_fired(rules: Path, sick_server: ReplayServer, tmp_path: Path) -> None:
    configured = Configured(
        rules, {"name": "gpu", "url": sick_server.url}, **{"state.directory": str(tmp_path / "state")}
    )
    with running(configured) as service:
        until(lambda: service.snapshots()["gpu"].firing)
        before = service.snapshots()["gpu"].firing[0]
        assert service.history is not None
    with running(configured) as service:
        until(lambda: service.snapshots()["gpu"].firing)
        after = service.snapshots()["gpu"].firing[0]
        assert (after.key, after.firing_since) == (before.key, before.firing_since)
        assert service.history is not None
        assert [each.state for each in service.history.query()] == [State.FIRING]


def test_the_readings_of_the_day_outlive_a_restart_and_those_of_minutes_are_looked_up(
    rules: Path, sick_server: ReplayServer, tmp_path: Path
) -> None:
    configured = Configured(
        rules, {"name": "gpu", "url": sick_server.url}, **{"state.directory": str(tmp_path / "state")}
    )
    with running(configured) as service:
        until(lambda: service.snapshots()["gpu"].scrapes >= 3)
        snapshot = service.snapshots()["gpu"]
        seen = service.day_readings()["gpu"].line("waiting_requests", snapshot.wall)
        found = service.hindsight(snapshot.readings[0].subject, ["waiting_last", "no_such_signal"])
        assert set(found) == {"waiting_last"}
        assert len(found["waiting_last"].known) >= 3
        assert abs(found["waiting_last"].times[-1] - snapshot.wall) < 60
        assert service.hindsight(Subject("gone"), ["waiting_last"]) == {}
    assert seen is not None
    with running(configured, started=False) as service:
        again = service.day_readings()["gpu"].line("waiting_requests", snapshot.wall)
        assert again is not None
        assert max(again.known) >= max(seen.known)


@contextmanager
def successor(
    configured: Callable[[], Settings], predecessor: Callable[[], Settings], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Service, Incident]]:
    """A service that began while another had the state file and has taken it over; and what that one found firing."""
    monkeypatch.setattr(database, "_LOCK_SECONDS", 0.0)
    monkeypatch.setattr(database, "RETURN_PAUSE_SECONDS", 0.2)
    with ExitStack() as stack:
        with running(predecessor) as first:
            until(lambda: first.snapshots()["gpu"].firing)
            [fired] = first.snapshots()["gpu"].firing
            second = stack.enter_context(running(configured))
            store = second.history
            assert store is not None
            assert store.health.mode is Mode.MEMORY
            if predecessor is configured:
                until(lambda: second.snapshots()["gpu"].firing)

        def took_over() -> bool:
            # Where all is well it writes once a minute.
            store.ledger("any").save({"any": "text"})
            second.look()
            return store.health.mode is Mode.DISK

        until(took_over)
        second.look()
        yield second, fired


def test_a_successor_goes_on_with_the_incident_of_its_predecessor(
    rules: Path, sick_server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Inbox() as inbox:
        configured = Configured(
            rules,
            {"name": "gpu", "url": sick_server.url},
            webhooks=[{"name": "pager", "url": inbox.url}],
            **{"state.directory": str(tmp_path / "state")},
        )
        with successor(configured, configured, monkeypatch) as (service, fired):

            def has_its_start() -> bool:
                return [each.firing_since for each in service.snapshots()["gpu"].firing] == [
                    fired.firing_since
                ]

            until(has_its_start)
            assert service.history is not None
            assert [each.state for each in service.history.query()] == [State.FIRING]
            assert service.history.timeline(fired.key)[-1].at == fired.firing_since
        with running(configured) as third:
            until(lambda: third.snapshots()["gpu"].firing)
            assert [each.firing_since for each in third.snapshots()["gpu"].firing] == [fired.firing_since]
    # Both watched and paged while the file was not to be had; that it was taken over is no news.
    assert [post.json["status"] for post in inbox.posts] == ["firing", "firing"]


def test_a_successor_tells_the_end_of_what_only_its_predecessor_saw(
    rules: Path, sick_server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A whole window of the successor's own has to be seen first.
    monkeypatch.setattr(inherited, "NOW_SECONDS", 1.0)
    with Inbox() as inbox, ReplayServer(list(read(RECORDING)[1])[:1]) as healthy:
        given = {
            "webhooks": [{"name": "pager", "url": inbox.url}],
            "state.directory": str(tmp_path / "state"),
        }
        sick = Configured(rules, {"name": "gpu", "url": sick_server.url}, **given)
        well = Configured(rules, {"name": "gpu", "url": healthy.url}, **given)
        with successor(well, sick, monkeypatch) as (service, fired):
            inbox.wait_for(2)
            assert service.history is not None
            assert [each.incident.state for each in service.history.timeline(fired.key)][-2:] == [
                State.FIRING,
                State.RESOLVED,
            ]
    assert [post.json["status"] for post in inbox.posts] == ["firing", "resolved"]


def test_what_ended_lately_is_still_shown_after_a_restart(
    rules: Path, sick_server: ReplayServer, tmp_path: Path
) -> None:
    configured = Configured(
        rules, {"name": "gpu", "url": sick_server.url}, **{"state.directory": str(tmp_path / "state")}
    )
    with running(configured) as service:
        until(lambda: service.snapshots()["gpu"].firing)
        fired = service.snapshots()["gpu"].firing[0]
    ended_at = time.time()
    with closing(Store(tmp_path / "state" / FILE_NAME)) as store:
        store.open()
        store.record([Transition.end_of(fired, ended_at)])
    with closed_port() as port:
        configured.values["targets"] = [{"name": "gpu", "url": f"http://127.0.0.1:{port}"}]
        with running(configured) as service:
            shown = service.snapshots()["gpu"].incidents
    assert [each.resolved_at for each in shown if each.key == fired.key] == [ended_at]


def test_what_was_learnt_of_a_server_outlives_a_restart(
    rules: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, scrapes = read(RECORDING)
    state = {"state.directory": str(tmp_path / "state")}
    store_path = tmp_path / "state" / FILE_NAME
    with ReplayServer(list(scrapes)[:1]) as server:
        with running(Configured(rules, {"name": "gpu", "url": server.url}, **state)) as service:
            store = service.history
            assert store is not None
            # A stretch takes tens of seconds by our clock: what is learnt is put there as a step does.
            store.learn([EnginePast(Subject("gpu", "m", "0"), time.time(), b"damaged")])
            until(lambda: store.pasts("gpu"))
        with closing(Store(store_path)) as between:
            between.open()
            assert [each.packed for each in between.pasts("gpu")] == [b"damaged"]
        with running(Configured(rules, {"name": "gpu", "url": server.url}, **state)):
            told = [each for each in caplog.records if each.message == "past_unusable"]
    assert [(vars(each)["target"], vars(each)["why"]) for each in told] == [("gpu", "it is damaged (error)")]


def test_incidents_of_what_is_watched_no_more_end_at_the_start(
    rules: Path, sick_server: ReplayServer, tmp_path: Path
) -> None:
    state = {"state.directory": str(tmp_path / "state")}
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url}, **state)) as service:
        until(lambda: service.snapshots()["gpu"].firing)
    with running(Configured(rules, **state)) as service:
        assert service.history is not None
        assert [each.state for each in service.history.query()] == [State.RESOLVED]


def test_a_state_directory_is_optional(rules: Path) -> None:
    with running(Configured(rules)) as service:
        assert service.history is None


# Several targets together


@pytest.fixture
def fleet_rule(rules: Path) -> Path:
    """A rule beside the others that fires where two targets serve a model."""
    fleet_tests = {
        "waiting_last: 3, kv_usage_last_ratio: 0.9": "targets: 2",
        "waiting_last: 0, kv_usage_last_ratio: 0.9": "targets: 1",
        "signals: {kv_usage_last_ratio: 0.9}": "signals: {}",
    }
    only_fleet = {
        "scope: engine": "scope: fleet",
        "keep_firing_for: 10s": "keep_firing_for: 0s",
        '"waiting_last > least_waiting", "kv_usage_last_ratio > least_usage"': '"targets > least_waiting + 1"',
        '  least_usage: {value: 0.5, unit: ratio, why: "half of it"}\n': "",
        "{waiting_last:.0f} requests wait.": "{targets:.0f} targets serve it.",
    }
    return write_rule(rules, "too-many", **only_fleet, **fleet_tests)


@pytest.mark.usefixtures("fleet_rule")
def test_a_fleet_rule_is_asked_of_all_targets_and_remembered(
    rules: Path, sick_server: ReplayServer, tmp_path: Path
) -> None:
    targets = [{"name": name, "url": f"{sick_server.url}?{name}"} for name in ("one", "two")]
    configured = Configured(rules, *targets, **{"state.directory": str(tmp_path / "state")})
    with running(configured) as service:
        until(lambda: [each.state for each in service.fleet_incidents()] == [State.FIRING])
        [before] = service.fleet_incidents()
        assert (before.key.rule, before.key.model_name) == ("too-many", "tiny")
    with running(configured) as service:
        until(lambda: [each.state for each in service.fleet_incidents()] == [State.FIRING])
        [after] = service.fleet_incidents()
        assert after.firing_since == before.firing_since
        configured.values["targets"] = targets[:1]
        assert service.reload() == ()
        until(lambda: not any(each.state is State.FIRING for each in service.fleet_incidents()))


@pytest.mark.usefixtures("fleet_rule")
def test_a_new_interval_counts_for_the_fleet_as_well(rules: Path, sick_server: ReplayServer) -> None:
    targets = [{"name": name, "url": f"{sick_server.url}?{name}"} for name in ("one", "two")]
    configured = Configured(rules, *targets, **{"scrape.interval_seconds": 20})
    with running(configured, started=False) as service:
        configured.values["scrape.interval_seconds"] = INTERVAL_SECONDS
        assert service.reload() == ()
        until(lambda: [each.state for each in service.fleet_incidents()] == [State.FIRING])


def test_a_longer_interval_moves_the_end_of_alerts(rules: Path, sick_server: ReplayServer) -> None:
    with Pager() as pager:
        configured = Configured(
            rules,
            {"name": "gpu", "url": sick_server.url},
            **{"alertmanager.urls": [pager.url], "alertmanager.resend_seconds": INTERVAL_SECONDS},
        )
        with running(configured) as service:
            horizon_seconds = service._notifiers._alertmanagers._horizon_seconds
            configured.values["targets"].append({"url": f"{sick_server.url}?slow", "interval_seconds": 5})
            assert service.reload() == ()
            assert service._notifiers._alertmanagers._horizon_seconds == 50 * horizon_seconds


@pytest.mark.usefixtures("fleet_rule")
def test_a_server_in_maintenance_and_its_fleet_page_nobody_until_it_ends(
    rules: Path, sick_server: ReplayServer
) -> None:
    targets = [{"name": name, "url": f"{sick_server.url}?{name}"} for name in ("one", "two")]
    with Pager() as pager:
        configured = Configured(rules, *targets, **{"alertmanager.urls": [pager.url]})
        configured.values["maintenance"] = [{"name": "kernel", "targets": ["one"], "hours": "00:00-24:00"}]
        with running(configured) as service:
            until(lambda: service.snapshots()["one"].firing and service.fleet_incidents())
            until(lambda: service.fleet_incidents()[0].state is State.FIRING)
            until(lambda: _targets(pager) - {""} == {"two"})
            assert service.maintenance(time.time())["one"].name == "kernel"
            assert metric(service, "target_maintenance", target="one") == 1
            assert metric(service, "target_maintenance", target="two") == 0
            configured.values["maintenance"] = []
            assert service.reload() == ()
            until(lambda: _targets(pager) - {""} == {"one", "two", "*"})


def _targets(pager: Pager) -> set[str]:
    return {each["labels"].get("target", "") for each in pager.alerts.values()}


# What others ask of it


def test_the_receiver_answers_with_the_diagnosis(rules: Path, sick_server: ReplayServer) -> None:
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url})) as service:
        until(lambda: service.snapshots()["gpu"].firing)
        alert = {"status": "firing", "labels": {"alertname": "HighTtft", "target": "gpu"}}
        answered = service.receive({"version": "4", "status": "firing", "alerts": [alert]})
        assert "kv-pool-exhausted" in str(answered)
        with pytest.raises(ValueError, match="alerts"):
            service.receive({"nothing": 1})


def test_a_stop_does_not_resolve(rules: Path, sick_server: ReplayServer) -> None:
    with Pager() as pager:
        configured = Configured(
            rules, {"name": "gpu", "url": sick_server.url}, **{"alertmanager.urls": [pager.url]}
        )
        with running(configured):
            until(lambda: ("VllmKvPoolExhausted", "firing") in _log(pager))
        time.sleep(0.2)
        assert ("VllmKvPoolExhausted", "resolved") not in _log(pager)


def test_a_stop_waits_for_what_is_being_recorded(
    rules: Path, sick_server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Store.record

    def record_slowly(store: Store, transitions: Iterable[Transition]) -> None:
        time.sleep(0.5)
        record(store, transitions)

    monkeypatch.setattr(Store, "record", record_slowly)
    state = {"state.directory": str(tmp_path)}
    with running(Configured(rules, {"name": "gpu", "url": sick_server.url}, **state)) as service:
        until(lambda: service.snapshots()["gpu"].firing)
    with closing(Store(tmp_path / FILE_NAME)) as store:
        store.open()
        assert [each.state for each in store.query()] == [State.FIRING]


def _log(pager: Pager) -> list[tuple[str, str]]:
    return list(pager.page_log)
