"""Recordings as a Prometheus or a VictoriaMetrics would have kept them, had it scraped the servers at that pace."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.contract.programs import Store, VictoriaMetrics
from tests.places import RECORDINGS
from watchdog.model import Scrape, ServerInfo
from watchdog.scrape.recording import read, thin
from watchdog.scrape.samples import NOT_SCRAPED


def scrapes_of(name: str, pace_seconds: float, end: float, until_phase: str | None = None) -> list[Scrape]:
    """A recording (up to the end of a phase) at that pace, ended at `end`, and of each page what is kept of it."""
    recording, scrapes = read(RECORDINGS / f"{name}.jsonl.xz")
    last = next((phase.end for phase in recording.phases if phase.label == until_phase), float("inf"))
    kept = list(thin((each for each in scrapes if each.wall <= last), pace_seconds))
    shift = end - kept[-1].wall
    return [
        replace(
            each,
            at=round(each.wall + shift, 3),
            wall=round(each.wall + shift, 3),
            took_seconds=0.0,
            load=None,
            status=each.status if each.failure is None else 0,
            failure=NOT_SCRAPED if each.failure else None,
            server_info=ServerInfo(),
        )
        for each in kept
    ]


def _lines(name: str, scrapes: Iterable[Scrape]) -> Iterator[tuple[str, str, float]]:
    """Series, value and time of all that is kept, with the labels of the target."""
    target = f'instance="{name}:8000",job="vllm"'
    for scrape in scrapes:
        yield f"up{{{target}}}", str(int(scrape.failure is None)), scrape.wall
        for text in scrape.body.decode().splitlines():
            series, _, value = text.rpartition(" ")
            metric, _, labels = series.partition("{")
            if not text.startswith("#"):
                inside = ",".join(filter(None, (target, labels.rstrip("}").rstrip(","))))
                yield f"{metric}{{{inside}}}", value, scrape.wall


@contextmanager
def kept_by(program: str, folder: Path, recorded: Mapping[str, Sequence[Scrape]]) -> Iterator[str]:
    """The address of a `prometheus` or `victoria-metrics` that keeps these scrapes, by the name of the server."""
    folder.mkdir(parents=True, exist_ok=True)
    if program == "prometheus":
        with Store(folder, written(folder, recorded, 1)) as store:
            yield store.url
    else:
        with VictoriaMetrics(folder) as victoria:
            victoria.take(written(folder, recorded, 1000))
            yield victoria.url


def written(folder: Path, recorded: Mapping[str, Sequence[Scrape]], ticks_a_second: int) -> Path:
    """The samples of these scrapes as a text, times in seconds or, as VictoriaMetrics has them, thousandths."""
    texts: dict[str, list[str]] = {}
    for name, scrapes in recorded.items():
        for series, value, at in _lines(name, scrapes):
            when = f"{at:.3f}" if ticks_a_second == 1 else f"{at * ticks_a_second:.0f}"
            texts.setdefault(series.partition("{")[0], []).append(f"{series} {value} {when}")
    samples = folder / "samples.txt"
    samples.write_text("\n".join(text for lines in texts.values() for text in lines) + "\n# EOF\n")
    return samples
