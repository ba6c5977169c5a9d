"""`python -m tests.bench.exported`: scores the exported rules in a real Prometheus and writes the page about them.

Prometheus holds every recording, thinned to a pace and put at one time; the alerts' queries are asked at that pace, and
`for`, `keep_firing_for` and inhibition are done here as Prometheus and Alertmanager do them.
"""

import json
import re
import sys
import tempfile
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.contract.programs import Process, free_port, program, run
from tests.places import DOCS, RECORDINGS
from tests.watching import shipped_rules
from watchdog.history.names import wanted
from watchdog.model import SEVERITY_RANK, Severity, Verdict
from watchdog.replay.replay import Moment
from watchdog.replay.score import Limits, Outcome, PhaseScore, score
from watchdog.report.exported import (
    ENGINES,
    PREFIX,
    Export,
    export,
    inhibitions,
    signal_query,
    stretch_of,
    summary,
)
from watchdog.scrape.recording import Phase, read, thin

PACES_SECONDS = (15, 30, 60)
START = 1_700_000_000
PAGE = DOCS / "exported-rules.md"
TABLE = "<!-- measured by `make exported-rules` -->"


class Recorded(NamedTuple):
    """A recording at a pace: its pages by their time, and how much later than recorded they stand."""

    name: str
    phases: tuple[Phase, ...]
    pages: Sequence[tuple[float, str]]
    shift_seconds: float


def recorded(pace: int) -> Iterator[Recorded]:
    """Every recording; its first page stands at `START`."""
    for path in sorted(RECORDINGS.glob("*.jsonl.xz")):
        recording, scrapes = read(path)
        kept = [(each.wall, each.body.decode()) for each in thin(scrapes, pace) if each.failure is None]
        if kept:
            yield Recorded(recording.name, recording.phases, kept, START - kept[0][0])


def openmetrics(servers: Sequence[Recorded]) -> Iterator[str]:
    """The samples with their times, a metric's together, as promtool wants them for a backfill."""
    samples: dict[str, list[str]] = defaultdict(list)
    for server in servers:
        for wall, page in server.pages:
            for text in page.splitlines():
                series, _, value = text.rpartition(" ")
                name, _, labels = series.partition("{")
                if not text.startswith("#") and wanted(name):
                    inside = ",".join(
                        filter(None, (f'instance="{server.name}"', labels.rstrip("}").rstrip(",")))
                    )
                    samples[name].append(f"{name}{{{inside}}} {value} {wall + server.shift_seconds:.3f}\n")
    for lines in samples.values():
        yield from lines
    yield "# EOF\n"


def written_out(query: str, pace: int) -> str:
    """A query with what stands behind its recorded series."""
    engines = f"({ENGINES})"

    def behind(found: re.Match[str]) -> str:
        name = found[1]
        return engines if name == "engine" else f"({signal_query(name, stretch_of(pace), engines)})"

    return re.sub(rf"{PREFIX}(\w+)", behind, query)


def asked(url: str, query: str, seconds: int, pace: int) -> Mapping[str, set[int]]:
    """At which evaluations the query has a value, by instance."""
    form = {"query": query, "start": START, "end": START + seconds, "step": pace}
    body = urllib.parse.urlencode(form).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query_range", body, timeout=300) as answer:
        rows: Any = json.load(answer)["data"]["result"]
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[row["metric"]["instance"]] |= {round((at - START) / pace) for at, _ in row["values"]}
    return found


def firing(yes: set[int], evaluations: int, wait: float, keep: float, pace: int) -> list[tuple[bool, bool]]:
    """At each evaluation whether the alert fires, and whether its condition holds."""
    states, since, last = [], None, None
    fires = False
    for number in range(evaluations):
        holds = number in yes
        since = (since if since is not None else number) if holds else None
        last = number if holds else last
        if holds and since is not None and (number - since) * pace >= wait:
            fires = True
        elif not holds and fires and last is not None:
            fires = (number - last) * pace < keep
        states.append((fires, holds))
    return states


