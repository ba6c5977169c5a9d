"""All settings: command line over environment over YAML file over defaults; all faults are reported at once."""

import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from watchdog.errors import ConfigError
from watchdog.http.endpoint import Endpoint
from watchdog.http.url import (
    canonical_url,
    checked_url,
    hide_path,
    host_and_port,
    host_of,
    is_loopback,
    redact_url,
    split_user_info,
)
from watchdog.model import Severity, Target
from watchdog.schema import Duration
from watchdog.settings.apprise import AppriseSettings, apprise_faults
from watchdog.settings.discovery import DiscoverySettings
from watchdog.settings.maintenance import MaintenanceSettings
from watchdog.settings.prometheus import SourceSettings
from watchdog.settings.section import Count, Credentials, LabelName, Line, Number, Seconds, Section, Url
from watchdog.settings.sources import CommandLine, Environment, File, Layers
from watchdog.settings.target import TargetSettings
from watchdog.settings.watchdogs import WatchdogSettings
from watchdog.text import nearest

_PLACES = re.compile(r"\{([^{}]*)\}")
_DASHBOARD_PLACES = frozenset({"target", "model_name", "engine"})
LAYERS = "layers"
"""The argument by which `load` hands its layers to the settings; no setting has its name."""


class ScrapeSettings(Section):
    """How targets are read."""

    interval_seconds: Seconds = Field(
        default=5,
        ge=0.05,
        le=20,
        description="Pause between scrapes of a target; causes are judged over 30 s, so at most 20.",
    )
    deadline_seconds: Seconds = Field(
        default=4,
        description="A scrape that takes longer in all is a failure; 0.8 intervals, at most 4, if not set.",
    )
    max_body_bytes: Count = Field(default=16 * 1024 * 1024, gt=0, description="A longer page is refused.")
    max_line_bytes: Count = Field(
        default=64 * 1024, gt=0, description="A page with a longer line is refused."
    )
    max_series: Count = Field(default=50_000, gt=0, description="A page with more series is refused.")

    @model_validator(mode="before")
    @classmethod
    def _deadline(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("deadline_seconds") is not None:
            return values
        try:
            interval = float(values.get("interval_seconds", 5))
        except (TypeError, ValueError):
            interval = math.nan
        return values | {"deadline_seconds": min(4.0, 0.8 * interval) if interval > 0 else 4.0}

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.deadline_seconds >= self.interval_seconds:
            raise ValueError("deadline_seconds must be less than interval_seconds")
        return self


class WebSettings(Section):
    """Our own HTTP server: page, JSON, metrics."""

    host: Line = Field(
        default="127.0.0.1", min_length=1, description="Address to listen on; 0.0.0.0 for all."
    )
    port: Count = Field(default=9847, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    external_url: Url | None = Field(
        default=None,
        description="The address at which people reach the watchdog; links in alerts start with it.",
    )
    dashboard_url: Line = Field(
        default="",
        description="Your dashboard of one server, linked from its page and from alerts: `{target}`, `{model_name}` "
        "and `{engine}` stand for what is looked at, as in `https://grafana/d/vllm-server?var-target={target}`.",
    )
    bearer_token_file: Path | None = Field(default=None, description="Callers must send this file's token.")
    username: Line | None = Field(
        default=None, description="Callers must send this name (basic authentication)."
    )
    password_file: Path | None = Field(default=None, description="Callers must send this file's password.")
    tls_cert_file: Path | None = Field(default=None, description="Serve HTTPS with this certificate (PEM).")
    tls_key_file: Path | None = Field(default=None, description="Key of the certificate (PEM).")
    allowed_hosts: list[Line] = Field(
        default_factory=list,
        description="Host names accepted beside loopback names, the listening address and external_url's; "
        "`*.example.com` for a domain, `*` for any.",
    )
    max_body_bytes: Count = Field(
        default=1024 * 1024,
        gt=0,
        description="A longer request body is refused; /alertmanager takes 8 MiB at least.",
    )
    reload_endpoint: bool = Field(default=False, description="Serve POST /-/reload.")
    limit_concurrency: Count = Field(default=200, gt=0, description="Connections beyond this many get a 503.")

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file go together")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file go together")
        return self

    @field_validator("external_url")
    @classmethod
    def _is_public(cls, url: str | None) -> str | None:
        """It goes into every alert."""
        if url and (split_user_info(url)[1:] != ("", "") or "?" in url):
            raise ValueError("must have neither user info nor a query: it is printed in every alert")
        return url.rstrip("/") if url else url

    @field_validator("dashboard_url")
    @classmethod
    def _is_template(cls, template: str) -> str:
        """It goes into alerts and into a page."""
        if unknown := sorted(set(_PLACES.findall(template)) - _DASHBOARD_PLACES):
            known = ", ".join(f"{{{each}}}" for each in sorted(_DASHBOARD_PLACES))
            raise ValueError(f"{{{unknown[0]}}} stands for nothing; it may have {known}")
        filled = _PLACES.sub("x", template)
        if filled and split_user_info(checked_url(filled))[1:] != ("", ""):
            raise ValueError("must have no user info: it is printed in every alert")
        return template

    @property
    def protected(self) -> bool:
        """Whether callers must prove who they are."""
        return self.bearer_token_file is not None or self.username is not None


class RuleOverrideSettings(Section):
    """What you change in one rule without copying its file."""

    parameters: dict[str, Number] = Field(default_factory=dict, description="Thresholds by name.")
    for_seconds: Duration | None = Field(
        default=None,
        validation_alias="for",
        serialization_alias="for",
        description="How long it must hold before it fires, such as 1m30s.",
    )
    keep_firing_seconds: Duration | None = Field(
        default=None,
        validation_alias="keep_firing_for",
        serialization_alias="keep_firing_for",
        description="How long it must be clear before it resolves; as `for`.",
    )
    severity: Severity | None = Field(default=None, description="critical, warning or info.")
    enabled: bool = Field(default=True, description="false switches the rule off.")

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)


