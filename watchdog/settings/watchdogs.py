"""Other watchdogs, whose servers are shown beside our own."""

from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, field_validator, model_validator

from watchdog.http.url import host_and_port
from watchdog.settings.section import Count, Credentials, Line, Seconds, Url


class WatchdogSettings(Credentials):
    """Another watchdog, such as a sidecar: its servers are shown, and compared with others. A bare URL will do."""

    name: Line = Field(
        default="",
        max_length=128,
        description="Its name in notes and metrics; host:port of the URL where not given.",
    )
    url: Url = Field(description="Its address, such as http://vllm-0.vllm-pods:9847.")
    interval_seconds: Seconds = Field(default=10, ge=1, le=60, description="Pause between two looks at it.")
    deadline_seconds: Seconds = Field(default=5, description="An answer that takes longer is a failure.")
    max_answer_bytes: Count = Field(default=16 * 1024 * 1024, gt=0, description="A longer answer is refused.")

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adds the name where it is not given."""
        return {"name": host_and_port(values["url"])} | values

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not name or "/" in name or name != name.strip():
            raise ValueError("must not be empty, hold a slash, or start or end with a blank")
        return name

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.deadline_seconds >= self.interval_seconds:
            raise ValueError("deadline_seconds must be less than interval_seconds")
        return self

    @property
    def diagnosis_url(self) -> str:
        """Where its diagnosis is."""
        parts = urlsplit(self.url)
        path = f"{parts.path.rstrip('/').removesuffix('/diagnose')}/diagnose"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))
