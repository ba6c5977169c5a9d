"""`vllm-watchdog`: finds the command's file, tells errors in a sentence, and keeps the exit codes."""

import importlib
import sys
from importlib.metadata import version
from typing import Annotated

import typer
from typer.core import TyperGroup

from watchdog.cli.console import complain
from watchdog.errors import WatchdogError

ABOUT = """The on-call engineer beside every vLLM server: it reads /metrics, names the cause of what users
feel, and says what to change.

Exit codes: 0 all is well, 1 something fires or failed, 2 wrong usage, bad settings, or it could not tell.
"""
EXAMPLES = """Examples:

  vllm-watchdog demo    (an incident to look at, no GPU needed)

  vllm-watchdog serve --target http://localhost:8000

  vllm-watchdog diagnose http://localhost:8000
"""
COMMANDS = ("serve", "diagnose", "demo", "record", "replay", "rules", "config", "health")


class Commands(TyperGroup):
    """Loads only the file of the command that was asked for: a command line tool should start at once."""

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        """The commands in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """The command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"watchdog.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="vllm-watchdog",
    cls=Commands,
    help=ABOUT,
    epilog=EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"vllm-watchdog {version('vllm-watchdog')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def run() -> None:
    """Runs the command line; never shows a stack trace for what a person can mend."""
    try:
        app(prog_name="vllm-watchdog")
    except WatchdogError as error:
        complain(str(error))
        sys.exit(2)
