"""Which rule files are in force by the settings: those that come with us, and the user's own."""

from collections.abc import Sequence
from pathlib import Path

from watchdog.diagnosis import rules
from watchdog.diagnosis.rules import RuleSet
from watchdog.resources import shipped_rules_directory
from watchdog.settings import RuleOverride, RuleSettings
from watchdog.signals.catalogue import signal_names


def directories(settings: RuleSettings) -> tuple[Path, ...]:
    """Every folder that is read, the shipped one first; one that is named twice is read once."""
    named = [shipped_rules_directory()] if settings.shipped else []
    unique = {path.resolve(): path for path in (*named, *settings.directories)}
    return tuple(unique.values())


def load_rules(settings: RuleSettings) -> RuleSet:
    """The rule set; raises RuleError with every fault of every file and override."""
    overrides = {identity: _override(override) for identity, override in settings.overrides.items()}
    return rules.load(directories(settings), signal_names(), overrides, settings.allow_untested)


def digest(settings: RuleSettings) -> str:
    """Changes when any rule file does; raises RuleError where a folder cannot be read."""
    return rules.digest(directories(settings))


def _override(override: RuleOverride) -> rules.RuleOverride:
    return rules.RuleOverride(
        override.parameters,
        override.for_seconds,
        override.keep_firing_seconds,
        override.severity,
        override.enabled,
    )


def with_directories(settings: RuleSettings, more: Sequence[Path]) -> RuleSettings:
    """The same settings with further folders."""
    return settings.model_copy(update={"directories": [*settings.directories, *more]})
