"""The running service over servers that come and go: real HTTP on loopback, and somebody who gets the alerts."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import Fleet
from tests.kubernetes_api import KubernetesApi, a_pod, changed
from tests.pagers import Pager
from tests.servers import Connection, Server, answer, closed_port, repeat, request
from tests.waiting import until
from watchdog.replay.demo_server import ReplayServer
from watchdog.service.service import Service
from watchdog.settings.model import Settings, load

pytestmark = pytest.mark.usefixtures("restored_root_logger")

INTERVAL_SECONDS = 0.1


class Configured:
    """Settings with a file of targets, which a test writes."""

    def __init__(self, file: Path, **more: Any) -> None:
        self.file = file
        self.values: dict[str, Any] = {
            "discovery": {"file_sd": [{"files": [str(file)], "refresh_seconds": 1, "name": "list"}]},
            "scrape.interval_seconds": INTERVAL_SECONDS,
            **more,
        }

    def write(self, *groups: Any) -> None:
        """The groups, or where they are addresses one group of them."""
        told = list(groups) if groups and isinstance(groups[0], dict) else [{"targets": list(groups)}]
        self.file.write_text(json.dumps(told))

    def __call__(self) -> Settings:
        return load(None, self.values, {})


@contextmanager
def running(configured: Callable[[], Settings]) -> Iterator[Service]:
    service = Service(configured(), configured)
    service.start()
    try:
        yield service
    finally:
        service.stop(1.0)


def names(service: Service) -> list[str]:
    return [each.name for each in service.targets()]


def notes(service: Service) -> list[str]:
    """What is amiss, but that a busy machine keeps no pace of ten scrapes a second."""
    return [each for each in service.strains() if "last minute" not in each]


def scrapes_of(service: Service, target: str) -> int:
    """How often a server was scraped; 0 before its first scrape ended."""
    seen = service.snapshots().get(target)
    return 0 if seen is None else seen.scrapes


def looked(service: Service, holds: Callable[[], Any]) -> Any:
    """What comes about while the process looks after the service, as it does each second."""

    def once() -> Any:
        service.look()
        return holds()

    return until(once)


@contextmanager
def looking(service: Service) -> Iterator[None]:
    """Looks after it as the process does, from another thread."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            service.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def hurried(service: Service) -> None:
    """Has every place looked at again, as a reload does."""
    assert service.reload() == ()


@pytest.fixture
def configured(rules: Path, tmp_path: Path) -> Configured:
    return Configured(
        tmp_path / "targets.json", **{"rules.shipped": False, "rules.directories": [str(rules)]}
    )


def test_servers_in_a_file_are_watched_while_they_stand_in_it(
    configured: Configured, sick_server: ReplayServer
) -> None:
    address = sick_server.url.removeprefix("http://").removesuffix("/metrics")
    with Fleet() as fleet:
        other = fleet.begin(0)
        configured.write({"targets": [address], "labels": {"team": "chat", "job": "vllm"}})
        with running(configured) as service:
            looked(service, lambda: address in service.snapshots())
            before = service.snapshots()[address]
            assert dict(before.target.labels) == {"team": "chat"}
            configured.write(
                {"targets": [address], "labels": {"team": "chat"}}, {"targets": [f"{other}:{fleet.port}"]}
            )
            looked(service, lambda: f"{other}:{fleet.port}" in service.snapshots())
            # The one that stays knows nothing of it.
            assert service.snapshots()[address].scrapes >= before.scrapes
            configured.write(f"{other}:{fleet.port}")
            looked(service, lambda: names(service) == [f"{other}:{fleet.port}"])
            assert address not in service.snapshots()
            figures = service.figures().looks
            assert [(each.name, each.is_well, each.servers) for each in figures] == [("list", True, 1)]


