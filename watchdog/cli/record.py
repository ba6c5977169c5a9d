"""`vllm-watchdog record`: a server's page over time, in a file that `replay` reads."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from watchdog.cli.console import IntervalOption, complain, parse_duration, progress
from watchdog.cli.live import fetchers_of, settings_for, ticks
from watchdog.cli.prometheus import Stretch, scrapes_of, with_stretch
from watchdog.clock import steady_seconds
from watchdog.errors import RecordingError, SourceError
from watchdog.http.url import redact_url
from watchdog.scrape.recording import Writer

ENDINGS = (".jsonl", ".jsonl.gz", ".jsonl.xz")

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Example:\n\n  vllm-watchdog record http://localhost:8000 -o incident.jsonl.xz --for 10m\n\n"
    "  vllm-watchdog record --prometheus http://prometheus:9090 --from 02:00 --to 02:30 -o incident"
)
@with_stretch
def record(
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .jsonl, .jsonl.gz or .jsonl.xz; a folder for several servers of a Prometheus.",
        ),
    ],
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The server, or its metrics page.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--for", parser=parse_duration, metavar="DURATION", help="How long; until Ctrl-C if not given."
        ),
    ] = None,
    interval: IntervalOption = 1.0,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    prometheus: Stretch | None = None,
) -> None:
    """Records a server's metrics page, failures included, for replay or for a report.

    From a Prometheus it is what was scraped between --from and --to. Ctrl-C and SIGTERM end it. However it ends, a full
    disk and a kill included, what was scraped before is in the file.
    """
    if (url is None) is (prometheus is None):
        raise typer.BadParameter("give a server, or --prometheus with --from and --to", param_hint="URL")
    if prometheus is not None:
        record_stretch(prometheus, output, force)
        return
    _refuse_to_replace(output, force)
    [(target, fetcher)] = fetchers_of(settings_for([str(url)], None, interval))
    name = target.name
    server_info = fetcher.server_info()
    meta = {
        "name": name,
        "interval_s": interval,
        "vllm_version": server_info.version,
        "rust_frontend_version": server_info.rust_frontend_version,
        "max_model_len": server_info.max_model_len,
        "models": list(server_info.models),
        "phases": [],
    }
    scrapes = failures = 0
    began = steady_seconds()
    try:
        with (
            _ends_like_ctrl_c(),
            Writer(output, meta) as writer,
            progress(f"recording {name}", duration) as done,
        ):
            for at in ticks(interval, duration):
                scrape = fetcher.fetch(at, time.time())
                writer.write(scrape)
                scrapes += 1
                failures += scrape.failure is not None
                done(steady_seconds() - began)
    except KeyboardInterrupt:
        # Told to stop: what was written so far is a whole recording.
        pass
    except RecordingError as error:
        raise RecordingError(f"{error}; the {scrapes} scrapes before are kept") from None
    finally:
        fetcher.close()
    complain(f"{scrapes} scrapes of {name} in {output}, {failures} of them failed")
    raise typer.Exit(1 if scrapes == failures else 0)


@contextmanager
def _ends_like_ctrl_c() -> Iterator[None]:
    """Lets a service manager's end, and that of a terminal, be like Ctrl-C; what `nohup` set stays."""
    ends = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in ends:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in ends:
            signal.signal(each, signal.SIG_DFL)


def record_stretch(asked: Stretch, output: Path, force: bool) -> None:
    """Writes what a Prometheus scraped: into one file, or into a file for each server where `output` is a folder.

    Raises RecordingError where a file exists and is not to be replaced, or where one file was asked for and there are
    several servers.
    """
    is_file = output.name.endswith(ENDINGS)
    writers: dict[str, Writer] = {}
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        for name, labels, scrape in scrapes_of(asked):
            if name not in writers:
                if is_file and writers:
                    raise RecordingError(
                        f"{output}: there are several servers ({', '.join([*writers, name])}): name a folder, "
                        "or one of them by --match"
                    )
                path = output if is_file else output / f"{name}.jsonl.xz"
                _refuse_to_replace(path, force)
                path.parent.mkdir(parents=True, exist_ok=True)
                meta = {"name": name, "labels": dict(labels), "phases": []}
                writers[name] = stack.enter_context(Writer(path, meta))
            writers[name].write(scrape)
            counts[name] += 1
    if not counts:
        raise SourceError(
            f"{redact_url(asked.settings.url)}: no vLLM server was scraped between --from and --to"
        )
    complain("\n".join(f"{number} scrapes of {name} in {output}" for name, number in sorted(counts.items())))


def _refuse_to_replace(output: Path, force: bool) -> None:
    # A device or a pipe holds nothing that could be lost.
    if output.is_file() and not force:
        raise RecordingError(
            f"{output}: exists already, and may be the incident's only recording; --force replaces it"
        )