def judged(pace: int, made: Export) -> list[PhaseScore]:
    """Every phase of every recording, by what Prometheus says at that pace."""
    servers = list(recorded(pace))
    seconds = ceil(max(each.pages[-1][0] + each.shift_seconds - START for each in servers))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "pages.txt").open("w") as file:
            file.writelines(openmetrics(servers))
        run("promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "pages.txt", folder / "data")
        (folder / "prometheus.yml").write_text("scrape_configs: []\n")
        url = f"http://127.0.0.1:{free_port()}"
        command: list[str | Path] = [
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=20y",
            # A page that failed leaves its series stale in a Prometheus that scrapes.
            f"--query.lookback-delta={2 * pace}s",
            f"--web.listen-address={url.removeprefix('http://')}",
        ]
        with Process(command, f"{url}/-/ready", folder / "prometheus.log"):
            held = {
                (one.rule.id, severity): asked(url, written_out(query, pace), seconds, pace)
                for one in made.carried
                for severity, query in one.queries.items()
            }
    scores: list[PhaseScore] = []
    limits = Limits(max(45, 4 * pace), max(30, 3 * pace))
    for server in servers:
        line = timeline(server, made, held, pace, seconds)
        scores += score(server.name, server.phases, line, [one.id for one in shipped_rules().rules], limits)
    return scores


def timeline(
    server: Recorded,
    made: Export,
    held: Mapping[tuple[str, Severity], Mapping[str, set[int]]],
    pace: int,
    seconds: int,
) -> list[Moment]:
    """What pages at each evaluation: the gravest of what no other one explains, the oldest of these."""
    evaluations = min(seconds, ceil(server.pages[-1][0] + server.shift_seconds - START)) // pace + 1
    explained = {
        (source["source_matchers"][0].split('"')[1], other)
        for source in inhibitions(made)["inhibit_rules"][:-1]
        for other in source["target_matchers"][0].split('"')[1].split("|")
    }
    states = {}
    for one in made.carried:
        for severity in one.queries:
            yes = held[one.rule.id, severity].get(server.name, set())
            states[one.rule.id, severity] = firing(
                yes, evaluations, one.rule.for_seconds, one.rule.keep_firing_seconds, pace
            )
    moments = []
    for number in range(evaluations):
        fires = {key for key, state in states.items() if state[number][0]}
        rules = {rule for rule, _ in fires}
        pages = [key for key in fires if not any((other, key[0]) in explained for other in rules)]
        lead = min(pages, key=lambda key: (SEVERITY_RANK[key[1]], _age(states[key], number)), default=None)
        alarming = {rule for rule, severity in fires if states[rule, severity][number][1]}
        verdict = Verdict.DEGRADED if pages else Verdict.UNKNOWN
        at = START + number * pace - server.shift_seconds
        moments.append(
            Moment(at, verdict, lead[0] if lead else None, tuple(sorted(rules)), tuple(sorted(alarming)))
        )
    return moments


def _age(states: Sequence[tuple[bool, bool]], number: int) -> int:
    """The evaluation from which on it has fired."""
    while number > 0 and states[number - 1][0]:
        number -= 1
    return number


def row(pace: int, scores: Sequence[PhaseScore]) -> str:
    """A line of the table."""
    causes = [each for each in scores if each.outcome in {Outcome.NAMED, Outcome.MISSED}]
    named = [each for each in causes if each.outcome is Outcome.NAMED]
    after = [each.named_after_seconds for each in named if each.named_after_seconds is not None]
    misled = sum(bool(each.misled_by) for each in causes)
    calm = [each for each in scores if each.outcome in {Outcome.QUIET, Outcome.FALSE_ALARM}]
    quiet = sum(each.outcome is Outcome.QUIET for each in calm)
    middle = f"{median(after):.0f} s | {max(after):.0f} s" if after else "- | -"
    return f"| {pace} s | {len(named)} of {len(causes)} | {middle} | {misled} | {quiet} of {len(calm)} |"


def main() -> None:
    """Measures each pace and writes the page."""
    rows, verbose = [], "-v" in sys.argv
    for pace in PACES_SECONDS:
        scores = judged(pace, export(shipped_rules(), pace, ""))
        rows.append(row(pace, scores))
        print(rows[-1])
        for each in scores:
            if verbose or each.outcome is Outcome.FALSE_ALARM:
                print("  ", each.recording, each.label, each.outcome, each.rules, each.named_after_seconds)
    head, _, rest = PAGE.read_text().partition(TABLE)
    _, _, tail = rest.partition("\n\n## ")
    table = "\n".join(
        [
            "| scraped every | causes that page | after (median) | after (longest) | another pages | quiet |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
        ]
    )
    tail = tail.partition("<!-- carried -->")[0]
    carried = summary(export(shipped_rules(), 30, ""))
    PAGE.write_text(f"{head}{TABLE}\n\n{table}\n\n## {tail}<!-- carried -->\n\n{carried}")


if __name__ == "__main__":
    main()