def test_a_server_that_goes_ends_its_alerts_under_the_labels_they_had(
    configured: Configured, sick_server: ReplayServer
) -> None:
    address = sick_server.url.removeprefix("http://").removesuffix("/metrics")
    with Pager() as pager, Fleet() as fleet:
        stays = f"{fleet.begin(0)}:{fleet.port}"
        configured.values["alertmanager.urls"] = [pager.url]
        configured.values["alertmanager.heartbeat"] = False
        configured.write({"targets": [address, stays], "labels": {"team": "chat"}})
        with running(configured) as service:
            looked(service, lambda: ("VllmKvPoolExhausted", "firing") in pager.page_log)
            configured.write({"targets": [stays], "labels": {"team": "chat"}})
            looked(service, lambda: ("VllmKvPoolExhausted", "resolved") in pager.page_log)
            assert [each["labels"]["team"] for each in pager.alerts.values()] == ["chat"]


def test_what_the_settings_name_comes_first_and_is_not_watched_twice(
    configured: Configured, sick_server: ReplayServer
) -> None:
    address = sick_server.url.removeprefix("http://").removesuffix("/metrics")
    configured.values["targets"] = [{"name": "chat", "url": sick_server.url}]
    configured.write({"targets": [address, "chat", "bad host"], "labels": {}})
    with running(configured) as service:
        looked(service, lambda: service.started)
        assert names(service) == ["chat"]
        [note] = notes(service)
        assert note.startswith(
            "servers found and not watched: chat: another server has this name; bad host: "
        )


def test_a_server_that_is_found_may_take_its_time_to_load(configured: Configured) -> None:
    """Nothing is said of it, nobody takes the watchdog for stalled, and it counts as down once it was seen."""
    configured.values |= {"rules.shipped": True, "rules.directories": []}
    configured.values["rules.overrides"] = {"target-down": {"parameters": {"least_seconds": 0.2}}}
    with Fleet() as fleet:
        stays = fleet.begin(0)
        with closed_port() as port:
            configured.write(f"127.0.0.1:{port}", f"{stays}:{fleet.port}")
            with running(configured) as service:
                looked(service, lambda: service.started)
                looked(service, lambda: scrapes_of(service, f"{stays}:{fleet.port}") > 10)
                assert f"127.0.0.1:{port}" not in service.snapshots()
                assert service.cycle_alive()
                fleet.end(stays)
                looked(service, lambda: service.snapshots()[f"{stays}:{fleet.port}"].firing)


def test_a_reload_keeps_what_was_found_and_takes_an_empty_list(configured: Configured) -> None:
    with Fleet() as fleet:
        one = f"{fleet.begin(0)}:{fleet.port}"
        configured.write(one)
        with running(configured) as service:
            looked(service, lambda: one in service.snapshots())
            scrapes, [before] = service.snapshots()[one].scrapes, service.figures().looks
            hurried(service)
            # Another look after the reload, which would take an empty list at its word.
            looked(service, lambda: service.figures().looks[0].last_success_wall != before.last_success_wall)
            assert service.snapshots()[one].scrapes >= scrapes
            configured.file.write_text("[]")
            looked(service, lambda: notes(service))
            assert names(service) == [one]
            hurried(service)
            looked(service, lambda: not names(service))
            assert service.started
            assert notes(service) == []
            configured.values["discovery"] = {}
            hurried(service)
            assert not service.is_configured


def test_a_restart_goes_on_with_servers_that_were_found(
    configured: Configured, sick_server: ReplayServer, tmp_path: Path
) -> None:
    """Also where nobody says what there is: its incidents go on instead of ending and beginning again."""
    address = sick_server.url.removeprefix("http://").removesuffix("/metrics")
    configured.values["state.directory"] = str(tmp_path / "state")
    configured.write(address)
    with running(configured) as service:
        looked(service, lambda: address in service.snapshots() and service.snapshots()[address].firing)
        [before] = service.snapshots()[address].firing
    configured.file.unlink()
    with running(configured) as service:
        assert names(service) == [address]
        looked(service, lambda: address in service.snapshots() and service.snapshots()[address].firing)
        [after] = service.snapshots()[address].firing
        assert after.firing_since == before.firing_since
        assert "1 server of before stays watched" in " ".join(notes(service))


