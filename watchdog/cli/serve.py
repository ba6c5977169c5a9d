"""`vllm-watchdog serve`: watches servers until it is stopped."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from watchdog import logs
from watchdog.cli.console import ConfigOption, say
from watchdog.cli.namesake import refuse_namesake
from watchdog.cli.prometheus import MatchOption
from watchdog.service.open_files import connections_allowed, open_files_notes, raise_open_files_limit
from watchdog.service.process import Signals, WebServer, listen, run
from watchdog.service.service import Service
from watchdog.settings.model import Settings, load
from watchdog.web.api import create_app

log = logging.getLogger(__name__)

app = typer.Typer(add_completion=False)

HostOption = Annotated[
    str | None, typer.Option(help="Address to answer on; 127.0.0.1 if not set.", show_default=False)
]
PortOption = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to answer on; 9847 if not set.", show_default=False)
]


@app.command(
    epilog="Examples:\n\n  vllm-watchdog serve --target http://localhost:8000\n\n"
    "  vllm-watchdog serve --prometheus http://prometheus:9090 --match 'job=\"vllm\"'\n\n"
    "  vllm-watchdog serve --config /etc/vllm-watchdog/watchdog.yaml\n\n"
    "Then: curl 'localhost:9847/diagnose?format=text'. SIGHUP reads settings and rules again."
)
def serve(  # noqa: PLR0913, PLR0917 - one option each
    config: ConfigOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="URL", help="A server to watch; may be given again."),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Watch what a Prometheus (Thanos, Mimir, VictoriaMetrics) scrapes of vLLM.",
        ),
    ] = None,
    match: MatchOption = "",
    host: HostOption = None,
    port: PortOption = None,
    interval: Annotated[
        float | None,
        typer.Option(min=0.05, max=20, metavar="SECONDS", help="Pause between scrapes; 5 if not set."),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="logfmt or json.")] = None,
) -> None:
    """Watches vLLM servers and answers on a port: /diagnose, a page, /metrics, alerts."""
    refuse_namesake()
    overrides: dict[str, object] = {
        "targets": target or None,
        "prometheus": [{"url": prometheus, "match": match}] if prometheus else None,
        "web.host": host,
        "web.port": port,
        "scrape.interval_seconds": interval,
        "log.level": log_level,
        "log.format": log_format,
    }
    leave(serve_until_told(lambda: load(config, overrides, os.environ, check_files=True), _say_where))


def _say_where(address: str, _service: Service) -> None:
    """Tells a person at a terminal where to look; a log is for programs."""
    if sys.stdout.isatty():
        say(
            f"Open {address}/ in a browser, or ask:\n\n  curl '{address}/diagnose?format=text'\n\nCtrl-C ends it."
        )


def serve_until_told(
    load_settings: Callable[[], Settings], on_start: Callable[[str, Service], None] | None = None
) -> int:
    """Runs the service; `on_start` gets our own address and the service. Returns the exit code."""
    settings = load_settings()
    logs.set_up(settings.log.level, settings.log.format)
    raise_open_files_limit()
    signals = Signals()
    signals.install()
    listener = listen(settings.web)
    try:
        service = Service(settings, load_settings)
        web_server = WebServer(
            create_app(service, settings),
            settings.web,
            listener,
            lambda wanted: connections_allowed(len(service.targets()), wanted),
        )
    except BaseException:
        listener.close()
        raise
    host, number = listener.getsockname()[:2]
    scheme = "https" if settings.web.tls_cert_file else "http"
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{number}"

    def started() -> None:
        names = [each.name for each in settings.targets]
        sources = [each.name for each in settings.prometheus]
        fields = {"targets": ", ".join(names)} | ({"prometheus": ", ".join(sources)} if sources else {})
        log.info("started", extra={"address": address, **fields, "rules": len(service.rules.rules)})
        if not service.is_configured:
            log.warning(
                "no_targets",
                extra={
                    "note": "nothing is watched: give --target URL, or targets, discovery or prometheus in the settings"
                },
            )
        if settings.web.external_url is None and (
            settings.alertmanager.urls or settings.webhooks or settings.apprise
        ):
            log.warning(
                "no_external_url",
                extra={
                    "note": "alerts link to nowhere: set web.external_url to the address that people open"
                },
            )
        for warning in (*settings.warnings, *open_files_notes(len(names))):
            log.warning("settings", extra={"note": warning})
        if on_start is not None:
            on_start(address, service)

    return run(service, web_server, signals, started)


def leave(code: int) -> None:
    """Ends the process now: a scrape or a post that still hangs in its thread is not waited for."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
