"""Which rules a command uses: those of the settings, and those of the folders named to it."""

import os
from collections.abc import Sequence
from pathlib import Path

from watchdog.rule.in_force import with_directories
from watchdog.settings.model import RuleSettings, load


def rule_settings(more: Sequence[Path] | None, config: Path | None = None) -> RuleSettings:
    """The rule settings of a file (None: that of the environment) with folders from the command line added."""
    return with_directories(load(config, {}, os.environ).rules, more or ())
