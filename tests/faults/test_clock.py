"""A machine whose clock is a day off, as before its first NTP answer: the service is killed and started again on it."""

import json
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

from tests.faults.test_f87_f93_process import serve
from tests.pagers import Inbox, Pager
from tests.servers import Server, answer, closed_port, serving
from tests.waiting import until

DAY = 86_400.0
FAKED_CLOCK = """
import os, time
real = time.time
time.time = lambda: real() + float(os.environ["CLOCK_OFF_SECONDS"])
"""
FIRING = [("VllmTargetDown", "firing")] * 2


def test_a_clock_that_is_a_day_off_at_the_start_ends_nothing_and_pages_nobody(tmp_path: Path) -> None:
    (tmp_path / "faked").mkdir()
    (tmp_path / "faked" / "sitecustomize.py").write_text(FAKED_CLOCK)
    with ExitStack() as stack:
        pager, hook = stack.enter_context(Pager()), stack.enter_context(Inbox())
        pager.date = time.time
        broken = stack.enter_context(Server(serving(answer(b"", "500 Internal Server Error"))))
        down = stack.enter_context(closed_port())
        targets = [
            {"name": "down", "url": f"http://127.0.0.1:{down}/metrics"},
            {"name": "broken", "url": broken.url},
        ]
        environment = {
            "WATCHDOG_RULES__SHIPPED": "true",
            "WATCHDOG_RULES__DIRECTORIES": "[]",
            "WATCHDOG_TARGETS": json.dumps(targets),
            "WATCHDOG_ALERTMANAGER__URLS": json.dumps([pager.url]),
            "WATCHDOG_ALERTMANAGER__RESEND_SECONDS": "3",
            "WATCHDOG_ALERTMANAGER__HEARTBEAT": "false",
            "WATCHDOG_WEBHOOKS": json.dumps([{"name": "hook", "url": hook.url}]),
            "WATCHDOG_STATE__DIRECTORY": str(tmp_path / "state"),
            "PYTHONPATH": os.pathsep.join([str(tmp_path / "faked"), os.environ.get("PYTHONPATH", "")]),
        }

        def live(off_seconds: float) -> None:
            """A life that lasts until all of it was sent again."""
            given = {**environment, "CLOCK_OFF_SECONDS": str(off_seconds)}
            with serve(tmp_path, tmp_path, **given) as process:
                process.wait_for("event=started")
                until(lambda: len(pager.page_log) >= len(FIRING))
                before = len(pager.posts)
                until(lambda: len(pager.posts) >= before + 2)
                assert pager.firing() == {name for name, _ in FIRING}
                assert process.end(signal.SIGKILL)
                assert ("event=clocks_differ" in process.text) is (off_seconds != 0)

        starts = set()
        for off_seconds in (0.0, DAY, -DAY):
            live(off_seconds)
            starts |= {alert["startsAt"][:19] for alert in pager.alerts.values()}
        assert sorted(pager.page_log) == FIRING
        assert len(starts) <= len(FIRING)
        assert sorted(each["labels"]["alertname"] for post in hook.posts for each in post.json["alerts"]) == [
            name for name, _ in FIRING
        ]
