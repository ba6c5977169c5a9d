"""What the scrapes themselves say of a target: whether it answers, with what, and since when not.

Of a server that an earlier life watched, what lasts since the first scrape may have begun before it: such counts and
times are lower bounds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from watchdog.facts.fact import Fact, Known
from watchdog.facts.programs import described, is_known_program, is_python_alone
from watchdog.history.number import AtLeast
from watchdog.model import Failure, Incident, Page, Reason, Scrape, Series

# fmt: off
FAILED_SCRAPES = Fact("failed_scrapes", "scrapes", "Scrapes that failed in a row.")
FAILING_SECONDS = Fact("failing_seconds", "s", "Time from the first failed scrape in a row to the last.")
FAILURE_REFUSED = Fact("failure_refused", "0 or 1", "The last failure was a refused connection.")
FAILURE_TIMEOUT = Fact("failure_timeout", "0 or 1", "The last failure was a time-out.")
FAILURE_CONNECTING = Fact("failure_connecting", "0 or 1", "The last failure came while connecting.")
FAILURE_STATUS = Fact("failure_status", "code", "The HTTP status of the last failure that had one.")
FAILURE_INVALID = Fact("failure_invalid", "0 or 1", "The last failure was of the page: a limit or the format.")
PAGE_EMPTY = Fact("page_empty", "0 or 1", "The last answer was 200 with an empty body.")
PAGE_NOT_METRICS = Fact(
    "page_not_metrics", "0 or 1", "The last answer was 200 with something that is no metrics page.")
PAGE_SERIES = Fact(
    "page_series", "series", "Series on the page, those not read included where vLLM's are missing.")
PAGE_VLLM_SERIES = Fact("page_vllm_series", "series", "vLLM's series on the page.")
SECONDS_WITHOUT_VLLM = Fact(
    "seconds_without_vllm", "s", "Time since a page last had series of vLLM, while pages came.")
VLLM_SEEN = Fact("vllm_seen", "0 or 1", "Whether this address ever had series of vLLM.")
WITHOUT_VLLM_HAS_HTTP = Fact(
    "page_without_vllm_has_http", "0 or 1", "A page without vLLM's series has those of its HTTP layer.")
OF_OTHER_PROGRAM = Fact(
    "page_of_other_program", "0 or 1",
    "A page without vLLM's series is that of another program known by its metric names.")
PYTHON_ALONE = Fact(
    "page_python_alone", "0 or 1",
    "A page without vLLM's series has only the Python client's own metrics.")
# fmt: on

_INVALID = frozenset({Reason.PARSE, Reason.TOO_LARGE, Reason.UTF8, Reason.ENCODING})
_NOT_METRICS = frozenset({Reason.PARSE, Reason.UTF8})
# Answered 200, with a page that is of no use: not dead, but not a vLLM metrics page either.
_ANSWERED = _INVALID | {Reason.EMPTY}


@dataclass(slots=True)
class Reachability:
    """Failures in a row and the kind of page that came; times are monotonic seconds.

    `from_start` is whether what lasts now (failures, or pages without vLLM) was so at the first scrape already, of a
    server that was `watched_before`. `vllm_seen` is None where an earlier life may have seen it.
    """

    watched_before: bool = False
    scraped: bool = False
    from_start: bool = False
    failed_scrapes: int = 0
    first_failure_at: float = 0.0
    last_failure_at: float = 0.0
    failure: Failure | None = None
    status: int = 0
    series: tuple[Series, ...] = ()
    page_vllm_series: int = 0
    strangers: Mapping[str, int] = field(default_factory=dict)
    vllm_seen: bool | None = False
    without_vllm_since: float | None = None

    def failed(self, failure: Failure, scrape: Scrape) -> None:
        """Notes a scrape without a usable page."""
        answered = failure.reason in _ANSWERED and scrape.status == 200
        self.failure, self.status, self.strangers = failure, scrape.status, {}
        if answered:
            self._without_vllm(scrape.at)
            self.failed_scrapes = 0
            return
        self.without_vllm_since = None
        self.failed_scrapes += 1
        self.last_failure_at = scrape.at
        if self.failed_scrapes == 1:
            self.first_failure_at = scrape.at
            self._begin()

    def answered(self, page: Page, at: float) -> None:
        """Notes a page."""
        self.failed_scrapes, self.failure = 0, None
        if page.series is not self.series:
            self.series = page.series
            self.page_vllm_series = sum(one.name.startswith("vllm:") for one in page.series)
        self.strangers = page.strangers
        if self.page_vllm_series:
            self.vllm_seen, self.without_vllm_since = True, None
            self._begin()
        else:
            self._without_vllm(at)

    def recall(self, incidents: Iterable[Incident]) -> None:
        """Takes from the incidents of an earlier life what they saw of this address."""
        for incident in incidents:
            self.watched_before = True
            seen = incident.key.engine or any(each.values.get(VLLM_SEEN.name) for each in incident.evidence)
            self.vllm_seen = True if seen or self.vllm_seen else None

    @property
    def notes(self) -> tuple[str, ...]:
        """For people: whose page it is, where it is known to be that of another program."""
        if self.page_vllm_series or not is_known_program(self.strangers):
            return ()
        return (f"another program answers here, with other metrics: {described(self.strangers)}",)

    def facts(self, at: float) -> Iterator[Known]:
        """The facts of the target's signals, as numbers."""
        failing = self.failed_scrapes > 0
        yield FAILED_SCRAPES, self._lasting(float(self.failed_scrapes)) if failing else 0.0
        failing_seconds = self.last_failure_at - self.first_failure_at
        yield FAILING_SECONDS, self._lasting(failing_seconds) if failing else 0.0
        reason = self.failure.reason if self.failure else None
        yield FAILURE_REFUSED, float(reason is Reason.REFUSED)
        yield FAILURE_TIMEOUT, float(reason is Reason.TIMEOUT)
        yield FAILURE_CONNECTING, float(bool(self.failure and self.failure.while_connecting))
        yield FAILURE_INVALID, float(reason in _INVALID)
        yield PAGE_EMPTY, float(reason is Reason.EMPTY)
        yield PAGE_NOT_METRICS, float(reason in _NOT_METRICS)
        if failing and self.status:
            yield FAILURE_STATUS, float(self.status)
        if not failing:
            series = sum(self.strangers.values()) or len(self.series)
            yield PAGE_SERIES, float(series if self.failure is None else 0)
            yield PAGE_VLLM_SERIES, float(self.page_vllm_series if self.failure is None else 0)
            since = self.without_vllm_since
            yield SECONDS_WITHOUT_VLLM, 0.0 if since is None else self._lasting(at - since)
        if self.vllm_seen is not None:
            yield VLLM_SEEN, float(self.vllm_seen)
        yield WITHOUT_VLLM_HAS_HTTP, float("http" in self.strangers)
        yield OF_OTHER_PROGRAM, float(is_known_program(self.strangers))
        yield PYTHON_ALONE, float(is_python_alone(self.strangers))

    def _without_vllm(self, at: float) -> None:
        if self.without_vllm_since is None:
            self.without_vllm_since = at
            self._begin()

    def _begin(self) -> None:
        self.from_start = self.watched_before and not self.scraped
        self.scraped = True

    def _lasting(self, value: float) -> float:
        return AtLeast(value) if self.from_start else value
