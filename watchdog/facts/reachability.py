"""What the scrapes themselves say of a target: whether it answers, with what, and since when not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from watchdog.facts.programs import is_known_program, is_python_alone
from watchdog.model import Failure, Page, Reason, Scrape, Series

_INVALID = frozenset({Reason.PARSE, Reason.TOO_LARGE, Reason.UTF8, Reason.ENCODING})
_NOT_METRICS = frozenset({Reason.PARSE, Reason.UTF8})
# Answered 200, with a page that is of no use: not dead, but not a vLLM metrics page either.
_ANSWERED = _INVALID | {Reason.EMPTY}


@dataclass(slots=True)
class Reachability:
    """Failures in a row and the kind of page that came; times are monotonic seconds."""

    failed_scrapes: int = 0
    first_failure_at: float = 0.0
    last_failure_at: float = 0.0
    failure: Failure | None = None
    status: int = 0
    series: tuple[Series, ...] = ()
    page_vllm_series: int = 0
    strangers: Mapping[str, int] = field(default_factory=dict)
    vllm_seen: bool = False
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

    def answered(self, page: Page, at: float) -> None:
        """Notes a page."""
        self.failed_scrapes, self.failure = 0, None
        if page.series is not self.series:
            self.series = page.series
            self.page_vllm_series = sum(one.name.startswith("vllm:") for one in page.series)
        self.strangers = page.strangers
        if self.page_vllm_series:
            self.vllm_seen, self.without_vllm_since = True, None
        else:
            self._without_vllm(at)

    def facts(self, at: float) -> Iterator[tuple[str, float]]:
        """The facts of the target's signals, as numbers."""
        failing = self.failed_scrapes > 0
        yield "failed_scrapes", float(self.failed_scrapes)
        yield "failing_seconds", self.last_failure_at - self.first_failure_at if failing else 0.0
        reason = self.failure.reason if self.failure else None
        yield "failure_refused", float(reason is Reason.REFUSED)
        yield "failure_timeout", float(reason is Reason.TIMEOUT)
        yield "failure_connecting", float(bool(self.failure and self.failure.while_connecting))
        yield "failure_invalid", float(reason in _INVALID)
        yield "page_empty", float(reason is Reason.EMPTY)
        yield "page_not_metrics", float(reason in _NOT_METRICS)
        if failing and self.status:
            yield "failure_status", float(self.status)
        if not failing:
            series = sum(self.strangers.values()) or len(self.series)
            yield "page_series", float(series if self.failure is None else 0)
            yield "page_vllm_series", float(self.page_vllm_series if self.failure is None else 0)
            since = self.without_vllm_since
            yield "seconds_without_vllm", 0.0 if since is None else at - since
        yield "vllm_seen", float(self.vllm_seen)
        yield "page_without_vllm_has_http", float("http" in self.strangers)
        yield "page_of_other_program", float(is_known_program(self.strangers))
        yield "page_python_alone", float(is_python_alone(self.strangers))

    def _without_vllm(self, at: float) -> None:
        if self.without_vllm_since is None:
            self.without_vllm_since = at
