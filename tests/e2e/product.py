"""The product as people run it: its commands, and `serve` beside a server with a real Alertmanager."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.commands import Ended
from tests.contract.programs import ROOT, Alertmanager, Process, free_port, get
from tests.pagers import Inbox

COMMAND_SECONDS = 600
INTERVAL_SECONDS = 1.0


def vllm_watchdog(*words: str | Path) -> Ended:
    """Runs `vllm-watchdog words...` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "watchdog", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "160"},
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def json_of(ended: Ended) -> dict[str, Any]:
    """The JSON object that a command printed; empty where it printed none."""
    try:
        found = json.loads(ended.out)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Sidecar:
    """`serve` beside one server, and the Alertmanager that it tells."""

    url: str
    alertmanager: Alertmanager
    inbox: Inbox

    def says(self) -> str:
        """The rule that leads and still holds, or the verdict where none does."""
        body = get(f"{self.url}/diagnose")
        assert body is not None, "serve does not answer"
        [target] = body["targets"]
        if target["verdict"] == "recovering":
            return "recovering"
        return str(target["lead"] or target["verdict"])

    def wait_for(self, expected: Collection[str], seconds: float) -> tuple[str, float]:
        """What is said once it is one of those, or when the time is over, and the seconds that took."""
        began = time.monotonic()
        while (said := self.says()) not in expected and time.monotonic() - began < seconds:
            time.sleep(0.5)
        return said, time.monotonic() - began

    def causes(self) -> dict[str, str]:
        """The rules that ever fired, now or before, and what each said last."""
        body = get(f"{self.url}/incidents?limit=200")
        assert body is not None, "serve does not answer"
        return {each["rule"]: each["cause"] for each in body["incidents"] if each["firing_since"]}

    def heard(self, rule: str, seconds: float) -> bool:
        """Whether an alert of the rule comes through Alertmanager within that time."""
        ends_at = time.monotonic() + seconds
        while rule not in self.paged() and time.monotonic() < ends_at:
            time.sleep(0.2)
        return rule in self.paged()

    def paged(self) -> set[str]:
        """The rules of all alerts that came through Alertmanager as firing."""
        return {
            alert["labels"]["rule"]
            for post in list(self.inbox.posts)
            for alert in post.json["alerts"]
            if alert["status"] == "firing"
        }

    def open_alerts(self, seconds: float) -> set[str]:
        """The alerts that Alertmanager still holds after that time at most; empty as soon as it holds none."""
        ends_at = time.monotonic() + seconds
        while (left := self.alertmanager.names()) and time.monotonic() < ends_at:
            time.sleep(0.5)
        return left


@contextmanager
def sidecar(folder: Path, server_url: str) -> Iterator[Sidecar]:
    """`serve` for the server at that URL, with a state directory and an Alertmanager of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        inbox = stack.enter_context(Inbox())
        alertmanager = stack.enter_context(Alertmanager(folder / "alertmanager", inbox.url))
        settings = {
            "targets": [{"name": "tiny", "url": server_url}],
            "scrape": {"interval_seconds": INTERVAL_SECONDS},
            "alertmanager": {"urls": [alertmanager.url]},
            "state": {"directory": str(folder / "state")},
            "web": {"host": "127.0.0.1", "port": port},
        }
        written = folder / "watchdog.yaml"
        written.write_text(yaml.safe_dump(settings))
        command: list[str | Path] = [sys.executable, "-m", "watchdog", "serve", "--config", written]
        stack.enter_context(Process(command, f"{url}/healthz", folder / "serve.log"))
        yield Sidecar(url, alertmanager, inbox)
