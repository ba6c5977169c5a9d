"""From scrapes to pages: each is read or is a failure, and all are counted."""

from dataclasses import dataclass

from watchdog.history.names import wanted
from watchdog.history.shapes import Shapes
from watchdog.model import Failure, Page, Reason, Scrape
from watchdog.scrape.exposition import ExpositionError, SeriesCache, parse


def is_unseen(scrape: Scrape) -> bool:
    """Whether it only says that nobody could look: the server may be as it was, or not."""
    return scrape.failure is not None and scrape.failure.reason is Reason.NOT_SEEN


@dataclass(frozen=True, slots=True)
class PageOrFailure:
    """What a scrape gave: a page, or the failure that left none (exactly one of the two is None).

    `after_failure` is whether scrapes failed since the page before.
    """

    page: Page | None
    failure: Failure | None
    after_failure: bool


class PageReader:
    """Reads the scrapes of one target, in order.

    `scrapes` counts all of them since the start, `failures` those that gave nothing, by reason;
    `last_success_wall` is when one last gave a page (unix seconds, None: never).
    """

    def __init__(self, max_series: int, max_line_bytes: int, shapes: Shapes | None = None) -> None:
        self.scrapes = 0
        self.failures: dict[Reason, int] = {}
        self.last_success_wall: float | None = None
        self._failing = False
        self._shapes = shapes or Shapes()
        self.limit(max_series, max_line_bytes)

    def limit(self, max_series: int, max_line_bytes: int) -> None:
        """Reads pages up to other limits from now on."""
        self._cache = SeriesCache(wanted, max_series, max_line_bytes, shapes=self._shapes)

    def read(self, scrape: Scrape) -> PageOrFailure:
        """The page of a scrape, or why there is none."""
        if is_unseen(scrape):
            # Nothing was tried, nothing failed.
            return PageOrFailure(None, scrape.failure, self._failing)
        self.scrapes += 1
        page, failure = self._parsed(scrape)
        taken = PageOrFailure(page, failure, self._failing)
        self._failing = failure is not None
        if failure is None:
            self.last_success_wall = scrape.wall
        else:
            self.failures[failure.reason] = self.failures.get(failure.reason, 0) + 1
        return taken

    def _parsed(self, scrape: Scrape) -> tuple[Page | None, Failure | None]:
        if scrape.failure is not None:
            return None, scrape.failure
        try:
            return parse(scrape.body, self._cache), None
        except ExpositionError as error:
            return None, Failure(error.reason, error.detail)
