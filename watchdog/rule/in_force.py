"""Which rule files are in force by the settings: those that come with us, and the user's own."""

from collections.abc import Sequence
from pathlib import Path

from watchdog.errors import RuleError
from watchdog.resources import shipped_rules_directory
from watchdog.rule import rule_set
from watchdog.rule.rule_set import RuleSet
from watchdog.settings.model import RuleSettings
from watchdog.signals.catalogue import signal_names

# Rule folders are looked at this often; a change counts once it has stood still from one look to the next.
RULES_LOOK_SECONDS = 5.0


def directories(settings: RuleSettings) -> tuple[Path, ...]:
    """Every folder that is read, the shipped one first; one that is named twice is read once."""
    named = [shipped_rules_directory()] if settings.shipped else []
    unique = {path.resolve(): path for path in (*named, *settings.directories)}
    return tuple(unique.values())


def load_rules(settings: RuleSettings, check: rule_set.Check | None = None) -> RuleSet:
    """The rule set; raises RuleError with every fault of every file and override.

    `check` is for those who write rules: what works but should be written otherwise is refused, too.
    """
    overrides = {
        identity: rule_set.RuleOverride(**override.model_dump())
        for identity, override in settings.overrides.items()
    }
    return rule_set.load(directories(settings), signal_names(), overrides, settings.allow_untested, check)


def with_directories(settings: RuleSettings, more: Sequence[Path]) -> RuleSettings:
    """The same settings with further folders."""
    return settings.model_copy(update={"directories": [*settings.directories, *more]})


class RuleFiles:
    """The user's rule folders, looked at now and then: a change counts once it has stood still for one look.

    A file that is half written, or a mount that is being swapped, is so never read as the new rules.
    """

    def __init__(self, settings: RuleSettings) -> None:
        self._settings = settings
        self._known = self._seen = self._content()
        self._looked_at = float("-inf")

    def changed(self, at: float) -> bool:
        """True once for each new content of the files, valid or not."""
        if not self._settings.directories or at - self._looked_at < RULES_LOOK_SECONDS:
            return False
        self._looked_at = at
        content = self._content()
        stands_still, self._seen = content == self._seen, content
        if not stands_still or content == self._known:
            return False
        self._known = content
        return True

    def _content(self) -> str:
        try:
            return rule_set.digest(directories(self._settings))
        except RuleError as error:
            return str(error)
