"""`vllm-watchdog config`: the settings in force, from wherever they came."""

import os
from collections.abc import Iterator

import typer
import yaml

from watchdog.cli.console import ConfigOption, Form, FormOption, complain, say, say_json
from watchdog.rule.in_force import load_rules
from watchdog.settings.model import RuleSettings, load, redacted

app = typer.Typer(add_completion=False)


@app.command(epilog="Example:\n\n  WATCHDOG_WEB__PORT=8080 vllm-watchdog config --config watchdog.yaml")
def config(
    file: ConfigOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Prints the effective settings without secrets; exit code 2 names every fault in them."""
    settings = load(file, {}, os.environ)
    for warning in (*settings.warnings, *_unseen(settings.rules)):
        complain(f"note: {warning}")
    if not any(_unseen(settings.rules)):
        # An override of a rule that is not there would keep the service from starting.
        load_rules(settings.rules)
    if form is Form.JSON:
        say_json(redacted(settings))
    else:
        say(yaml.safe_dump(redacted(settings), sort_keys=False, allow_unicode=True).rstrip())


def _unseen(rules: RuleSettings) -> Iterator[str]:
    """Folders that are on another machine, where the settings are meant for."""
    for folder in rules.directories:
        if not folder.is_dir():
            yield f"rules.directories: {folder} is not here, so rules and overrides were not checked"
