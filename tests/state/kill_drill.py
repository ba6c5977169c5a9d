"""Lives of a small watchdog on a script, for tests that kill it: the real store, incident book and senders."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from tests.pagers import WALL, senders
from watchdog.diagnosis.incidents import IncidentBook
from watchdog.model import Finding, Severity, Subject, Truth
from watchdog.rule.rule_set import RuleSet, load
from watchdog.state.store import FILE_NAME, Store

STEP_SECONDS = 5
SUBJECT = Subject("gpu-0", "m", "0")
POINTS = ("before the record", "after the record", "after the hand-over", "after the post")

RULE = """
id: {id}
title: {id}
severity: {severity}
scope: engine
for: {hold}
keep_firing_for: 5s
when: ["up > 0"]
explains: [{explains}]
cause: It is so.
remedies: [{{action: Do something., why: It helps., price: A little.}}]
tests: []
"""


def rule_set(folder: Path, hold: str = "5s", **explains: str) -> RuleSet:
    """Rules whose findings the test itself makes; the clause is never asked."""
    folder.mkdir(parents=True, exist_ok=True)
    for identity, effects in explains.items():
        name = identity.replace("_", "-")
        severity = "critical" if effects else "warning"
        text = RULE.format(id=name, severity=severity, hold=hold, explains=effects)
        (folder / f"{name}.yaml").write_text(text)
    return load([folder], {"up"}, allow_untested=True)


def finding(rule: str, truth: Truth, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(rule, SUBJECT, truth, severity, cause="It is so.")


# What is true at each step: the symptom is felt first, its cause is found, and both go.
SCRIPT: Sequence[Mapping[str, bool]] = [
    MappingProxyType({"symptom": 1 <= step <= 9, "the-cause": 4 <= step <= 8}) for step in range(18)
]
SEVERITY = {"symptom": Severity.WARNING, "the-cause": Severity.CRITICAL}


def live(folder: Path, url: str, first_step: int, kill_at: tuple[int, str] | None) -> None:
    """Goes through the script from a step on, and dies by SIGKILL at one of its points if told so."""
    life = Life(folder, url, first_step)
    for step in range(first_step, len(SCRIPT)):
        for point in POINTS:
            life.do(point, step)
            if kill_at == (step, point):
                os.kill(os.getpid(), signal.SIGKILL)
    life.end()


class Life:
    def __init__(self, folder: Path, url: str, step: int) -> None:
        loaded = rule_set(folder / "rules", the_cause="symptom", symptom="")
        self.first_step = step
        self.store = Store(folder / FILE_NAME)
        restored = self.store.open(WALL + step * STEP_SECONDS)
        self.book = IncidentBook(loaded)
        at = step * STEP_SECONDS - 1.0
        self.book.restore(restored.incidents, at)
        self.senders = senders(
            {"urls": [url]}, [{"url": f"{url}/hook", "name": "hook"}], ledgers=self.store.ledger
        )
        self.senders.run()
        if restored.ended:
            self.senders.observe(restored.ended, at, WALL + step * STEP_SECONDS, ())

    def do(self, point: str, step: int) -> None:
        at, wall = float(step * STEP_SECONDS), WALL + step * STEP_SECONDS
        if point == "before the record":
            truths = {rule: Truth.YES if holds else Truth.NO for rule, holds in SCRIPT[step].items()}
            found = [finding(rule, truth, SEVERITY[rule]) for rule, truth in truths.items()]
            self.standing = self.book.update(found, at, wall)
        elif point == "after the record":
            self.store.record(self.standing.transitions)
        elif point == "after the hand-over":
            self.store.checkpoint(self.standing.incidents, wall, at, ["gpu-0"])
            lead = self.standing.lead
            # Also a lead that outlives its cause is told here: both stories are then whole wherever it dies.
            self.senders.observe(self.standing.incidents, at, wall, {lead} if lead else ())
        elif self.standing.transitions or step == self.first_step:
            # Only then is there anything to send.
            self._wait()

    def end(self) -> None:
        self.senders.stop(2)
        self.store.close()

    def _wait(self) -> None:
        alertmanagers, hooks = self.senders._alertmanagers._outboxes, self.senders._webhooks._receivers
        while not (all(each.idle for each in alertmanagers) and all(each.outbox.idle for each in hooks)):
            time.sleep(0.002)
