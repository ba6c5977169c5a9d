"""The README's example is what the demo says now, word for word."""

from itertools import islice

from tests.places import ROOT
from tests.watching import diagnosis
from watchdog.replay.demo_server import demo_server
from watchdog.report.bodies import diagnosis_body
from watchdog.report.text import diagnosis_text
from watchdog.scrape.recording import thin

LEFT_OUT = "  ..."
PACE_SECONDS = 5


def test_the_example_is_what_the_demo_says() -> None:
    example = (ROOT / "README.md").read_text().partition("```text\n")[2].partition("```")[0].splitlines()
    begin, _, rest = "\n".join(example).partition(f"\n{LEFT_OUT}\n")
    with demo_server() as server:
        pages = server.scrapes
    told = []
    # `make run` begins to look at any second of the five.
    for first in range(PACE_SECONDS):
        one = diagnosis("demo")
        for scrape in thin(islice(pages, first, None), PACE_SECONDS):
            last = one.observe(scrape)
            body = diagnosis_body([last.target], {"demo": last}, (), last.wall)
            told.append(diagnosis_text(body))
    assert any(text.startswith(begin) and f"\n{rest}\n" in text for text in told)
