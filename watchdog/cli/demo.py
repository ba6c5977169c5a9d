"""`vllm-watchdog demo`: an incident of a real vLLM, served again on loopback, and the service that watches it."""

import os
import textwrap
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer

from watchdog.cli.console import say, screen_width
from watchdog.cli.namesake import refuse_namesake
from watchdog.cli.serve import HostOption, PortOption, leave, serve_until_told
from watchdog.model import Snapshot
from watchdog.replay.demo_server import CALM_SECONDS, demo_server
from watchdog.service.service import Service
from watchdog.settings.model import Settings, load

app = typer.Typer(add_completion=False)

_LOOK_SECONDS = 1.0
# As wide as the time of day before it.
_INDENT = " " * 10


@app.command(epilog="Example:\n\n  vllm-watchdog demo --port 9000")
def demo(
    host: HostOption = None,
    port: PortOption = None,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = "warning",
) -> None:
    """Serves a recording of a real vLLM whose KV cache runs full, watches it, and says what to ask.

    The recording begins calm, the incident starts after 20 s and lasts for 90 s; then it recovers, and begins
    again.
    """
    refuse_namesake()
    with demo_server() as server:

        def settings() -> Settings:
            overrides = {"targets": [{"name": "demo", "url": server.url}], "web.host": host, "web.port": port}
            return load(None, {**overrides, "log.level": log_level}, os.environ)

        def tell(address: str, service: Service) -> None:
            threading.Thread(target=_say_changes, args=(service,), name="demo-changes", daemon=True).start()
            say(
                f"A recorded vLLM answers at {server.url}, the watchdog at {address}\n"
                f"All is well for {CALM_SECONDS:.0f} s, then its KV cache runs full; half a minute later it is named.\n"
                f"Ask what is wrong then:\n\n"
                f"  curl '{address}/diagnose?format=text'\n\n"
                f"or open {address}/ in a browser. Ctrl-C ends it.\n"
            )

        code = serve_until_told(settings, tell)
    leave(code)


def _say_changes(service: Service) -> None:
    """A line when an incident fires and one when it has ended, for as long as the service runs."""
    before: Snapshot | None = None
    pause = threading.Event()
    while not pause.wait(_LOOK_SECONDS):
        now = next(iter(service.snapshots().values()), None)
        if now is not None and (before is None or now.lead != before.lead):
            for line in _changes(before, now):
                say(textwrap.fill(line, screen_width(), subsequent_indent=_INDENT, break_on_hyphens=False))
            before = now


def _changes(before: Snapshot | None, now: Snapshot) -> Iterator[str]:
    clock = datetime.fromtimestamp(now.wall).astimezone().strftime("%H:%M:%S")
    old, new = before.lead if before else None, now.lead
    cause = next((each.cause for each in now.incidents if each.key == new), "")
    if new is not None:
        yield f"{clock}  {now.verdict.upper()}  {new.rule}: {cause}"
    elif old is not None:
        yield f"{clock}  {now.verdict.upper()}  {old.rule} has ended"