class RuleSettings(Section):
    """Which causes it looks for."""

    directories: list[Path] = Field(default_factory=list, description="Folders with your own rule files.")
    shipped: bool = Field(default=True, description="Load the rules that come with the watchdog.")
    overrides: dict[str, RuleOverrideSettings] = Field(
        default_factory=dict, description="Changes by rule id."
    )
    allow_untested: bool = Field(default=False, description="Load your rules even when their own tests fail.")


class AlertmanagerEndpoint(Credentials):
    """One Alertmanager. A bare URL will do."""

    url: Url = Field(description="Its base URL, such as http://alertmanager:9093.")


class AlertmanagerSettings(Section):
    """Alerts pushed straight to Alertmanager (or take them through Prometheus: one, not both)."""

    urls: list[AlertmanagerEndpoint] = Field(
        default_factory=list, description="Every Alertmanager, each by itself, never a load balancer."
    )
    external_labels: dict[LabelName, Line] = Field(
        default_factory=dict, description="Labels added to every alert."
    )
    instance: Line | None = Field(
        default=None,
        description="Label `instance` of the heartbeat and of the alerts of servers at a loopback address, which other "
        "machines have too. Given, it is on every alert; empty text, on none; the host name (in a pod its name) by "
        "default.",
    )
    resend_seconds: Seconds = Field(default=60, description="Pause between resends of what still fires.")
    resolved_retention_seconds: Seconds = Field(
        default=900, description="How long a resolved alert is still sent."
    )
    timeout_seconds: Seconds = Field(default=10, description="A post that takes longer counts as failed.")
    queue_capacity: Count = Field(default=10_000, gt=0, description="Alerts kept for each Alertmanager.")
    symptoms: bool = Field(
        default=False, description="Send symptoms as alerts of their own, not only causes."
    )
    heartbeat: bool = Field(
        default=True, description="Keep a heartbeat alert firing while the watchdog is alive."
    )


