"""F87 to F93: the process: signals, ports, file systems, users, clocks."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
import requests

from tests.commands import write_rule
from tests.pagers import Inbox, Pager, Reply
from tests.servers import Server, answer, hang, request, serving
from tests.waiting import until
from watchdog.replay.demo_server import ReplayServer

ADDRESS = re.compile(r"address=(http://\S+)")
# Starting takes a second; on a busy machine more.
START_SECONDS = 60.0


class Process:
    """A `vllm-watchdog serve` of its own; what it says goes to a file."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=file, env={**os.environ, **environment}, cwd=log.parent
            )

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def address(self) -> str:
        """Its own address, once it answers."""
        ends_at = time.monotonic() + START_SECONDS
        while not (found := ADDRESS.search(self.text)):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < ends_at, self.text
            time.sleep(0.02)
        return found[1]

    def get(self, path: str) -> requests.Response:
        return requests.get(self.address + path, timeout=10)

    def wait_for(self, event: str, count: int = 1) -> None:
        ends_at = time.monotonic() + 90
        while self.text.count(event) < count:
            assert self.process.poll() is None, self.text
            assert time.monotonic() < ends_at, self.text
            time.sleep(0.02)

    def end(self, *numbers: int) -> tuple[int, float]:
        """Sends signals; how it ended, and after how many seconds."""
        began = time.monotonic()
        for number in numbers:
            self.process.send_signal(number)
            time.sleep(0.1)
        return self.process.wait(30), time.monotonic() - began


@contextmanager
def serve(
    tmp_path: Path, rules: Path, *words: str, before: Sequence[str] = (), **environment: str
) -> Iterator[Process]:
    told = {
        "WATCHDOG_RULES__SHIPPED": "false",
        "WATCHDOG_RULES__DIRECTORIES": json.dumps([str(rules)]),
        "WATCHDOG_SCRAPE__INTERVAL_SECONDS": "0.2",
        "WATCHDOG_WEB__PORT": "0",
    }
    command = [*before, sys.executable, "-m", "watchdog", "serve", *words]
    process = Process(tmp_path / "log", command, {**told, **environment})
    try:
        yield process
    finally:
        process.process.kill()
        process.process.wait()


# F87: SIGTERM in the middle of a scrape and of a post


def test_f87_sigterm_in_the_middle_of_a_scrape_ends_it_at_once_with_0(tmp_path: Path, rules: Path) -> None:
    with Server([request, hang]) as hung:
        slow = {"WATCHDOG_SCRAPE__INTERVAL_SECONDS": "20", "WATCHDOG_SCRAPE__DEADLINE_SECONDS": "19"}
        with serve(tmp_path, rules, "--target", hung.url, **slow) as process:
            assert process.address
            while not hung.requests:
                time.sleep(0.01)
            code, seconds = process.end(signal.SIGTERM)
            assert code == 0
            assert seconds < 10
            assert "event=stopped" in process.text


