"""What the Rust front end of the same server would have served: a recorded page without the families that it lacks."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from tests.places import SAMPLES
from watchdog.model import Scrape

_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_NAME = re.compile(r"[^\s{]+")
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


@cache
def served_samples() -> frozenset[str]:
    """The names of samples that a page of the Rust front end has, read from one of 0.32.0."""
    page = (SAMPLES / "rust" / "0.32.0.prom").read_text()
    return frozenset(name + end for name, kind in _TYPE.findall(page) for end in _SUFFIXES[kind])


def rust_page(text: str) -> str:
    """The page's samples that the Rust front end serves too, in its form: OpenMetrics, without help."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    kept = (line for line in lines if _is_served(line))
    return "\n".join((*kept, "# EOF", ""))


def rust_scrapes(scrapes: Iterable[Scrape]) -> Iterator[Scrape]:
    """Scrapes of the Rust front end for those of the Python one."""
    for scrape in scrapes:
        yield replace(scrape, body=rust_page(scrape.body.decode()).encode()) if scrape.body else scrape


def _is_served(line: str) -> bool:
    name = _NAME.match(line)
    return name is not None and name.group() in served_samples()
