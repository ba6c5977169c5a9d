"""`vllm-watchdog probe`: asks a server a few small things on purpose, and says what is slow."""

import dataclasses
import json
import os
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from watchdog.cli.console import ConfigOption, Form, FormOption, parse_duration, say, say_json
from watchdog.cli.live import limits_of, settings_for
from watchdog.clock import steady_seconds
from watchdog.errors import ConfigError
from watchdog.facts.gpus import decode_ceiling_tokens_per_second, find_gpu, similar_gpus
from watchdog.http.endpoint import Endpoint
from watchdog.http.url import beside
from watchdog.model import Severity
from watchdog.probe.account import examined_body, examined_text
from watchdog.probe.budget import MOST_REQUESTS, MOST_TOKENS, MOST_WAITING, Budget
from watchdog.probe.completion import CompletionProbe
from watchdog.probe.counts import Counts, counts_of
from watchdog.probe.examination import Asked, Examination, Examined
from watchdog.probe.judgement import Life, divergence_finding
from watchdog.probe.ollama import OllamaAccount
from watchdog.probe.prefix import Divergence, divergences
from watchdog.probe.stream import CompletionStreams
from watchdog.scrape.fetch import Fetcher
from watchdog.settings.model import Settings
from watchdog.text import clean, one_line

# Prompts of a user are compared, never sent; a file beyond it is no list of prompts.
MAX_PROMPTS_BYTES = 16 * 1024 * 1024
_OLLAMA_PORT = ":11434"

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples:\n\n  vllm-watchdog probe http://localhost:8000\n\n"
    "  vllm-watchdog probe http://localhost:8000 --gpu H100 --weights 16e9 --max-prompt 8000 --max-tokens 25000"
)
def probe(  # noqa: PLR0913, PLR0917 - one option each
    url: Annotated[str, typer.Argument(metavar="URL", help="The server, or its metrics page.")],
    model: Annotated[
        str | None, typer.Option("--model", help="The model's name; the first of /v1/models if not given.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Use /v1/chat/completions instead.")] = False,
    key_file: Annotated[
        Path | None, typer.Option("--api-key-file", metavar="FILE", help="File with the server's API key.")
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option("--api-key-env", metavar="NAME", help="Environment variable with the key.")
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="The GPU, such as H100.")] = None,
    weights: Annotated[
        float | None, typer.Option("--weights", min=1, metavar="BYTES", help="Weights a token reads, a GPU.")
    ] = None,
    max_prompt: Annotated[
        int | None, typer.Option("--max-prompt", min=200, max=200_000, help="Longest prompt to send.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE", help="Your prompts to compare, one JSON or text per line."),
    ] = None,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline",
            parser=parse_duration,
            metavar="DURATION",
            help="For each request; 30s.",
            show_default=False,
        ),
    ] = 30.0,
    max_requests: Annotated[int, typer.Option(min=1, help="Requests in all.")] = MOST_REQUESTS,
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens in all, prompts and output.")] = MOST_TOKENS,
    max_waiting: Annotated[
        float, typer.Option(min=0, help="Sends nothing while more requests wait.")
    ] = MOST_WAITING,
    config: ConfigOption = None,
    form: FormOption = Form.TEXT,
) -> None:
    """Asks a server a few small things on purpose: is it alive, what is slow, does its prefix cache work.

    Its requests carry the user vllm-watchdog-probe and stop at a small budget. Exit code 0 nothing is wrong, 1
    something is, 2 nothing could be measured.
    """
    settings = settings_for([url], config, None)
    ceiling = _ceiling(gpu, weights, settings)
    mine = _prompts(prompts) if prompts else []
    budget = Budget(max_requests, max_tokens, max_waiting)
    [target] = settings.targets
    key = Key(key_file, key_variable)
    with closing(Fetcher(key.onto(target.endpoint()), limits_of(settings, target.name))) as fetcher:
        info = fetcher.server_info()
        served = model or next(iter(info.models), None)
        if served is None:
            raise ConfigError([f"{target.name}: /v1/models names no model; name one with --model"])

        def page() -> Counts | None:
            return counts_of(fetcher.fetch(steady_seconds(), time.time()))

        first = page()
        asked = Asked(served, chat, deadline, ignore_eos=first is not None)
        path = "v1/chat/completions" if chat else "v1/completions"
        account = None
        if first is None and _OLLAMA_PORT in target.url:
            account = OllamaAccount(
                key.onto(target.endpoint_at(beside(target.url, "api/generate"))), served, deadline
            )
        with closing(CompletionStreams(key.onto(target.endpoint_at(beside(target.url, path))))) as streams:
            alive = CompletionProbe(key.onto(target.endpoint_at(beside(target.url, "v1/completions"))))
            examination = Examination(target.name, alive, streams, page, asked, budget, account)
            found = examination.run(max_prompt, ceiling)
    parted = divergences(mine)
    _add_divergence(found, target.name, parted, first)
    _say(found, target.name, parted, first is not None, form)
    raise typer.Exit(_exit_code(found))


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """Where the server's key comes from: a file, an environment variable, or the target's own settings."""

    file: Path | None
    variable: str | None

    def onto(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with this key; raises ConfigError where the variable is not set."""
        if self.file is None and self.variable is None:
            return endpoint
        token = os.environ.get(self.variable, "").strip() if self.variable else None
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ConfigError(
                [f"--api-key-env {self.variable} holds no key: set it to one line of ASCII text"]
            )
        return dataclasses.replace(
            endpoint,
            bearer_token_file=self.file,
            bearer_token=None if self.file else token,
            username=None,
            password_file=None,
            password=None,
        )


def _ceiling(name: str | None, weights: float | None, settings: Settings) -> float | None:
    told = settings.targets[0].target().expectations
    wanted = name or told.gpu
    found = find_gpu(wanted) if wanted else None
    if name and found is None:
        raise ConfigError(
            [f"--gpu {one_line(name, 60)!r} is not in the table: {', '.join(similar_gpus(name))}"]
        )
    bandwidth = found.bandwidth_bytes_per_second if found else told.memory_bandwidth_bytes_per_second
    bytes_read = weights or told.shape.weight_bytes
    return decode_ceiling_tokens_per_second(bandwidth, bytes_read)


def _prompts(path: Path) -> list[str]:
    """The prompts of a file, one a line: JSON with `prompt` or `messages`, or plain text."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_PROMPTS_BYTES + 1)
    except OSError as error:
        raise ConfigError([f"--prompts {path}: cannot be read: {error.strerror}"]) from None
    if len(content) > MAX_PROMPTS_BYTES:
        raise ConfigError([f"--prompts {path}: is longer than {MAX_PROMPTS_BYTES // 2**20} MiB"])
    lines = content.decode("utf-8", "replace").splitlines()
    found = [clean(_prompt(line)) for line in lines if line.strip()]
    if len(found) < 2:
        raise ConfigError([f"--prompts {path}: give at least two prompts, one per line"])
    return found


def _prompt(line: str) -> str:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if isinstance(value, dict):
        messages = value.get("messages")
        if isinstance(messages, list):
            return "\n".join(json.dumps(each, ensure_ascii=False) for each in messages)
        return str(value.get("prompt", line))
    return value if isinstance(value, str) else line


def _add_divergence(found: Examined, target: str, parted: Sequence[Divergence], page: Counts | None) -> None:
    if not parted:
        return
    worst = min(parted, key=lambda each: each.shared_characters)
    broken = divergence_finding(target, worst, page.block_size_tokens if page else None)
    if broken:
        found.findings.append(broken)


def _say(found: Examined, name: str, parted: list[Divergence], sees_page: bool, form: Form) -> None:
    if form is Form.JSON:
        say_json(examined_body(found, name, parted))
    else:
        say(examined_text(found, name, parted, sees_page))


def _exit_code(found: Examined) -> int:
    """1 for a warning or worse; 2 where nothing was measured, refused or stopped before the first stream."""
    if found.life is Life.REFUSED or (found.stopped and not found.streams):
        return 2
    return 1 if found.worst in {Severity.WARNING, Severity.CRITICAL} else 0
