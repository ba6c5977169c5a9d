"""Scrapes out of a Prometheus, or what answers as one does: now and in the past, for every server at once."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from watchdog.errors import SourceError
from watchdog.http.endpoint import Endpoint
from watchdog.http.get import Answer, Getter
from watchdog.http.url import redact_url
from watchdog.model import NO_LABELS
from watchdog.scrape.samples import DURATION, UP, Fleet, Row, fleet_of
from watchdog.text import one_line

WINDOW_SECONDS = 720.0
"""What one look needs: ten minutes to compare with, and the window of now."""
QUERY_PATH = "/api/v1/query"
# What a fleet's answer may take in memory is some ten times this.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
DEADLINE_SECONDS = 30.0
MOST_WARNINGS = 5
# Under whatever prefix: which of them are read, and how, is for the reader of pages to say.
_VLLM = "(ray_|kserve_)?vllm[:_].+"
_PROCESS = ("process_.+", "http_requests_total", UP, DURATION)
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
    engine of vLLM is seen are read. `tenant` is told as `X-Scope-OrgID`.
    """

    def __init__(
        self, endpoint: Endpoint, match: str = "", tenant: str = "", limits: QueryLimits | None = None
    ) -> None:
        self.shown_url = redact_url(endpoint.url)
        self.warnings: list[str] = []
        """What the Prometheus said of its own answers, an answer that is not whole above all."""
        braces = _BRACES.fullmatch(match)
        self._match = (braces[1] if braces else match).strip().rstrip(",")
        self._limits = limits or QueryLimits()
        headers = {"X-Scope-OrgID": tenant} if tenant else NO_LABELS
        self._getter = Getter(endpoint, headers=headers, what="answer")

    def fleet(self, at: float, seconds: float = WINDOW_SECONDS) -> Fleet:
        """The servers as scraped in the `seconds` up to `at` (unix time); raises SourceError."""
        match = self._match or self._jobs(at, seconds)
        if match is None:
            return Fleet({})
        names = "|".join((_VLLM, *_PROCESS))
        selector = f'{{__name__=~"{names}", __name__!~".+_created", {match}}}'
        return fleet_of(self._rows(f"{selector}[{_range(seconds)}]", at))

    def close(self) -> None:
        """Closes the connection."""
        self._getter.close()

    def _jobs(self, at: float, seconds: float) -> str | None:
        """A matcher for the jobs of which an engine of vLLM is seen; None where there is none."""
        rows = self._result(
            f'group by (job) (last_over_time({{__name__=~"{_ENGINES}"}}[{_range(seconds)}]))', at, "vector"
        )
        jobs = sorted({row["metric"].get("job", "") for row in rows})
        return f"job=~{json.dumps('|'.join(map(re.escape, jobs)))}" if jobs else None

    def _rows(self, query: str, at: float) -> Iterator[Row]:
        for row in self._result(query, at, "matrix"):
            yield Row(row["metric"], row["values"])

    def _result(self, query: str, at: float, kind: str) -> Sequence[Mapping[str, Any]]:
        """The rows of an answer of that kind, each checked for the form that its reader relies on."""
        told = self._ask(query, at)
        data = told.get("data")
        rows = data.get("result") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(rows, list) or data.get("resultType") != kind:
            raise SourceError(
                f"{self.shown_url}: an answer of the query API was expected, of the type {kind}"
            )
        if not all(map(_is_row if kind == "vector" else _is_series, rows)):
            raise SourceError(f"{self.shown_url}: a row of the answer is not of the query API's form")
        self._note(told)
        return rows

    def _note(self, told: Mapping[str, Any]) -> None:
        warnings = [str(each) for each in told.get("warnings") or []]
        if told.get("isPartial") is True:
            warnings.append("the answer is partial: a part of the storage did not answer")
        for warning in warnings[:MOST_WARNINGS]:
            text = one_line(warning, 300)
            if text not in self.warnings:
                self.warnings.append(text)

    def _ask(self, query: str, at: float) -> Mapping[str, Any]:
        limits = self._limits
        asked = urlencode({"query": query, "time": f"{at:.3f}", "timeout": f"{limits.deadline_seconds:g}s"})
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
        return self._checked(answer)

    def _checked(self, answer: Answer) -> Mapping[str, Any]:
        try:
            told = json.loads(answer.body)
        except (ValueError, RecursionError):
            told = None
        if answer.status != 200 or not isinstance(told, dict) or told.get("status") != "success":
            words = told.get("error") if isinstance(told, dict) else None
            detail = one_line(str(words), 300) if words else "no answer of the query API"
            hint = _HINTS.get(answer.status, "")
            raise SourceError(f"{self.shown_url}: HTTP {answer.status}, {detail}{hint}")
        return told


# What to do about a status, where its own words do not say it.
_HINTS = {
    401: " (give --bearer-token-file, or a user and password in the URL)",
    403: " (give --bearer-token-file, or a user and password in the URL)",
    404: " (the URL is what stands before /api/v1/query; Mimir and Thanos often have a prefix)",
    422: " (narrow it with --match)",
}


def _advice(detail: str) -> str:
    return "; narrow it with --match" if "larger than" in detail else ""


def _range(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"


def _is_row(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("metric"), dict)


def _is_series(row: object) -> bool:
    """Whether a row has a name and samples of a time and a text that is a number, in the order of time."""
    if not _is_row(row) or not isinstance(row, dict) or not isinstance(row["metric"].get("__name__"), str):
        return False
    values = row.get("values")
    return isinstance(values, list) and all(
        isinstance(each, list) and len(each) == 2 and _is_time(each[0]) and _is_number(each[1])
        for each in values
    )


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True
