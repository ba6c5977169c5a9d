"""`vllm-watchdog lab`: exercises that teach and prove a set-up, on a server that one may load."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from watchdog.cli.console import complain, say
from watchdog.cli.live import limits_of, settings_for
from watchdog.cli.probe import Key
from watchdog.clock import steady_seconds
from watchdog.diagnosis.target import TargetDiagnosis
from watchdog.errors import ConfigError
from watchdog.http.url import beside
from watchdog.model import Scrape
from watchdog.probe.counts import Counts, counts_of
from watchdog.probe.crew import MOST_STREAMS, Crew
from watchdog.probe.drawing import Bar, bars_svg, bars_text
from watchdog.probe.exercises import Bench, Exercise, plan_of, sweep_said
from watchdog.probe.knee import Step
from watchdog.probe.results import steps_of
from watchdog.probe.stream import Question
from watchdog.rule.in_force import load_rules
from watchdog.scrape.fetch import Fetcher
from watchdog.scrape.recording import Writer
from watchdog.text import one_line

MAX_RESULT_BYTES = 64 * 1024 * 1024

app = typer.Typer(
    add_completion=False,
    help="Exercises that teach and prove a set-up: shared prefix, a long prompt among streams, a sweep to the knee.",
    no_args_is_help=True,
    epilog="Examples:\n\n  vllm-watchdog lab sweep http://localhost:8000 --output lab --yes\n\n"
    "  vllm-watchdog lab read bench-*.json",
)

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="A server that you may load.")]
ModelOption = Annotated[str | None, typer.Option("--model", help="The model; the first if not given.")]
KeyOption = Annotated[Path | None, typer.Option("--api-key-file", metavar="FILE", help="File with the key.")]
KeyVariableOption = Annotated[
    str | None, typer.Option("--api-key-env", metavar="NAME", help="Environment variable with the key.")
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="Folder for report, chart and recording; none if not given."
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask before the server is loaded.")]


@app.command()
def prefix(
    url: UrlArgument,
    model: ModelOption = None,
    key: KeyOption = None,
    key_variable: KeyVariableOption = None,
    output: OutputOption = None,
    yes: YesOption = False,
) -> None:
    """Two rounds with a shared prefix, with a stable and with a changed head: hit rate and first tokens."""
    _run("prefix", url, model, Key(key, key_variable), output, yes, lambda bench: bench.prefix())


@app.command()
def jitter(  # noqa: PLR0913, PLR0917 - one option each
    url: UrlArgument,
    model: ModelOption = None,
    key: KeyOption = None,
    key_variable: KeyVariableOption = None,
    output: OutputOption = None,
    yes: YesOption = False,
    long_tokens: Annotated[int, typer.Option("--long", min=100, help="Tokens of the long prompt.")] = 4000,
    before: Annotated[
        Path | None, typer.Option("--before", metavar="REPORT", help="A report to compare with.")
    ] = None,
) -> None:
    """A long prompt among streams: how far it stretches their gaps, before and after a smaller token budget."""
    earlier = _json(before) if before else None
    report = earlier if isinstance(earlier, dict) else None
    _run(
        "jitter", url, model, Key(key, key_variable), output, yes,
        lambda bench: bench.jitter(long_tokens, report), long_tokens=long_tokens,
    )  # fmt: skip


@app.command()
def sweep(
    url: UrlArgument,
    model: ModelOption = None,
    key: KeyOption = None,
    key_variable: KeyVariableOption = None,
    output: OutputOption = None,
    yes: YesOption = False,
    most: Annotated[
        int, typer.Option("--most", min=2, max=MOST_STREAMS, help="Most concurrent streams.")
    ] = 64,
) -> None:
    """More streams at once, step by step, to the knee: throughput, first tokens, gaps, and what binds there."""
    _run("sweep", url, model, Key(key, key_variable), output, yes, lambda bench: bench.sweep(most), most=most)


@app.command()
def read(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Results of a load generator.")],
) -> None:
    """Reads result files of `vllm bench serve` and guidellm, and says where the knee is and what matches it."""
    steps: list[Step] = []
    faults = []
    for path in files:
        found = steps_of(_json(path))
        if not found:
            faults.append(f"{path}: no result of vllm bench serve or guidellm")
        steps += found
    if faults:
        raise ConfigError(faults)
    steps.sort(key=lambda each: each.concurrency)
    bars = [
        Bar(f"{each.concurrency:.4g}", each.tokens_per_second, f"{each.tokens_per_second:,.0f} tokens/s")
        for each in steps
    ]
    say(bars_text("Output tokens a second by streams at once", bars))
    for line in sweep_said(steps, None):
        say(line)


def _json(path: Path) -> object:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_RESULT_BYTES + 1)
        if len(content) > MAX_RESULT_BYTES:
            raise ConfigError([f"{path}: is longer than {MAX_RESULT_BYTES // 2**20} MiB"])
        found: object = json.loads(content)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (ValueError, RecursionError):
        raise ConfigError([f"{path}: is no JSON"]) from None
    return found


def _run(
    name: str,
    url: str,
    model: str | None,
    key: Key,
    output: Path | None,
    yes: bool,
    exercise: Callable[[Bench], Exercise],
    **sizes: int,
) -> None:
    plan = plan_of(name, **sizes)
    complain(f"plan: {plan.text}; {plan.requests} requests, some {plan.tokens:,} tokens at most")
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(["this loads the server: add --yes to run without a prompt"])
        typer.confirm("Load the server?", abort=True, err=True)
    with _laboratory(name, url, model, key, output) as lab:
        found = exercise(lab.bench)
    say(bars_text(found.title, found.bars))
    for line in found.said:
        say(line)
    if found.failures:
        complain(f"{len(found.failures)} requests have no answer, the first: {one_line(found.failures[0])}")
    if output is not None:
        _write(output, lab.target, found)
    is_told = found.is_measured and any(bar.value for bar in found.bars)
    raise typer.Exit(2 if found.failures and not is_told else 0)


@dataclass(slots=True)
class _Laboratory:
    """A server under exercise, with its pages recorded and judged meanwhile."""

    target: str
    bench: Bench


class _Watching:
    """Reads the page: into the recording if there is one, and into a diagnosis that knows what binds."""

    def __init__(self, fetcher: Fetcher, diagnosis: TargetDiagnosis, writer: Writer | None) -> None:
        self._fetcher = fetcher
        self._diagnosis = diagnosis
        self._writer = writer
        self._last: Scrape | None = None
        self._limits: Counter[str] = Counter()

    def look(self) -> None:
        """Reads the page once."""
        scrape = self._fetcher.fetch(steady_seconds(), time.time())
        self._last = scrape
        if self._writer is not None:
            self._writer.write(scrape)
        snapshot = self._diagnosis.observe(scrape)
        self._limits.update(each.limit for each in snapshot.readings if each.limit != "unknown")

    def limit(self) -> str:
        """What limited throughput most often since the last call; "unknown" if no page showed it."""
        [(found, _), *_] = self._limits.most_common(1) or [("unknown", 0)]
        self._limits.clear()
        return found

    def counts(self) -> Counts | None:
        """The page now, in numbers."""
        self.look()
        return None if self._last is None else counts_of(self._last)


@contextmanager
def _laboratory(
    name: str, url: str, model: str | None, key: Key, output: Path | None
) -> Iterator[_Laboratory]:
    settings = settings_for([url], None, None)
    [target] = settings.targets
    with ExitStack() as stack:
        fetcher = stack.enter_context(
            closing(Fetcher(key.onto(target.endpoint()), limits_of(settings, target.name)))
        )
        info = fetcher.server_info()
        served = model or next(iter(info.models), None)
        if served is None:
            raise ConfigError([f"{target.name}: /v1/models names no model; name one with --model"])
        writer = None
        if output is not None:
            _make(output)
            meta: dict[str, object] = {
                "name": f"{target.name} {name}",
                "vllm_version": info.version,
                "phases": [],
            }
            writer = stack.enter_context(Writer(output / f"{name}.jsonl.xz", meta))
        diagnosis = TargetDiagnosis(target.target(), load_rules(settings.rules))
        watching = _Watching(fetcher, diagnosis, writer)
        is_vllm = watching.counts() is not None
        endpoint = key.onto(target.endpoint_at(beside(target.url, "v1/completions")))
        crew = stack.enter_context(closing(Crew(endpoint, 120.0, watching.look)))
        question = Question(served, "", 1, ignore_eos=is_vllm)
        yield _Laboratory(target.name, Bench(crew, question, watching.counts, watching.limit))


def _make(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([f"--output {output}: cannot be made: {error.strerror}"]) from None


def _write(output: Path, target: str, found: Exercise) -> None:
    report: dict[str, Any] = {
        "target": target,
        "exercises": {found.name: found.figures},
        "said": found.said,
        "failures": len(found.failures),
    }
    try:
        (output / f"{found.name}.json").write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
        (output / f"{found.name}.svg").write_text(bars_svg(found.title, found.bars))
    except OSError as error:
        raise ConfigError([f"--output {output}: cannot be written: {error.strerror}"]) from None
    complain(f"written: {found.name}.json, {found.name}.svg and {found.name}.jsonl.xz in {output}")
