"""`vllm-watchdog`: finds the command's file, prints errors as one sentence, and keeps the exit codes."""

import importlib
import inspect
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from watchdog.errors import WatchdogError

ABOUT = """The on-call engineer beside every vLLM server: it reads /metrics, names the cause of what users
feel, and says what to change.

Exit codes: 0 all is well, 1 something fires or failed, 2 wrong usage, bad settings, or health is not proven.
"""
EXAMPLES = """Examples:

  vllm-watchdog demo    (an incident to look at, no GPU needed)

  vllm-watchdog serve --target http://localhost:8000

  vllm-watchdog diagnose http://localhost:8000
"""
# The sentence about each is the one in its file; a test keeps them in step.
COMMANDS = {
    "serve": "Watches vLLM servers and answers on a port: /diagnose, a page, /metrics, alerts.",
    "diagnose": "Watches for a while and says what is wrong; "
    "exit code 0 healthy, 1 something fires, 2 health is not proven.",
    "top": "Watches servers on a terminal: a row each, the worst first, and the cause of the chosen one.",
    "demo": "Serves a recording of a real vLLM whose KV cache runs full, watches it, and says what to ask.",
    "record": "Records a server's metrics page, failures included, for replay or for a report.",
    "replay": "Runs the pipeline over recordings: when each cause was pending, fired, led and was over.",
    "rules": "Lists, shows, explains, tests, checks, exports and scores rules.",
    "probe": "Asks a server a few small things on purpose: is it alive, what is slow, does its prefix cache work.",
    "lab": "Exercises that teach and prove a set-up: shared prefix, a long prompt among streams, a sweep to the knee.",
    "size": "Says what a model takes on a GPU, what fits at once, how fast it can be, and where a server's load leads.",
    "signals": "Lists every signal that a rule may name: its unit, its meaning, and its value now.",
    "config": "Prints the effective settings without secrets; exit code 2 names every fault in them.",
    "hints": "Says what the settings could add to make the diagnosis more exact.",
    "mcp": "Gives an assistant read-only tools over standard input and output: diagnose, incidents, explain, replay.",
    "health": "Exit code 0 while the service on this machine is alive, else 1: a container's health check.",
}


class Commands(TyperGroup):
    """Loads only the file of the command that was asked for: a command line tool should start at once."""

    _is_list_only = False

    def format_help(self, ctx, formatter) -> None:  # type: ignore[no-untyped-def]
        """The list of commands, for which none of their files is needed."""
        self._is_list_only = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_list_only = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; a typo is reported with the name that was meant."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            from watchdog.text import nearest  # noqa: PLC0415 - help does without it

            hint = nearest(args[0], COMMANDS) or f"there are {', '.join(COMMANDS)}"
            if "://" in args[0]:
                hint = f"did you mean `diagnose {args[0]}`?"
            ctx.fail(f"There is no command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002 - typer's signature
        """The commands in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str):  # type: ignore[no-untyped-def]  # noqa: ARG002
        """The command of that name, None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        if self._is_list_only:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name])
        module = importlib.import_module(f"watchdog.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        _unwrap(command)
        return command


def _unwrap(command: Any) -> None:
    """Joins the lines of each paragraph of help: they are those of the code, and a terminal has its own."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    for below in getattr(command, "commands", {}).values():
        _unwrap(below)


app = typer.Typer(
    name="vllm-watchdog",
    cls=Commands,
    help=ABOUT,
    epilog=EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - costs more than all else that help needs

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
        from watchdog.cli.console import complain  # noqa: PLC0415 - reads the settings' modules

        complain(str(error))
        sys.exit(2)
