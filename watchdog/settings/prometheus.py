"""The Prometheus that servers are read from: by a command, and by `serve`."""

import math
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from watchdog.http.url import host_and_port
from watchdog.settings.section import Count, Credentials, LabelName, Line, Seconds, Url

# Labels by which two Prometheus of a pair that scrape the same targets differ, as their manuals name them.
REPLICA_LABELS = frozenset(
    {
        "prometheus_replica",
        "prometheus",
        "replica",
        "__replica__",
        "receive",
        "rule_replica",
        "thanos_replica",
    }
)


class PrometheusSettings(Credentials):
    """A Prometheus, or what answers its query API, that scrapes the servers already. A bare URL will do."""

    url: Url = Field(description="Its base URL, such as http://prometheus:9090; the part before /api/v1.")
    match: Line = Field(
        default="",
        description='Matchers of the targets to read, as `job="vllm"`; every job with a vLLM where not given.',
    )
    tenant: Line = Field(default="", max_length=256, description="Tenant, sent as X-Scope-OrgID.")


class SourceSettings(PrometheusSettings):
    """A Prometheus that scrapes vLLM servers, all of which are watched through it. A bare URL will do."""

    name: Line = Field(
        default="",
        max_length=128,
        description="Its name in logs, metrics and the state; host:port of the URL where not given.",
    )
    interval_seconds: Seconds = Field(
        default=15,
        ge=1,
        le=300,
        description="Pause between two queries, each for all servers; the scrape interval, or less.",
    )
    deadline_seconds: Seconds = Field(
        default=12,
        description="A query that takes longer in all is a failure; 0.8 intervals, at most 30, if not set.",
    )
    max_answer_bytes: Count = Field(default=64 * 1024 * 1024, gt=0, description="A longer answer is refused.")
    replica_labels: list[LabelName] = Field(
        default_factory=lambda: sorted(REPLICA_LABELS),
        description="Labels in which replicas of a Prometheus differ: each server is watched once; with an empty list, "
        "once per replica.",
    )

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adds the name and the deadline where they are not given."""
        named = {"name": host_and_port(values["url"])} | values
        if values.get("deadline_seconds") is not None:
            return named
        try:
            interval = float(values.get("interval_seconds", 15))
        except (TypeError, ValueError):
            interval = math.nan
        return named | {"deadline_seconds": min(30.0, 0.8 * interval) if interval > 0 else 12.0}

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not name or name != name.strip():
            raise ValueError("must not be empty, or start or end with a blank")
        return name

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.deadline_seconds >= self.interval_seconds:
            raise ValueError("deadline_seconds must be less than interval_seconds")
        return self