def test_a_list_over_http_is_asked_at_once_where_a_server_stops_answering(rules: Path) -> None:
    """It may have left, and the next look be a minute away: nobody is called for it."""
    listed: list[str] = []

    def say(connection: Connection) -> None:
        body = json.dumps([{"targets": listed}]).encode()
        connection.peer.sendall(answer(body, "200 OK", "Content-Type: application/json"))

    with Fleet() as fleet, Pager() as pager, Server([repeat(request, say)]) as server:
        leaves, stays = fleet.begin(0), fleet.begin(1)
        listed += [f"{leaves}:{fleet.port}", f"{stays}:{fleet.port}"]
        settings = {
            "discovery": {"http_sd": [{"url": server.url, "refresh_seconds": 600}]},
            "scrape.interval_seconds": 0.5,
            "alertmanager.urls": [pager.url],
            "alertmanager.heartbeat": False,
        }
        with running(lambda: load(None, settings, {})) as service, looking(service):
            until(lambda: len(service.snapshots()) == 2)
            listed.pop(0)
            fleet.end(leaves)
            until(lambda: names(service) == listed)
            assert len(server.requests) > 1
            assert not pager.alerts


# Pods of Kubernetes


def test_pods_that_come_and_go_call_nobody_and_one_that_dies_does(tmp_path: Path) -> None:
    """200 pods in waves of roll-outs: each loads, is ready, is deleted and then stops. One of the last just stops."""
    waves, of_wave = 5, 40
    # Three scrapes, as at the usual interval: a pod that is not taken out within them is a false alarm.
    overrides = {"target-down": {"parameters": {"least_seconds": 3}}}
    with Fleet() as fleet, KubernetesApi() as api, Pager() as pager:
        addresses = [fleet.begin(number) for number in range(of_wave)]
        wave = [a_pod(f"w0-{number}", address) for number, address in enumerate(addresses)]
        api.put(*wave)
        kubernetes = {
            "selector": "app=vllm",
            "port": fleet.port,
            "kubeconfig_file": str(api.kubeconfig(tmp_path)),
        }
        settings = {
            "discovery": {"kubernetes": [kubernetes]},
            "scrape.interval_seconds": 1,
            "rules.overrides": overrides,
            "alertmanager.urls": [pager.url],
            "alertmanager.heartbeat": False,
        }
        with running(lambda: load(None, settings, {})) as service, looking(service):
            until(lambda: set(service.snapshots()) == {f"w0-{n}" for n in range(of_wave)})
            for turn in range(1, waves):
                old, before = wave, addresses
                addresses = [fleet.begin(turn * of_wave + number) for number in range(of_wave)]
                wave = [a_pod(f"w{turn}-{number}", address) for number, address in enumerate(addresses)]
                api.put(*[changed(each, ready=False, ready_since=_CREATED) for each in wave])
                api.put(*wave)
                api.put(*[changed(each, leaving=True) for each in old])
                for address in before:
                    fleet.end(address)
                api.delete(*old)
                until(partial(_are_of, service, turn, of_wave))
            fleet.end(addresses[0])
            dead = f"w{waves - 1}-0"
            until(lambda: service.snapshots()[dead].firing)
            until(lambda: pager.page_log)
            paged = {(each["labels"]["rule"], each["labels"]["target"]) for each in pager.alerts.values()}
            assert paged == {("target-down", dead)}
            assert [service.pods()[dead].name, len(service.targets())] == [dead, of_wave]


_CREATED = a_pod("x")["status"]["startTime"]


def _are_of(service: Service, turn: int, count: int) -> bool:
    return set(service.snapshots()) == {f"w{turn}-{number}" for number in range(count)}
