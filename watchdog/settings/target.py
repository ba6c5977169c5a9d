"""One vLLM server in the settings: where it is, how it is watched, what its owner knows of it."""

import dataclasses
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from watchdog.http.endpoint import Endpoint
from watchdog.http.url import beside, host_and_port, redact_url, with_metrics_path
from watchdog.model import Expectations, ModelShape, Objectives, Target
from watchdog.settings.section import Count, Credentials, LabelName, Line, Number, Seconds, Section, Url
from watchdog.settings.values import parse_vllm_args

OUR_LABELS = frozenset(
    {"alertname", "rule", "severity", "target", "model_name", "engine", "instance", "job", "le", "__name__"}
)
"""Labels that mean something in alerts and series already."""


class ObjectiveSettings(Section):
    """Latencies you promise; rules compare with these where set, else with the server's own past."""

    ttft_p95_seconds: Seconds | None = Field(
        default=None, description="95th percentile of time to first token."
    )
    itl_p99_seconds: Seconds | None = Field(
        default=None, description="99th percentile of the gap between tokens."
    )
    e2e_p95_seconds: Seconds | None = Field(default=None, description="95th percentile of a whole request.")


class ModelSettings(Section):
    """The model's shape, to turn memory into KV tokens; from its config.json."""

    layers: Count | None = Field(default=None, gt=0, description="Layers that hold KV (`num_hidden_layers`).")
    kv_heads: Count | None = Field(default=None, gt=0, description="KV heads (`num_key_value_heads`).")
    head_dimension: Count | None = Field(default=None, gt=0, description="Size of one head (`head_dim`).")
    weight_bytes: Count | None = Field(default=None, gt=0, description="Bytes of the weights on one GPU.")


class CanarySettings(Section):
    """One completion of one token, to see whether an engine on which nothing moves lives."""

    enabled: bool = Field(
        default=False,
        description="Request one token if nothing moves and requests may hang: at most once a minute, and never from "
        "a sleeping engine.",
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File with the server's API key (`--api-key`), read at each use; the target's own credentials "
        "where not given.",
    )


class WatchSettings(Credentials):
    """How a vLLM server is watched, and what its owner knows of it."""

    interval_seconds: Seconds | None = Field(
        default=None,
        ge=0.05,
        le=20,
        description="Pause between scrapes; scrape.interval_seconds where not given.",
    )
    start_seconds: Number = Field(
        default=0,
        ge=0,
        le=86_400,
        description="How long a new server may take to answer for the first time before it is reported as down: the "
        "time to load its model.",
    )
    expected_shared_prefix_tokens: Count | None = Field(
        default=None,
        ge=0,
        description="Tokens that prompts share at their start (system prompt), if you know.",
    )
    batch_jobs: bool = Field(
        default=False,
        description=(
            "Jobs of many requests at once run here on purpose: queues, full batches and high latency are info only."
        ),
    )
    slo: ObjectiveSettings = Field(default_factory=ObjectiveSettings, description="Your latency objectives.")
    gpu: Line | None = Field(
        default=None, description="GPU model, such as H100 or L40S; shown and used by remedies."
    )
    memory_bandwidth_bytes_per_second: Number | None = Field(
        default=None, gt=0, description="Memory bandwidth of one GPU."
    )
    model: ModelSettings = Field(default_factory=ModelSettings, description="The model's shape.")
    vllm_args: dict[str, str] = Field(
        default_factory=dict,
        description="The server's launch flags, as one string, a list or a mapping.",
    )
    match_labels: dict[LabelName, Line] = Field(
        default_factory=dict, description="Labels of received alerts that identify this target."
    )
    labels: dict[LabelName, Line] = Field(
        default_factory=dict,
        description="Labels of your own, such as a team or a zone: the page filters by them, and alerts of this target "
        "carry them.",
    )
    canary: CanarySettings = Field(
        default_factory=CanarySettings,
        description="Whether a silent engine is asked for a token.",
    )

    @field_validator("labels")
    @classmethod
    def _own_labels(cls, labels: dict[str, str]) -> dict[str, str]:
        if taken := sorted(OUR_LABELS & labels.keys()):
            raise ValueError(f"{', '.join(taken)}: alerts have labels of this name already; choose another")
        return labels

    @field_validator("vllm_args", mode="before")
    @classmethod
    def _flags(cls, value: Any) -> Any:
        return parse_vllm_args(value)


class TargetSettings(WatchSettings):
    """One vLLM server to watch. A bare URL or host:port will do."""

    name: Line = Field(
        default="",
        max_length=128,
        description="Its name in every output; host:port of the URL where not given.",
    )
    url: Url = Field(description="Its metrics page; the path is /metrics where not given.")

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adds the scheme, the path and the name where they are not given."""
        url = with_metrics_path(values["url"])
        return {"name": host_and_port(url)} | values | {"url": url}

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        # A key parts its words by slashes, and `*` stands for all targets together.
        if not name or "/" in name or name != name.strip() or name == "*":
            raise ValueError("must not be empty or `*`, hold a slash, or start or end with a blank")
        return name

    def target(self) -> Target:
        """The noun that the pipeline sees: no secret in it."""
        return Target(
            name=self.name,
            url=redact_url(self.url),
            expectations=Expectations(
                expected_shared_prefix_tokens=self.expected_shared_prefix_tokens,
                batch_jobs=self.batch_jobs,
                objectives=Objectives(**self.slo.model_dump()),
                gpu=self.gpu,
                memory_bandwidth_bytes_per_second=self.memory_bandwidth_bytes_per_second,
                shape=ModelShape(**self.model.model_dump()),
                vllm_args=dict(self.vllm_args),
            ),
            labels=dict(self.labels),
        )

    def endpoint(self) -> Endpoint:
        """Where to fetch this target's page, and with which credentials."""
        return self.endpoint_at(self.url)

    def canary_endpoint(self) -> Endpoint:
        """Where to ask this target for a token, and with which key."""
        endpoint = self.endpoint_at(beside(self.url, "v1/completions"))
        key = self.canary.api_key_file
        if key is None:
            return endpoint
        return dataclasses.replace(
            endpoint, bearer_token_file=key, username=None, password_file=None, password=None
        )