def test_f87_what_is_queued_is_sent_and_what_fires_is_not_resolved(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with Pager() as pager:
        urls = {"WATCHDOG_ALERTMANAGER__URLS": json.dumps([pager.url])}
        with serve(tmp_path, rules, "--target", sick_server.url, **urls) as process:
            process.wait_for("event=incident_firing")
            code, _ = process.end(signal.SIGTERM)
            assert code == 0
        assert ("VllmKvPoolExhausted", "firing") in pager.page_log
        assert ("VllmKvPoolExhausted", "resolved") not in pager.page_log
        sent = [alert for post in pager.posts for alert in post.json]
        assert all(alert["endsAt"] > alert["startsAt"] for alert in sent)


def test_f87_a_receiver_that_hangs_holds_it_for_five_seconds_at_most(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with Inbox(lambda _: Reply(wait_seconds=60)) as inbox:
        urls = {"WATCHDOG_ALERTMANAGER__URLS": json.dumps([inbox.url])}
        with serve(tmp_path, rules, "--target", sick_server.url, **urls) as process:
            process.wait_for("event=incident_firing")
            inbox.wait_for(1)
            code, seconds = process.end(signal.SIGTERM)
            assert code == 0
            assert seconds < 15


# F88: several signals


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_f88_a_second_signal_ends_it_at_once(
    first: int, tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with Inbox(lambda _: Reply(wait_seconds=60)) as inbox:
        urls = {"WATCHDOG_ALERTMANAGER__URLS": json.dumps([inbox.url])}
        with serve(tmp_path, rules, "--target", sick_server.url, **urls) as process:
            process.wait_for("event=incident_firing")
            inbox.wait_for(1)
            code, seconds = process.end(first, signal.SIGTERM)
            assert code == 128 + signal.SIGTERM
            assert seconds < 4


def test_f88_sigint_alone_ends_it_as_sigterm_does(tmp_path: Path, rules: Path) -> None:
    with serve(tmp_path, rules) as process:
        assert process.address
        assert process.end(signal.SIGINT)[0] == 0


def test_f88_a_storm_of_sighups_is_a_few_reloads(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with serve(tmp_path, rules, "--target", sick_server.url) as process:
        assert process.address
        for _ in range(200):
            process.process.send_signal(signal.SIGHUP)
        during = process.text.count("event=reloaded")
        process.wait_for("event=reloaded", during + 1)
        time.sleep(1)
        # Those that came while it read are one more reading, however many they were: no queue is worked off.
        assert process.text.count("event=reloaded") <= during + 3
        assert process.get("/healthz").status_code == 200
        assert process.end(signal.SIGTERM)[0] == 0


def test_f88_sighup_reads_rules_again_and_a_bad_file_changes_nothing(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with serve(tmp_path, rules, "--target", sick_server.url) as process:
        process.wait_for("event=incident_firing")
        write_rule(rules, "second")
        process.process.send_signal(signal.SIGHUP)
        process.wait_for("event=reloaded")
        write_rule(rules, "third", **{"waiting_last > least": "waitin_last > least"})
        process.process.send_signal(signal.SIGHUP)
        process.wait_for("event=reload_refused")
        assert "vllm_watchdog_rules 2.0" in process.get("/metrics").text
        assert "vllm_watchdog_config_last_reload_successful 0.0" in process.get("/metrics").text
        assert "were rejected" in process.get("/readyz").json()["notes"][0]
        [refused] = [line for line in process.text.splitlines() if "event=reload_refused" in line]
        # The place and the fault; the excerpt of the file is for a terminal.
        assert "no signal is named `waitin_last`" in refused
        assert "^^^" not in refused


# F89: the place it runs in


def test_f89_a_port_in_use_is_told_in_a_sentence(tmp_path: Path, rules: Path) -> None:
    with Server(serving(answer(b"x"))) as other, serve(tmp_path, rules, "--port", str(other.port)) as process:
        assert process.process.wait(START_SECONDS) == 2
        assert f"web.port: 127.0.0.1:{other.port} is in use" in process.text
        assert "Traceback" not in process.text


def test_f89_an_address_of_another_machine_is_told_in_a_sentence(tmp_path: Path, rules: Path) -> None:
    with serve(tmp_path, rules, "--host", "192.0.2.1") as process:
        assert process.process.wait(START_SECONDS) == 2
        assert "web.host: 192.0.2.1 is no address of this machine" in process.text
        assert "Traceback" not in process.text


def test_f89_a_certificate_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path, rules: Path) -> None:
    files = {"WATCHDOG_WEB__TLS_CERT_FILE": "/none.pem", "WATCHDOG_WEB__TLS_KEY_FILE": "/none.key"}
    with serve(tmp_path, rules, **files) as process:
        assert process.process.wait(START_SECONDS) == 2
        assert "tls_cert_file" in process.text
        assert "Traceback" not in process.text


def test_f89_it_runs_on_a_read_only_root_as_a_user_nobody_knows(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    inside = (
        'mount -o remount,ro,bind / && ! touch /f89 2>/dev/null && exec unshare --user --map-user=12345 "$@"'
    )
    before = ["unshare", "--mount", "sh", "-c", inside, "sh"]
    tried = subprocess.run([*before, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no new name spaces here: {tried.stderr.decode().strip()}")
    with serve(tmp_path, rules, "--target", sick_server.url, before=before, HOME="/none") as process:
        process.wait_for("event=incident_firing")
        assert process.get("/diagnose").json()["verdict"] == "critical"


def test_f89_a_state_directory_that_cannot_be_written_is_told_and_does_without(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    state = {"WATCHDOG_STATE__DIRECTORY": "/proc/none"}
    with serve(tmp_path, rules, "--target", sick_server.url, **state) as process:
        process.wait_for("event=incident_firing")
        assert process.get("/healthz").status_code == 200
        assert "/proc/none" in process.text


# F90: the loop


def test_f90_the_health_of_a_process_that_slept_comes_back(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    """F41 too: one cycle on waking, no backlog."""
    with serve(tmp_path, rules, "--target", sick_server.url, "--interval", "0.5") as process:
        process.wait_for("event=verdict")
        began, before = time.monotonic(), _scrapes(process)
        process.process.send_signal(signal.SIGSTOP)
        time.sleep(4)
        process.process.send_signal(signal.SIGCONT)
        until(lambda: process.get("/healthz").status_code == 200)
        scrapes = _scrapes(process) - before
        awake_seconds = time.monotonic() - began - 4
        assert scrapes <= awake_seconds / 0.5 + 2


def test_f90_health_is_asked_by_the_command_of_containers(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with serve(tmp_path, rules, "--target", sick_server.url) as process:
        port = process.address.rpartition(":")[2]
        assert _health(port) == 0
        process.process.send_signal(signal.SIGSTOP)
        assert _health(port) == 1
        process.process.send_signal(signal.SIGCONT)
        process.end(signal.SIGTERM)
        assert _health(port) == 1


# F92: no more files, no more room


def test_f92_too_many_files_is_a_reason_and_passes(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    before = ["prlimit", "--nofile=40:4096"]
    with serve(tmp_path, rules, "--target", sick_server.url, before=before) as process:
        process.wait_for("event=verdict")
        port = int(process.address.rpartition(":")[2])
        with _connections(port, 60):
            time.sleep(1)
            assert process.process.poll() is None
        ends_at = time.monotonic() + START_SECONDS
        while True:
            try:
                answered = process.get("/diagnose")
            except requests.RequestException:
                assert time.monotonic() < ends_at
                continue
            if answered.status_code == 200 and answered.json()["verdict"] == "critical":
                break
            assert time.monotonic() < ends_at
            time.sleep(0.1)


def test_f92_a_full_disk_for_the_log_costs_lines_only(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    with serve(tmp_path, rules, "--target", sick_server.url) as process:
        address = process.address
    port = address.rpartition(":")[2]
    before = ["sh", "-c", 'exec "$@" 2>/dev/full', "sh"]
    with serve(tmp_path, rules, "--target", sick_server.url, "--port", port, before=before) as process:
        ends_at = time.monotonic() + START_SECONDS
        while True:
            assert time.monotonic() < ends_at
            try:
                if requests.get(f"{address}/diagnose", timeout=5).json()["verdict"] == "critical":
                    break
            except requests.RequestException:
                time.sleep(0.1)
        assert process.process.poll() is None


# F93: where and when it thinks it is


def test_f93_times_are_utc_and_names_ascii_whatever_the_locale_says(
    tmp_path: Path, rules: Path, sick_server: ReplayServer
) -> None:
    place = {"TZ": "Pacific/Kiritimati", "LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "PYTHONUTF8": "0"}
    with serve(tmp_path, rules, "--target", sick_server.url, **place) as process:
        process.wait_for("event=incident_firing")
        body = process.get("/diagnose").json()
        generated = body["generated_at"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", generated)
        assert abs(_unix(generated) - time.time()) < 60
        assert re.search(r"^time=\S+Z level=info ", process.text, re.M)


def test_f93_a_c_locale_prints_what_it_can(tmp_path: Path, rules: Path) -> None:
    place = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    page = tmp_path / "page.prom"
    page.write_text('vllm:num_requests_running{model_name="mödel",engine="0"} 1\n', encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "watchdog", "diagnose", str(page)],
        capture_output=True,
        check=False,
        env={
            **os.environ,
            **place,
            "WATCHDOG_RULES__SHIPPED": "false",
            "WATCHDOG_RULES__DIRECTORIES": f'["{rules}"]',
        },
    )
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr
    assert ended.stdout.isascii()


def _scrapes(process: Process) -> int:
    [target] = process.get("/targets").json()["targets"]
    return int(target["scrapes"])


def _health(port: str) -> int:
    command = [sys.executable, "-m", "watchdog", "health", "--port", port, "--timeout", "2"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@contextmanager
def _connections(port: int, count: int) -> Iterator[None]:
    held = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(count)]
    try:
        yield
    finally:
        for each in held:
            each.close()
