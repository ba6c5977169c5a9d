"""A Prometheus as the source of a command: its options, a look at a moment, and the scrapes of a stretch."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from watchdog.cli.console import complain, parse_time, progress
from watchdog.diagnosis.fleet import FleetDiagnosis
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import ConfigError, SourceError
from watchdog.http.url import redact_url
from watchdog.model import Snapshot, Target
from watchdog.replay.together import Together, replay_together
from watchdog.rule.rule_set import RuleSet
from watchdog.scrape.continued import Continued, Scraped
from watchdog.scrape.prometheus import WINDOW_SECONDS, PrometheusSource
from watchdog.scrape.samples import Fleet, Labels, ScrapedServer, labels_text
from watchdog.settings.prometheus import PrometheusSettings
from watchdog.text import printable_labels, seconds_text, timestamp

# A series without a sample for so long is stale to a Prometheus.
STALE_SECONDS = 300.0
STALE_SCRAPES = 4
# A look after the first: what came since, and what comes late (remote write, a slow query).
AGAIN_SECONDS = 120.0
# How much of a stretch is asked for at once.
PART_SECONDS = 600.0
MOST_PARTS = 1500

_PROMETHEUS = Annotated[
    str | None,
    typer.Option(
        "--prometheus",
        metavar="URL",
        help="Read the servers' scrapes from a Prometheus (Thanos, Mimir, VictoriaMetrics) instead.",
    ),
]
MatchOption = Annotated[
    str,
    typer.Option(
        metavar="MATCHERS",
        help="Which targets of the Prometheus, as 'job=\"vllm\"'; every vLLM server if not given.",
        show_default=False,
    ),
]
_TENANT = Annotated[
    str, typer.Option(metavar="NAME", help="Its tenant, sent as X-Scope-OrgID.", show_default=False)
]
_BEARER_TOKEN_FILE = Annotated[
    Path | None, typer.Option("--bearer-token-file", metavar="FILE", help="Its bearer token.")
]
_CA_FILE = Annotated[
    Path | None, typer.Option("--ca-file", metavar="FILE", help="Certificates to trust for it.")
]
_OPTIONS: Mapping[str, tuple[object, object]] = {
    "prometheus": (_PROMETHEUS, None),
    "match": (MatchOption, ""),
    "tenant": (_TENANT, ""),
    "bearer_token_file": (_BEARER_TOKEN_FILE, None),
    "ca_file": (_CA_FILE, None),
}


def _time_option(name: str, what: str) -> object:
    return Annotated[float | None, typer.Option(name, parser=parse_time, metavar="TIME", help=what)]


_AT = _time_option("--at", "What was wrong then: 02:10, 2026-03-01T02:10Z, now-2h or unix seconds.")
_FROM = _time_option("--from", "Where a stretch of the Prometheus begins: 02:10, now-2h and the like.")
_TO = _time_option("--to", "Where it ends; now if not given.")


@dataclass(frozen=True, slots=True)
class Look:
    """A Prometheus and the moment that is asked about, in unix seconds; None for now."""

    settings: PrometheusSettings
    at: float | None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A Prometheus and from when to when it is read, in unix seconds; without an end it is now."""

    settings: PrometheusSettings
    begin: float | None
    end: float | None


