"""What the newest page says of requests in flight, taken out of history."""

from math import isnan

from watchdog.facts.inflight import Moment
from watchdog.history.history import History
from watchdog.history.layout import WHOLE_TARGET, Selector
from watchdog.history.span import Span
from watchdog.model import Scrape, Subject
from watchdog.signals.catalogue import GENERATIONS, OPEN_FILES, PROGRESS


def moment(history: History, scrape: Scrape) -> Moment:
    """The newest page, and what came beside it in its scrape, as a moment of its whole server."""
    pair = Span(history, history.frames[-2:], Subject("", *WHOLE_TARGET))
    return Moment(
        at=history.times[-1],
        # Where no counter of progress is on both pages nobody knows whether it stands still.
        moved=len(pair.frames) == 2 and pair.still_since(PROGRESS) != 0,
        load=scrape.load,
        canary=scrape.canary,
        open_files=_total(pair, OPEN_FILES),
        answers=_sum(pair, GENERATIONS),
    )


def _total(span: Span, selector: Selector) -> float | None:
    found = span.total(span.frames[-1], selector)
    return None if isnan(found) else found


def _sum(span: Span, selectors: tuple[Selector, ...]) -> float | None:
    known = [found for one in selectors if (found := _total(span, one)) is not None]
    return sum(known) if known else None
