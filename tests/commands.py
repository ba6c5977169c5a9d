"""The command line in this process, and a rule of the tests' own for it."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from watchdog.cli.main import run
from watchdog.replay.demo_server import RECORDING

RULE = """
id: {id}
title: The KV cache is full
severity: critical
scope: engine
for: {for_}
keep_firing_for: 10s
parameters:
  least_waiting: {{value: 0, unit: requests, why: "one is enough"}}
  least_usage: {{value: 0.5, unit: ratio, why: "half of it"}}
when: ["waiting_last > least_waiting", "kv_usage_last_ratio > least_usage"]
cause: "{{waiting_last:.0f}} requests wait."
remedies:
  - {{action: "Limit the context.", flag: --max-model-len, value: "1024", direction: lower, why: "a", price: "b"}}
tests:
  - {{name: "full", signals: {{waiting_last: 3, kv_usage_last_ratio: 0.9}}, expect: fires}}
  - {{name: "no queue", signals: {{waiting_last: 0, kv_usage_last_ratio: 0.9}}, expect: silent}}
  - {{name: "blind", signals: {{kv_usage_last_ratio: 0.9}}, expect: unknown}}
"""

__all__ = ["RECORDING", "Ended", "command", "only_rules_of", "write_rule"]


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


def write_rule(folder: Path, identity: str = "kv-pool-exhausted", for_: str = "0s", **changes: str) -> Path:
    """A sound rule file in `folder`; `changes` replace text in it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = RULE.format(id=identity, for_=for_)
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / f"{identity}.yaml"
    path.write_text(text)
    return path


def only_rules_of(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the rules of `folder` the only ones in force."""
    monkeypatch.setenv("WATCHDOG_RULES__SHIPPED", "false")
    monkeypatch.setenv("WATCHDOG_RULES__DIRECTORIES", f'["{folder}"]')


def command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Ended:
    """Runs `vllm-watchdog words...`."""
    before = sys.argv
    sys.argv = ["vllm-watchdog", *map(str, words)]
    capsys.readouterr()
    try:
        run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    out, err = capsys.readouterr()
    return Ended(code, out, err)
