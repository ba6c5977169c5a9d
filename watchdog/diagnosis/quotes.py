"""The texts that a cause or a remedy may quote beside its numbers."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from watchdog.facts.programs import described
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import KnownServer
from watchdog.model import BlindRule, failure_text


def quotes(
    reachability: Reachability, restarts: Restarts, server: KnownServer, blind: Sequence[BlindRule] = ()
) -> dict[str, str]:
    """Each text by the name that templates know it by; what is unknown is left out."""
    failure, version = reachability.failure, server.version_text()
    return {
        "failure": failure_text(failure.reason, failure.detail) if failure else "none",
        "last_words": _runs_of(restarts.last_words) or "nothing",
        "blind": _blind_text(blind),
        "idle_targets": "none",
        "programs": described(reachability.strangers),
    } | ({} if version is None else {"version": version})


def _blind_text(blind: Sequence[BlindRule]) -> str:
    rules = ", ".join(sorted({one.rule for one in blind})) or "none"
    # Which series they are stands in the diagnosis; here they would bury the names.
    count = len({metric for one in blind for metric in one.missing})
    return f"{rules}; {count} series {'is' if count == 1 else 'are'} missing"


def _runs_of(words: Iterable[str]) -> str:
    """Each word once with how often it was said in a row."""
    runs = ((word, len(list(run))) for word, run in groupby(words))
    return ", then ".join(f"{word} ({count} times)" if count > 1 else word for word, count in runs)