class WebhookSettings(Credentials):
    """A URL that gets Alertmanager's webhook JSON (version 4)."""

    hides_paths = True

    name: Line = Field(
        default="", description="Its name in logs and metrics; host:port of the URL where not given."
    )
    url: Url = Field(description="Where to post.")
    repeat_interval_seconds: Seconds = Field(
        default=14_400, description="Repeat what still fires after this."
    )
    timeout_seconds: Seconds = Field(default=10, description="A post that takes longer counts as failed.")
    send_resolved: bool = Field(default=True, description="Also post when it ends.")
    max_alerts: Count = Field(default=0, ge=0, description="Alerts in one post at most; 0 for no limit.")

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Adds the name where it is not given."""
        return {"name": host_and_port(values["url"])} | values


class ReceiverSettings(Section):
    """POST /alertmanager: alerts that others raised, answered with what we know of that server."""

    hides_paths = True

    enabled: bool = Field(default=True, description="Accept alerts.")
    label_to_target: dict[LabelName, LabelName] = Field(
        default_factory=lambda: {"pod": "pod", "instance": "instance", "target": "target"},
        description="Labels of an alert that name a target, each with the label of the target it equals.",
    )
    forward_url: Url | None = Field(
        default=None, description="Forward alerts to this URL, with the diagnosis added."
    )
    keep: Count = Field(default=100, gt=0, le=10_000, description="Alerts kept for display.")


class StateSettings(Section):
    """What survives a restart: incidents, what was sent, what was learnt of each server, and a day of its readings."""

    directory: Path | None = Field(
        default=None, description="Folder for the database; without it nothing is kept."
    )
    retention_days: Number = Field(default=30, gt=0, description="Resolved incidents are kept this long.")
    max_incidents: Count = Field(
        default=10_000, gt=0, description="Incidents kept at most; those that fire stay."
    )


class LogSettings(Section):
    """What we print about ourselves, to stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level printed."
    )
    format: Literal["logfmt", "json"] = Field(default="logfmt", description="Form of a line.")


