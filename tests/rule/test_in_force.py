"""Which rule files are in force, and when a change of them counts."""

from pathlib import Path

import pytest

from watchdog.errors import RuleError
from watchdog.resources import shipped_rules_directory
from watchdog.rule.in_force import RULES_LOOK_SECONDS, RuleFiles, directories, load_rules, with_directories
from watchdog.settings.model import RuleSettings


def own(folder: Path) -> RuleSettings:
    return RuleSettings(directories=[folder], shipped=False)


def test_the_shipped_folder_comes_first_and_none_twice(tmp_path: Path) -> None:
    settings = with_directories(RuleSettings(directories=[tmp_path]), [tmp_path, shipped_rules_directory()])
    assert directories(settings) == (shipped_rules_directory(), tmp_path)
    assert directories(own(tmp_path)) == (tmp_path,)


def test_overrides_of_the_settings_reach_the_rules(rules: Path) -> None:
    (name,) = (path.stem for path in rules.glob("*.yaml"))
    settings = RuleSettings.model_validate(
        {
            "directories": [rules],
            "shipped": False,
            "overrides": {name: {"for": "90", "keep_firing_for": "1d"}},
        }
    )
    (rule,) = load_rules(settings).rules
    assert (rule.for_seconds, rule.keep_firing_seconds) == (90, 86400)


def test_a_change_counts_once_it_has_stood_still_for_one_look(rules: Path) -> None:
    files = RuleFiles(own(rules))
    times = iter(range(1, 1000))

    def look() -> bool:
        return files.changed(next(times) * RULES_LOOK_SECONDS)

    assert not look()
    path = next(rules.glob("*.yaml"))
    path.write_text(path.read_text() + "# a comment\n")
    assert [look() for _ in range(4)] == [False, True, False, False]
    assert not files.changed(next(times) * RULES_LOOK_SECONDS - 0.9 * RULES_LOOK_SECONDS)


def test_a_folder_that_goes_is_a_change_as_well(rules: Path) -> None:
    files = RuleFiles(own(rules))
    for path in rules.glob("*.yaml"):
        path.unlink()
    assert [files.changed(each * RULES_LOOK_SECONDS) for each in range(1, 5)] == [False, True, False, False]
    with pytest.raises(RuleError, match="no rule file here"):
        load_rules(own(rules))


def test_shipped_rules_are_not_looked_at_again() -> None:
    assert not RuleFiles(RuleSettings()).changed(1e9)
