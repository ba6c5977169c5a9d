"""The tests of rules that point at recordings: each file is found, and replayed once."""

from collections.abc import Iterable
from pathlib import Path

from watchdog.cli.console import progress
from watchdog.replay.recorded_tests import RecordedTest, recorded_tests, run
from watchdog.rule.own_tests import RuleTestResult
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.recording import read, thin

INTERVAL_SECONDS = 5.0
"""As often as the service scrapes where nothing else is set."""
ENDINGS = (".jsonl.xz", ".jsonl.gz", ".jsonl")


def run_recorded(rules: Iterable[Rule], folder: Path, in_force: RuleSet) -> list[RuleTestResult]:
    """Runs the tests of `rules` that point at recordings in `folder`; one that is not there fails its tests.

    Raises RecordingError where a recording cannot be read.
    """
    by_recording: dict[str, list[RecordedTest]] = {}
    for one in recorded_tests(rules):
        by_recording.setdefault(str(one.test.recording), []).append(one)
    results = []
    for name, tests in by_recording.items():
        path = next((each for ending in ENDINGS if (each := folder / (name + ending)).is_file()), None)
        if path is None:
            problem = f"there is no recording {name} in {folder}"
            results += [RuleTestResult(one.rule.id, one.test.name, (problem,)) for one in tests]
            continue
        recording, scrapes = read(path)
        with progress(f"replaying {name}", None):
            results += run(tests, recording, thin(scrapes, INTERVAL_SECONDS), in_force)
    return results
