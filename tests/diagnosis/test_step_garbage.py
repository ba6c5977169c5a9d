"""What a step leaves behind."""

import gc

import pytest

from tests.places import RECORDINGS
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Target
from watchdog.rule.in_force import load_rules
from watchdog.scrape.recording import read, thin
from watchdog.settings.model import RuleSettings


@pytest.mark.parametrize("name", ["h200-healthy", "kv-pool-exhausted"])
def test_a_step_leaves_nothing_to_the_garbage_collector(name: str) -> None:
    # A thousand targets would have it walk all that is remembered, again and again.
    _, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    pages = list(thin(scrapes, 5.0))
    diagnosis = TargetDiagnosis(Target("one", "http://one/metrics"), load_rules(RuleSettings()))
    for page in pages[:20]:
        diagnosis.observe(page)
    gc.collect()
    gc.disable()
    try:
        for page in pages[20:]:
            diagnosis.observe(page)
        assert gc.collect() == 0
    finally:
        gc.enable()
