"""The tables that come with the package: read when rules are loaded, and never by a step."""

import subprocess
import sys

import pytest

from tests.places import ROOT

STEPS = """
import sys

import pytest
from tests.places import RECORDINGS
from tests.watching import lead, shipped_rules
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.model import Expectations, Target
from watchdog.scrape.recording import read, thin

scrapes = list(thin(read(RECORDINGS / "h200-kv-pool-exhausted.jsonl.xz")[1], 5))
told = Expectations(gpu="H200", vllm_args={"--max-num-seqs": "256"})
one = TargetDiagnosis(Target("server", "http://server/metrics", told), shipped_rules())
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
found = [one.observe(scrape) for scrape in scrapes]
flags = {remedy.flag for snapshot in found for each in snapshot.incidents for remedy in each.remedies}
print(opened, any(flags))
"""


@pytest.mark.slow
def test_no_step_reads_a_file_once_rules_are_loaded() -> None:
    """In a process of its own: in this one the tables may have been read already."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout.strip(), done.stderr) == ("[] True", "")