class Settings(BaseSettings):
    """Everything that can be set. Constructing it reads nothing; `load` does."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        allow_inf_nan=False,
        env_prefix="WATCHDOG_",
        env_nested_delimiter="__",
    )

    targets: list[TargetSettings] = Field(default_factory=list, description="The vLLM servers to watch.")
    discovery: DiscoverySettings = Field(
        default_factory=DiscoverySettings,
        description="Where servers that come and go are found, beside or instead of targets.",
    )
    prometheus: list[SourceSettings] = Field(
        default_factory=list,
        description="Every Prometheus whose vLLM servers are watched, beside or instead of targets.",
    )
    watchdogs: list[WatchdogSettings] = Field(
        default_factory=list,
        description="Other watchdogs, such as sidecars: their servers are shown here too, and compared.",
    )
    scrape: ScrapeSettings = Field(default_factory=ScrapeSettings, description="How targets are read.")
    web: WebSettings = Field(default_factory=WebSettings, description="The watchdog's own HTTP server.")
    rules: RuleSettings = Field(default_factory=RuleSettings, description="Which causes it looks for.")
    alertmanager: AlertmanagerSettings = Field(
        default_factory=AlertmanagerSettings, description="Alerts pushed straight to Alertmanager."
    )
    webhooks: list[WebhookSettings] = Field(
        default_factory=list, description="URLs that get Alertmanager's webhook JSON."
    )
    apprise: list[AppriseSettings] = Field(
        default_factory=list,
        description="Chats, pagers, phones and mailboxes that get messages through Apprise.",
    )
    maintenance: list[MaintenanceSettings] = Field(
        default_factory=list, description="Times in which notifications are held."
    )
    receiver: ReceiverSettings = Field(
        default_factory=ReceiverSettings, description="Alerts received from Alertmanager."
    )
    state: StateSettings = Field(
        default_factory=StateSettings,
        description="What survives a restart: incidents, sent notifications, and what was learnt about each server.",
    )
    log: LogSettings = Field(default_factory=LogSettings, description="The watchdog's own log.")

    _told: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Takes the layers that `load` passes, the strongest first; nothing else reads the process."""
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        layers = given.get(LAYERS)
        return layers if isinstance(layers, tuple) else (init_settings,)

    @field_validator("targets", "prometheus", "webhooks", "watchdogs", "apprise")
    @classmethod
    def _no_two_names(cls, entries: list[Any]) -> list[Any]:
        return _distinct(entries, "name")

    @field_validator("targets")
    @classmethod
    def _no_two_urls(cls, entries: list[Any]) -> list[Any]:
        return _distinct(entries, "url")

    def target_list(self) -> tuple[tuple[Target, Endpoint], ...]:
        """Each target and how to reach it, in the order of the settings."""
        return tuple((entry.target(), entry.endpoint()) for entry in self.targets)

    def interval_seconds(self, name: str) -> float:
        """Pause between scrapes of the target of that name."""
        own = next((entry.interval_seconds for entry in self.targets if entry.name == name), None)
        return own if own is not None else self.scrape.interval_seconds

    @property
    def longest_interval_seconds(self) -> float:
        """The longest pause between scrapes of any target."""
        intervals = [self.interval_seconds(entry.name) for entry in self.targets]
        intervals += [source.interval_seconds for source in self.prometheus]
        return max(intervals, default=self.scrape.interval_seconds)

    def deadline_seconds(self, name: str) -> float:
        """Total time one scrape of the target of that name may take: always less than its interval."""
        return min(self.scrape.deadline_seconds, 0.8 * self.interval_seconds(name))

    @property
    def instance(self) -> str:
        """The label that separates this watchdog from one on another machine; empty for none."""
        given = self.alertmanager.instance
        return platform.node() if given is None else given

    @property
    def instance_targets(self) -> frozenset[str]:
        """The targets whose alerts must say which watchdog saw them: their address is another server elsewhere."""
        every = self.alertmanager.instance is not None
        return frozenset(one.name for one in self.targets if every or is_loopback(host_of(one.url)))

    @property
    def target_labels(self) -> dict[str, dict[str, str]]:
        """The own labels of each target that has any, by its name."""
        return {one.name: dict(one.labels) for one in self.targets if one.labels}

    def with_targets(self, targets: Sequence[TargetSettings]) -> Self:
        """These settings with other targets, such as those that were found."""
        return self.model_copy(update={"targets": list(targets)})

    def told(self, warnings: tuple[str, ...]) -> Self:
        """These settings, with what was odd about their sources."""
        self._told = warnings
        return self

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know before it goes on: unknown variables, an open port, unverified TLS."""
        return self._told + tuple(_risks(self))


def load(
    config: Path | None = None,
    overrides: Mapping[str, object] = {},
    environment: Mapping[str, str] = {},
    check_files: bool = False,
) -> Settings:
    """Settings from all layers; raises ConfigError that holds every fault of every layer.

    `overrides` are the command line's (nested, or dotted as `web.port`; None means not given);
    without `config` the file is the one that WATCHDOG_CONFIG names, if any. With `check_files` a secret or
    certificate that cannot be read is a fault too: for a start, not for a look at the settings elsewhere.
    """
    named = environment.get("WATCHDOG_CONFIG") or None
    path = config or (Path(named) if named else None)
    sources = [CommandLine(Settings, overrides), Environment(Settings, environment)]
    file = File(Settings, path) if path else None
    layers = Layers((*sources, file) if file else tuple(sources))
    faults = layers.faults()
    try:
        arguments: dict[str, Any] = {LAYERS: layers.layers}
        settings = Settings(**arguments)
    except ValidationError as error:
        faults.extend(layers.fault_texts(Settings, error))
    else:
        faults += [lacks] if check_files and (lacks := settings.discovery.lacks) else []
    if check_files:
        faults.extend(layers.unreadable_files(Settings))
    if check_files and not faults:
        faults.extend(apprise_faults(settings.apprise))
    if file is not None and file.is_empty and not faults:
        faults.append(f"{path}: the file is empty; to watch nothing, write `targets: []`")
    if faults:
        raise ConfigError(faults)
    return settings.told(layers.warnings())


def redacted(settings: Settings) -> dict[str, Any]:
    """The settings as plain data for printing: URLs without user info and query values, no secret."""
    hidden: dict[str, Any] = _hidden(settings.model_dump(mode="json", by_alias=True))
    return hidden


def _distinct(entries: list[Any], attribute: str) -> list[Any]:
    seen: dict[str, int] = {}
    faults = []
    for index, entry in enumerate(entries):
        value = getattr(entry, attribute)
        identity = canonical_url(value) if attribute == "url" else value
        first = seen.setdefault(identity, index)
        if first != index:
            shown = redact_url(value) if attribute == "url" else value
            faults.append(f"entries {first + 1} and {index + 1} have the same {attribute}, {shown}")
    if faults:
        raise ValueError("; ".join(faults))
    return entries


def _risks(settings: Settings) -> list[str]:
    risks = []
    web = settings.web
    if not web.protected and not is_loopback(web.host):
        risks.append(
            f"web.host is {web.host} and there is no authentication: anyone who reaches port {web.port} can read "
            "the diagnosis and post alerts; set web.bearer_token_file or web.username"
        )
    entries: list[Credentials] = [
        *settings.targets,
        *settings.discovery.http_sd,
        *settings.watchdogs,
        *settings.prometheus,
        *settings.alertmanager.urls,
        *settings.webhooks,
    ]
    for entry in entries:
        if entry.insecure_skip_verify:
            url = redact_url(getattr(entry, "url", ""))
            risks.append(f"insecure_skip_verify: whoever answers for {url} is believed")
    risks += [
        f"insecure_skip_verify: whoever answers for a server that {each.name} finds is believed"
        for each in settings.discovery.all
        if each.target.insecure_skip_verify
    ]
    return [*risks, *_collisions(settings), *_idle_windows(settings)]


def _idle_windows(settings: Settings) -> Iterator[str]:
    """Maintenance that names no target that is configured: a slip, or one that is gone."""
    names = [one.name for one in settings.targets]
    for index, window in enumerate(settings.maintenance):
        for pattern in window.targets:
            if names and not settings.discovery.all and not any(fnmatchcase(name, pattern) for name in names):
                hint = nearest(pattern, names)
                yield f"maintenance[{index}]: no target is called {pattern}{f' ({hint})' if hint else ''}"


def _collisions(settings: Settings) -> Iterator[str]:
    """Alerts whose labels a watchdog elsewhere may send just so: one would end the other's."""
    alertmanager = settings.alertmanager
    if alertmanager.external_labels or not (alertmanager.urls or settings.webhooks):
        return
    remedy = "set alertmanager.instance or alertmanager.external_labels"
    if settings.instance_targets and settings.instance in _NO_INSTANCES:
        yield (
            f"alerts look the same as those of another machine (its name is {settings.instance or 'empty'}): "
            f"resolving one would resolve the other; {remedy}"
        )
    bare = [
        one.name
        for one in settings.targets
        if one.name not in settings.instance_targets
        and "." not in (host := host_of(one.url))
        and ":" not in host
    ]
    if bare and alertmanager.instance is None:
        names = ", ".join(bare[:3]) + (" and others" if len(bare) > 3 else "")
        yield (
            f"alerts of {names} look the same as those of another network where the same host name is another "
            f"server; {remedy}"
        )


# What a machine is called that nobody named.
_NO_INSTANCES = frozenset({"", "localhost", "localhost.localdomain", "(none)"})


_WHOLE_URL_HIDDEN = frozenset({"webhooks", "forward_url"})


def _hidden(value: Any, key: str = "", parent: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _hidden(each, name, key or parent) for name, each in value.items()}
    if isinstance(value, list):
        return [_hidden(each, key, parent) for each in value]
    if isinstance(value, str) and (key.endswith("url") or key == "urls"):
        secret_path = parent in _WHOLE_URL_HIDDEN or key in _WHOLE_URL_HIDDEN
        return hide_path(value) if secret_path else redact_url(value)
    return value
