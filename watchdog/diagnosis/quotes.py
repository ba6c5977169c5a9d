"""The texts that a cause or a remedy may quote beside its numbers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from watchdog.facts.programs import described
from watchdog.facts.reachability import Reachability
from watchdog.facts.restarts import Restarts
from watchdog.facts.server import KnownServer
from watchdog.model import BlindRule, failure_text


@dataclass(frozen=True, slots=True)
class Quotes(Mapping[str, str]):
    """Each text by the name that templates know it by, made when it is asked for; what is unknown is left out."""

    reachability: Reachability
    restarts: Restarts
    server: KnownServer
    blind: Sequence[BlindRule] = ()

    def __getitem__(self, name: str) -> str:
        text = _TEXTS[name](self)
        if text is None:
            raise KeyError(name)
        return text

    def __iter__(self) -> Iterator[str]:
        return (name for name, text in _TEXTS.items() if text(self) is not None)

    def __len__(self) -> int:
        return len(list(self))


def _failure_text(quotes: Quotes) -> str:
    failure = quotes.reachability.failure
    return failure_text(failure.reason, failure.detail) if failure else "none"


_TEXTS: Mapping[str, Callable[[Quotes], str | None]] = {
    "failure": _failure_text,
    "last_words": lambda quotes: _runs_of(quotes.restarts.last_words) or "nothing",
    "blind": lambda quotes: _blind_text(quotes.blind),
    "idle_targets": lambda _: "none",
    "programs": lambda quotes: described(quotes.reachability.strangers),
    "version": lambda quotes: quotes.server.version_text(),
}


def _blind_text(blind: Sequence[BlindRule]) -> str:
    rules = ", ".join(sorted({one.rule for one in blind})) or "none"
    # Which series they are stands in the diagnosis; here they would bury the names.
    count = len({metric for one in blind for metric in one.missing})
    return f"{rules}; {count} series {'is' if count == 1 else 'are'} missing"


def _runs_of(words: Iterable[str]) -> str:
    """Each word once with how often it was said in a row."""
    runs = ((word, len(list(run))) for word, run in groupby(words))
    return ", then ".join(f"{word} ({count} times)" if count > 1 else word for word, count in runs)
