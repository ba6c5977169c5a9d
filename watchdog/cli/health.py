"""`vllm-watchdog health`: asks the service on this machine whether its scrapes still run."""

import os
from typing import Annotated

import requests
import typer

from watchdog.cli.console import ConfigOption, complain
from watchdog.http.client import system_words, underlying
from watchdog.settings.model import WebSettings, load

app = typer.Typer(add_completion=False)

# Addresses that mean "every interface" when one listens, and nothing when one asks.
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - to be replaced


@app.command(epilog="Example:\n\n  HEALTHCHECK CMD vllm-watchdog health")
def health(
    config: ConfigOption = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The service's port, if not that of its settings.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait for an answer.")
    ] = 3.0,
) -> None:
    """Exit code 0 while the service on this machine is alive, else 1: a container's health check."""
    web = load(config, {"web.port": port}, os.environ).web
    try:
        with requests.Session() as session:
            # A proxy is for the outside world.
            session.trust_env = False
            # Our own certificate names the outside address, not the loopback one we ask by.
            answer = session.get(_address(web), timeout=timeout, verify=False, allow_redirects=False)
    except requests.RequestException as error:
        # The innermost knows what the system said; the library's own words are about itself.
        why = system_words(list(underlying(error))[-1])
        complain(f"no answer from {_address(web)} ({why}): is `serve` running, and on this port?")
        raise typer.Exit(1) from None
    if answer.status_code != 200:
        complain(f"{_address(web)} answers {answer.status_code}: no scrape ended in three intervals")
        raise typer.Exit(1)


def _address(web: WebSettings) -> str:
    host = ANY_ADDRESS.get(web.host, web.host)
    scheme = "https" if web.tls_cert_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{web.port}/healthz"
