"""`vllm-watchdog config`: the settings in force, from wherever they came."""

import os

import typer
import yaml

from watchdog.cli.console import ConfigOption, Form, FormOption, complain, say, say_json
from watchdog.settings import load, redacted

app = typer.Typer(add_completion=False)


@app.command(epilog="Example:\n\n  WATCHDOG_WEB__PORT=8080 vllm-watchdog config --config watchdog.yaml")
def config(
    file: ConfigOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Prints the effective settings without secrets; exit code 2 names every fault in them."""
    settings = load(file, {}, os.environ)
    for warning in settings.warnings:
        complain(f"note: {warning}")
    if form is Form.JSON:
        say_json(redacted(settings))
    else:
        say(yaml.safe_dump(redacted(settings), sort_keys=False, allow_unicode=True).rstrip())
