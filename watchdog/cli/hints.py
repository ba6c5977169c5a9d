"""`vllm-watchdog hints`: settings that would make the diagnosis of each server more exact."""

import textwrap
from typing import Annotated

import typer

from watchdog.cli.console import ConfigOption, say, screen_width
from watchdog.cli.live import settings_for
from watchdog.errors import ConfigError
from watchdog.facts.hints import missing_expectations

app = typer.Typer(add_completion=False)


@app.command(epilog="Example:\n\n  vllm-watchdog hints --config watchdog.yaml")
def hints(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="URL...", help="Servers; the configured targets if not given."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Says what the settings could add to make the diagnosis more exact."""
    settings = settings_for(urls or (), config, None)
    if not settings.targets:
        raise ConfigError(["no server: give a URL, or set targets in the settings"])
    width = screen_width()
    for target, _ in settings.target_list():
        lines = missing_expectations(target.expectations)
        say(f"{target.name}: {'nothing is missing' if not lines else ''}".rstrip())
        for line in lines:
            say(textwrap.fill(line, width, initial_indent="  - ", subsequent_indent="    "))