def with_look(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a look, for its argument `prometheus`, a `Look` or None."""
    return _with_options(command, {"at": (_AT, None)}, Look)


def with_stretch(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a stretch, for its argument `prometheus`, a `Stretch` or None."""
    times = {"begin": (_FROM, None), "end": (_TO, None)}
    return _with_options(command, times, Stretch)


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of a Prometheus, for its argument `prometheus`, its settings or None."""
    return _with_options(command, {}, lambda settings: settings)


def _with_options(
    command: Callable[..., None],
    times: Mapping[str, tuple[object, object]],
    made: Callable[..., object],
) -> Callable[..., None]:
    """The same options for each command that reads a Prometheus, declared once."""
    options = {**_OPTIONS, **times}
    signature = inspect.signature(command)
    kept = [each for each in signature.parameters.values() if each.name != "prometheus"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in options.items()
    ]

    def run(**given: Any) -> None:
        of_source = {name: given.pop(name) for name in _OPTIONS}
        when = {name: given.pop(name) for name in times}
        source = made(_settings(**of_source), **when) if of_source["prometheus"] else None
        command(**given, prometheus=source)

    run.__doc__ = command.__doc__
    run.__signature__ = signature.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in (*kept, *added)}
    return run


def _settings(prometheus: str, **others: object) -> PrometheusSettings:
    """The options as settings; raises ConfigError that names every fault in them."""
    given = {name: value for name, value in others.items() if value is not None}
    try:
        return PrometheusSettings.model_validate({"url": prometheus, **given})
    except ValidationError as error:
        raise ConfigError([_fault(each) for each in error.errors()]) from None


def _fault(error: Mapping[str, Any]) -> str:
    name = "-".join(map(str, error["loc"])).replace("_", "-").replace("url", "prometheus") or "prometheus"
    return f"--{name}: {error['msg'].removeprefix('Value error, ')}"


def look(asked: Look, rules: RuleSet) -> Together:
    """Every server as it was at that moment; raises SourceError where there is none."""
    settings, at = asked.settings, time.time() if asked.at is None else asked.at
    with _opened(settings) as source, progress(f"reading {source.shown_url}", None):
        fleet = source.fleet(at)
        _tell(source, fleet, set())
        servers = {name: each for name, each in fleet.servers.items() if not _is_gone(name, each, at)}
        if not servers:
            which = " that --match finds" if settings.match else ""
            window = f"in the {seconds_text(WINDOW_SECONDS)} before {timestamp(at)}"
            raise SourceError(f"{source.shown_url}: no vLLM server{which} was scraped {window}")
        return replay_together(
            [
                (target_of(name, server.labels, settings), server.scrapes())
                for name, server in servers.items()
            ],
            rules,
        )


def scrapes_of(asked: Stretch) -> Iterator[Scraped]:
    """Every scrape of a stretch, those of one server in order.

    Raises ConfigError for times that are no stretch, SourceError where the Prometheus is of no use.
    """
    begin, end = asked.begin, time.time() if asked.end is None else asked.end
    if begin is None or begin >= end:
        raise ConfigError(["--prometheus needs --from TIME, and a --to after it"])
    if end - begin > MOST_PARTS * PART_SECONDS:
        raise ConfigError([f"--from and --to: at most {seconds_text(MOST_PARTS * PART_SECONDS)} at once"])
    joined, told = Continued(begin), set[str]()
    with _opened(asked.settings) as source, progress(f"reading {source.shown_url}", end - begin) as done:
        while begin < end:
            # Some count the sample at the far edge of a range in, others do not.
            seconds = min(PART_SECONDS, end - begin)
            begin += seconds
            fleet = source.fleet(begin, seconds + 1)
            _tell(source, fleet, told)
            yield from joined.new(fleet)
            done(seconds)


class Followed:
    """The servers of a Prometheus, look by look: each scrape is judged once, as soon as the Prometheus has it.

    `wall` is the clock whose present is asked about.
    """

    def __init__(
        self,
        source: PrometheusSource,
        settings: PrometheusSettings,
        rules: RuleSet,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._settings, self._rules, self._wall = source, settings, rules, wall
        self._joined, self._told = Continued(), set[str]()
        self._diagnoses: dict[str, TargetDiagnosis] = {}
        self._last: dict[str, Snapshot] = {}
        self._among = FleetDiagnosis(rules)

    def step(self) -> Together:
        """What is known now; raises SourceError where the Prometheus is of no use, or has no server of vLLM."""
        at = self._wall()
        fleet = self._source.fleet(at, AGAIN_SECONDS if self._last else WINDOW_SECONDS)
        for scraped in sorted(self._joined.new(fleet), key=lambda each: each.scrape.at):
            self._last[scraped.name] = self._diagnosis(scraped).observe(scraped.scrape)
        for name in [name for name, last in self._last.items() if at - last.wall > STALE_SECONDS]:
            del self._last[name], self._diagnoses[name]
        if not self._last:
            which = " that --match finds" if self._settings.match else ""
            raise SourceError(f"{self._source.shown_url}: no vLLM server{which} is scraped")
        last = tuple(self._last.values())
        return Together(last, self._among.observe(last, at, at).incidents)

    def _diagnosis(self, scraped: Scraped) -> TargetDiagnosis:
        known = self._diagnoses.get(scraped.name)
        if known is None:
            target = target_of(scraped.name, scraped.labels, self._settings)
            known = self._diagnoses[scraped.name] = TargetDiagnosis(target, self._rules)
        return known


@contextmanager
def follow(settings: PrometheusSettings, rules: RuleSet) -> Iterator[Followed]:
    """The servers of a Prometheus, to be looked at again and again."""
    with _opened(settings) as source:
        yield Followed(source, settings, rules)


def target_of(name: str, labels: Labels, settings: PrometheusSettings) -> Target:
    """A server of a Prometheus as a target: its address says where its scrapes come from."""
    return Target(name, f"{redact_url(settings.url)} {labels_text(labels)}", labels=printable_labels(labels))


@contextmanager
def _opened(settings: PrometheusSettings) -> Iterator[PrometheusSource]:
    source = PrometheusSource(settings.endpoint_at(settings.url), settings.match, settings.tenant)
    with closing(source):
        yield source


def _tell(source: PrometheusSource, fleet: Fleet, told: set[str]) -> None:
    """Says once each what is not as it should be about the answers."""
    for note in (*source.warnings, *fleet.notes):
        if note not in told:
            told.add(note)
            complain(f"note: {source.shown_url}: {note}")


def _is_gone(name: str, server: ScrapedServer, at: float) -> bool:
    """Whether it was no target any more; says so."""
    silent = at - server.times[-1]
    if silent <= max(STALE_SECONDS, STALE_SCRAPES * (server.pace_seconds or 0.0)):
        return False
    complain(f"note: {name} is left out: its last scrape was {seconds_text(silent)} before")
    return True
