"""The service as people run it, with a real Alertmanager and a webhook: killed, restarted, and ended."""

import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.programs import Alertmanager, Process, free_port, get
from tests.pagers import Inbox, unix
from tests.waiting import until

RULE = """
id: queue
title: Requests wait
severity: critical
scope: engine
for: 0s
keep_firing_for: 0s
when: [waiting_last > 0]
explains: []
cause: "{waiting_last:.0f} requests wait."
remedies: [{action: Add a replica., why: It takes a half., price: A GPU.}]
tests: []
"""


class Vllm:
    """A server whose queue is as long as the test says."""

    def __init__(self) -> None:
        self.waiting = 0
        vllm = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                labels = '{model_name="m",engine="0"}'
                body = (
                    f"vllm:num_requests_waiting{labels} {vllm.waiting}\nvllm:num_requests_running{labels} 1\n"
                )
                self.send_response(200 if self.path == "/metrics" else 404)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"


@contextmanager
def a_vllm() -> Iterator[Vllm]:
    vllm = Vllm()
    thread = threading.Thread(target=vllm.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield vllm
    finally:
        vllm.server.shutdown()
        thread.join()
        vllm.server.server_close()


def serve(folder: Path, vllm: Vllm, alertmanager: str, hook: str) -> tuple[Process, str]:
    (folder / "rules").mkdir()
    (folder / "rules" / "queue.yaml").write_text(RULE)
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "targets": [{"name": "gpu-0", "url": vllm.url}],
        "scrape": {"interval_seconds": 0.2, "deadline_seconds": 0.19},
        "web": {"port": int(url.rpartition(":")[2]), "external_url": url},
        "rules": {"shipped": False, "directories": [str(folder / "rules")], "allow_untested": True},
        "alertmanager": {"urls": [alertmanager], "resend_seconds": 10},
        "webhooks": [{"name": "pager", "url": hook}],
        "state": {"directory": str(folder / "state")},
    }
    written = folder / "watchdog.yaml"
    written.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "watchdog", "serve", "--config", str(written)]
    return Process(command, f"{url}/readyz", folder / "watchdog.log"), url


def notified(url: str, receiver: str) -> float:
    """How many alerts this process knows that `receiver` took."""
    for family in text_string_to_metric_families(get(f"{url}/metrics") or ""):
        for sample in family.samples:
            if sample.name == "vllm_watchdog_notifications_sent_total" and (
                sample.labels["receiver"] == receiver
            ):
                return sample.value
    return 0.0


def test_a_kill_a_restart_and_an_orderly_end_page_nobody_twice_and_resolve_nothing_false(
    tmp_path: Path,
) -> None:
    with (
        a_vllm() as vllm,
        Inbox() as theirs,
        Inbox() as ours,
        Alertmanager(tmp_path / "am", theirs.url) as real,
    ):
        process, url = serve(tmp_path, vllm, real.url, ours.url)
        with process:
            vllm.waiting = 7
            alert = until(real.alerts)[0]
            assert alert["labels"] == {
                "alertname": "VllmQueue",
                "engine": "0",
                # The target's address is that of this machine, so the alert says which one.
                "instance": platform.node(),
                "model_name": "m",
                "rule": "queue",
                "severity": "critical",
                "target": "gpu-0",
            }
            assert get(alert["generatorURL"]) is not None
            theirs.wait_for(1)
            # A message that came, but whose reply was not read yet, is sent again, as it should be.
            until(lambda: notified(url, "pager") == 1)
            process.end(signal.SIGKILL)
            vllm.waiting = 8
            process.start()
            # The first words of the new life reach Alertmanager: it is the same alert.
            again = until(lambda: [each for each in real.alerts() if each["updatedAt"] > alert["updatedAt"]])
            assert [each["startsAt"] for each in again] == [alert["startsAt"]]
            time.sleep(1)
            assert process.end(signal.SIGTERM) == 0
            assert real.names() == {"VllmQueue"}
            process.start()
            time.sleep(1)
            assert len(ours.posts) == 1
            assert len(theirs.posts) == 1
            vllm.waiting = 0
            ours.wait_for(2)
            theirs.wait_for(2)
            assert real.names() == set()
            began = get(f"{url}/incidents")["incidents"]
            assert [(each["rule"], each["state"]) for each in began] == [("queue", "resolved")]
            assert process.end(signal.SIGTERM) == 0
    assert [post.json["status"] for post in ours.posts] == ["firing", "resolved"]
    assert [post.json["status"] for post in theirs.posts] == ["firing", "resolved"]
    # Alertmanager writes no zeros at the end of a fraction, so times are compared, not texts.
    starts = {unix(post.json["alerts"][0]["startsAt"]) for post in (*ours.posts, *theirs.posts)}
    assert starts == {unix(alert["startsAt"])}
