"""Scrapes out of a Prometheus, or what answers as one does: now and in the past, for every server at once."""

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

from watchdog.errors import SourceError
from watchdog.history.names import PROCESS, wanted_pattern
from watchdog.http.endpoint import Endpoint
from watchdog.http.get import Answer, Getter
from watchdog.http.url import redact_url
from watchdog.model import NO_LABELS
from watchdog.scrape.answer import Row, matrix_of, read_matrix
from watchdog.scrape.samples import DURATION, UP, Fleet, Looks
from watchdog.settings.prometheus import REPLICA_LABELS
from watchdog.text import one_line, printable_labels

WINDOW_SECONDS = 720.0
"""What one look needs: ten minutes to compare with, and the window of now."""
QUERY_PATH = "/api/v1/query"
# What a fleet's answer may take in memory is some three times this.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
DEADLINE_SECONDS = 30.0
MOST_WARNINGS = 5
MOST_KEPT = 100
# A clock that is off by less may be so by the time that an answer takes.
LEAST_SKEW_SECONDS = 2.0
# The names that the reader of pages wants, under whatever prefix.
_VLLM = f"(ray_|kserve_)?vllm[:_]({wanted_pattern()})"
_BESIDE = (*sorted(PROCESS), UP, DURATION)
# One of the series that every engine shows at all times.
_ENGINES = "(ray_|kserve_)?vllm[:_]num_requests_running"
_BRACES = re.compile(r"\s*\{(.*)\}\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may take at most; `deadline_seconds` is for all of it."""

    deadline_seconds: float = DEADLINE_SECONDS
    max_answer_bytes: int = MOST_ANSWER_BYTES


class PrometheusSource:
    """Reads raw samples by the query API, which Prometheus, Thanos, Mimir and VictoriaMetrics all answer.

    `match` are label matchers as in PromQL (`job="vllm"`), with or without braces; without any, the jobs in which an
    engine of vLLM is seen are read. `tenant` is sent as `X-Scope-OrgID`; `replica_labels` are those of `Looks`.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        match: str = "",
        tenant: str = "",
        limits: QueryLimits | None = None,
        replica_labels: Collection[str] = REPLICA_LABELS,
    ) -> None:
        self.shown_url = redact_url(endpoint.url)
        self.warnings: list[str] = []
        """What the Prometheus said of its own answers, an answer that is not whole above all."""
        self.is_partial = False
        """Whether it said such a thing of the last one."""
        self.bytes_read = 0
        """The size of all so far."""
        self.skew_seconds = 0.0
        """By how much its clock is ahead of ours, as its last answer told."""
        braces = _BRACES.fullmatch(match)
        self._match = (braces[1] if braces else match).strip().rstrip(",")
        self._limits = limits or QueryLimits()
        self._looks = Looks(replica_labels)
        self._jobs: set[str] = set()
        headers = {"X-Scope-OrgID": tenant} if tenant else NO_LABELS
        self._getter = Getter(endpoint, headers=headers, what="answer")

    def fleet(self, at: float, seconds: float = WINDOW_SECONDS, *, finds_jobs: bool = True) -> Fleet:
        """The servers as scraped in the `seconds` up to `at` (unix time); raises SourceError.

        Where no matchers were given and `finds_jobs` is false, the jobs found before are read.
        """
        if finds_jobs:
            self.find_jobs(at, seconds)
        match = self._matchers()
        if match is None:
            return Fleet({})
        names = "|".join((_VLLM, *_BESIDE))
        rows = self._rows(f'{{__name__=~"{names}", {match}}}[{_range(seconds)}]', at)
        try:
            return self._looks.fleet(rows)
        except ValueError as error:
            raise SourceError(f"{self.shown_url}: labels that cannot be read: {error}") from None

    def find_jobs(self, at: float, seconds: float) -> None:
        """Adds the jobs in which an engine of vLLM was seen in these seconds, where no matchers were given."""
        if self._match:
            return
        query = f'group by (job) (last_over_time({{__name__=~"{_ENGINES}"}}[{_range(seconds)}]))'
        self._jobs |= {row["metric"].get("job", "") for row in self._vector(query, at)}

    def present(self, at: float) -> Collection[frozenset[tuple[str, str]]]:
        """The labels of what is a target at that moment, as far as the Prometheus shows it; raises SourceError.

        A target that left has a marker of staleness; one that is not scraped any more is shown for five minutes.
        """
        match = self._matchers()
        if match is None:
            return ()
        rows = self._vector(f'{{__name__=~"{UP}|{_ENGINES}", {match}}}', at)
        return [frozenset(printable_labels(row["metric"]).items()) for row in rows]

    def close(self) -> None:
        """Closes the connection; a query under way in another thread ends at once, as failed."""
        self._getter.close()

    def _matchers(self) -> str | None:
        """Matchers for the targets to read; None where no job with an engine is known."""
        if self._match:
            return self._match
        jobs = "|".join(map(re.escape, sorted(self._jobs)))
        return f"job=~{json.dumps(jobs)}" if self._jobs else None

    def _rows(self, query: str, at: float) -> Sequence[Row]:
        """The series of an answer of raw samples."""
        answer = self._ask(query, at)
        matrix = read_matrix(answer.body)
        if matrix is None:
            told = self._checked(answer, _json(answer), "matrix")
            matrix = matrix_of(told)
        else:
            self._checked(answer, matrix.told, "matrix")
        if matrix is None:
            raise SourceError(f"{self.shown_url}: a row of the answer is not of the query API's form")
        return matrix.rows

    def _vector(self, query: str, at: float) -> Sequence[Mapping[str, Any]]:
        """The rows of an answer of one value each."""
        answer = self._ask(query, at)
        rows: Sequence[Mapping[str, Any]] = self._checked(answer, _json(answer), "vector")["data"]["result"]
        if not all(isinstance(row, dict) and isinstance(row.get("metric"), dict) for row in rows):
            raise SourceError(f"{self.shown_url}: a row of the answer is not of the query API's form")
        return rows

    def _note(self, told: Mapping[str, Any]) -> None:
        warnings = [str(each) for each in told.get("warnings") or []]
        if told.get("isPartial") is True:
            warnings.append("the answer is partial: a part of the storage did not answer")
        self.is_partial = bool(warnings)
        for warning in warnings[:MOST_WARNINGS]:
            text = one_line(warning, 300)
            if text not in self.warnings and len(self.warnings) < MOST_KEPT:
                self.warnings.append(text)

    def _ask(self, query: str, at: float) -> Answer:
        limits = self._limits
        asked = urlencode(
            {"query": query, "time": f"{at:.3f}", "timeout": f"{1000 * limits.deadline_seconds:.0f}ms"}
        )
        base, mark, own = self._getter.url.partition("?")
        url = f"{base.rstrip('/').removesuffix(QUERY_PATH)}{QUERY_PATH}?{own}{'&' if mark else ''}{asked}"
        seconds = limits.deadline_seconds
        try:
            answer = self._getter.get(
                url, "application/json", seconds, limits.max_answer_bytes, any_status=True
            )
        except Exception as error:  # Whatever libraries raise, a person is told what it means.
            detail = self._getter.failure(error, seconds).detail
            raise SourceError(f"{self.shown_url}: {detail}{_advice(detail)}") from None
        self.bytes_read += len(answer.body)
        self.skew_seconds = _skew_seconds(answer)
        return answer

    def _checked(self, answer: Answer, told: object, kind: str) -> Mapping[str, Any]:
        """What an answer says, a success of that kind; raises SourceError for any other."""
        if answer.status != 200 or not isinstance(told, dict) or told.get("status") != "success":
            words = told.get("error") if isinstance(told, dict) else None
            detail = one_line(str(words), 300) if words else "no answer of the query API"
            hint = _HINTS.get(answer.status, "")
            raise SourceError(f"{self.shown_url}: HTTP {answer.status}, {detail}{hint}")
        data = told.get("data")
        rows = data.get("result") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(rows, list) or data.get("resultType") != kind:
            raise SourceError(
                f"{self.shown_url}: an answer of the query API was expected, of the type {kind}"
            )
        self._note(told)
        return told


# What to do about a status, where its own words do not say it.
_HINTS = {
    401: " (give --bearer-token-file, in settings bearer_token_file, or a user and password in the URL)",
    403: " (give --bearer-token-file, in settings bearer_token_file, or a user and password in the URL)",
    404: " (the URL is what stands before /api/v1/query; Mimir and Thanos often have a prefix)",
    422: " (narrow it with --match, in settings match)",
}


def _advice(detail: str) -> str:
    return "; narrow it with --match, in settings match" if "larger than" in detail else ""


def _range(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"


def _json(answer: Answer) -> object:
    try:
        told: object = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return told


def _skew_seconds(answer: Answer) -> float:
    """How far the clock of who answered is ahead of ours, as its header `Date` says; 0 for nothing to speak of."""
    try:
        told = parsedate_to_datetime(answer.headers.get("Date", ""))
        skew = told.timestamp() - time.time()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return skew if abs(skew) >= LEAST_SKEW_SECONDS else 0.0
