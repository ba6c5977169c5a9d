"""Where servers that come and go are found: files, lists over HTTP, pods of Kubernetes."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from watchdog.http.url import host_and_port
from watchdog.settings.section import Count, Credentials, Line, Number, Seconds, Section, Url
from watchdog.settings.target import WatchSettings

# As Prometheus has it: a star stands in the last part of the path only, and the ending says what is in it.
_GLOB = re.compile(r"[^*?\[]*/?[^/]*\.(json|yml|yaml|JSON|YML|YAML)")
_SELECTOR = re.compile(r"[\w./()!=, -]+")
FOUND_START_SECONDS = 600.0
"""A server that is found has as long to load its model: large ones take minutes."""

PodLabel = Annotated[Line, Field(pattern=r"^[A-Za-z0-9_./-]+$", max_length=317)]


class FoundWatchSettings(WatchSettings):
    """How each server that is found is watched, as for a target."""

    start_seconds: Number = Field(
        default=FOUND_START_SECONDS,
        ge=0,
        le=86_400,
        description="How long a new server may take to answer for the first time before it is reported as down: the "
        "time to load its model.",
    )


class FindSettings(Section):
    """What all ways of finding servers share."""

    name: Line = Field(
        default="",
        max_length=128,
        description="Its name in logs, notes and metrics; the file, the address or the selector where not given.",
    )
    finds: Literal["servers", "watchdogs"] = Field(
        default="servers",
        description="What is found: vLLM servers to watch, or other watchdogs (sidecars; `port` is theirs, 9847) whose "
        "servers are shown.",
    )
    scheme: Literal["http", "https"] = Field(default="http", description="How the servers are reached.")
    path: Line = Field(default="/metrics", pattern="^/", description="Where their metrics pages are.")
    port: Count = Field(default=8000, gt=0, le=65535, description="Their port, for an address that has none.")
    target: FoundWatchSettings = Field(
        default_factory=FoundWatchSettings, description="How each server that is found is watched."
    )


class FileDiscoverySettings(FindSettings):
    """Files in the form of Prometheus' `file_sd`: lists of `targets` with `labels`, in JSON or YAML."""

    files: list[Line] = Field(
        min_length=1,
        description="The files; `*` stands for any text in the last part of a path, as in `/etc/targets/*.yaml`.",
    )
    name_label: Line = Field(
        default="", description="Label whose value is a server's name; its address where not given."
    )
    refresh_seconds: Seconds = Field(default=5, ge=1, description="Pause between two looks at the files.")
    keep_labels: list[PodLabel] | None = Field(
        default=None,
        description="Labels that are kept of those in the list; all where not given, but those that alerts have "
        "already (`job`, `instance`).",
    )

    @field_validator("files")
    @classmethod
    def _globs(cls, files: list[str]) -> list[str]:
        for each in files:
            if not _GLOB.fullmatch(each):
                raise ValueError(
                    f"{each} must end with .json, .yml or .yaml, and have a star in its last part only"
                )
        return files

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Accepts a bare path, and names it after its first file."""
        if isinstance(values, str):
            values = {"files": [values]}
        files = values.get("files") if isinstance(values, dict) else None
        if isinstance(files, list) and files and isinstance(files[0], str):
            return {"name": files[0][-128:]} | values
        return values


class HttpDiscoverySettings(Credentials, FindSettings):
    """A list over HTTP in the form of Prometheus' `http_sd`. A bare URL will do; credentials are for the list."""

    url: Url = Field(description="Where the list is.")
    name_label: Line = Field(
        default="", description="Label whose value is a server's name; its address where not given."
    )
    refresh_seconds: Seconds = Field(default=60, ge=1, description="Pause between two looks at the list.")
    deadline_seconds: Seconds = Field(default=10, description="A list that takes longer is a failure.")
    max_body_bytes: Count = Field(default=16 * 1024 * 1024, gt=0, description="A longer list is refused.")
    keep_labels: list[PodLabel] | None = Field(
        default=None,
        description="Labels that are kept of those in the list; all where not given, but those that alerts have "
        "already (`job`, `instance`).",
    )

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adds the name where it is not given."""
        return {"name": host_and_port(values["url"])} | values


class KubernetesDiscoverySettings(FindSettings):
    """Pods by their labels, listed and watched; wants `pip install vllm-watchdog[kubernetes]`."""

    selector: Line = Field(min_length=1, description="Label selector of the pods, such as `app=vllm`.")
    namespaces: list[Line] = Field(
        default_factory=list,
        description="Namespaces to look in; the watchdog's own (or the kubeconfig's) where not given.",
    )
    container: Line = Field(
        default="",
        description="The pods' container that is vLLM; the one that names the port, else the first, where not given.",
    )
    kubeconfig_file: Path | None = Field(
        default=None, description="A kubeconfig; the pod's own service account where not given."
    )
    context: Line = Field(
        default="", description="Context of the kubeconfig; its current one where not given."
    )
    keep_labels: list[PodLabel] = Field(
        default_factory=list,
        description="Labels of the pods that are kept; what a label name may not hold becomes `_`, as in "
        "`app_kubernetes_io_name`.",
    )
    deadline_seconds: Seconds = Field(default=10, description="A list that takes longer is a failure.")

    @field_validator("selector")
    @classmethod
    def _is_selector(cls, selector: str) -> str:
        if not _SELECTOR.fullmatch(selector):
            raise ValueError("must be a label selector, such as `app=vllm,tier in (gpu)`")
        return selector

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: Any) -> Any:
        """Names it after its selector."""
        if isinstance(values, dict) and isinstance(values.get("selector"), str):
            return {"name": values["selector"][:128]} | values
        return values


class DiscoverySettings(Section):
    """Where servers that come and go are found, beside or instead of targets."""

    file_sd: list[FileDiscoverySettings] = Field(
        default_factory=list, description="Files in the form of Prometheus' `file_sd`."
    )
    http_sd: list[HttpDiscoverySettings] = Field(
        default_factory=list, description="Lists in the form of Prometheus' `http_sd`."
    )
    kubernetes: list[KubernetesDiscoverySettings] = Field(
        default_factory=list, description="Pods of Kubernetes, by label."
    )

    @property
    def all(self) -> tuple[FindSettings, ...]:
        """Every way to find servers."""
        return (*self.file_sd, *self.http_sd, *self.kubernetes)

    @property
    def lacks(self) -> str:
        """What is not installed that this needs; empty for nothing."""
        if self.kubernetes and find_spec("kubernetes") is None:
            return (
                "discovery.kubernetes: needs a library; install it: pip install 'vllm-watchdog[kubernetes]'"
            )
        return ""

    @model_validator(mode="after")
    def _no_two_names(self) -> Self:
        names = [each.name for each in self.all]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several are called {twice[0]}: give each a name of its own")
        return self
