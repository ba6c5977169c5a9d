"""The shipped rules on pages of the Rust front end: recordings cut to the families that it serves, and a real one."""

from pathlib import Path

import pytest

from tests.places import RECORDINGS
from tests.rust_front_end import rust_scrapes
from tests.watching import lead, shipped_rules, watch
from watchdog.model import Target
from watchdog.replay.replay import replay
from watchdog.replay.score import Outcome, score
from watchdog.scrape.recording import read, thin

# What no page of the Rust front end shows: a hang that began while idle moves nothing but the process's open files,
# and requests refused by an admission limit are counted nowhere (as HTTP 5xx they are errors).
UNSEEN = {"engine-hang-invisible", "h200-engine-hang-invisible", "admission-rejection"}
FILES = [
    path for path in sorted(RECORDINGS.glob("*.jsonl.xz")) if not path.name.startswith(("rust-", "v0.8."))
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_each_phase_is_named_or_quiet_as_on_the_whole_page(path: Path) -> None:
    recording, scrapes = read(path)
    told = replay(Target(recording.name, ""), rust_scrapes(thin(scrapes, 5)), shipped_rules())
    known = [rule.id for rule in shipped_rules().rules]
    bad = {Outcome.FALSE_ALARM, Outcome.NO_SUCH_RULE}
    if recording.name not in UNSEEN:
        bad.add(Outcome.MISSED)
    scores = score(recording.name, recording.phases, told.timeline, known)
    assert [one for one in scores if one.outcome in bad] == []
    for episode in told.episodes:
        said = (
            episode.cause,
            *(text for one in episode.remedies for text in (one.action, one.why, one.price)),
        )
        assert not [text for text in said if "unknown" in text]


def test_the_pool_is_inferred_where_no_label_tells_it() -> None:
    # 69 usable blocks of 32 tokens; requests of 260 tokens fill nine of them but for a tenth.
    _, scrapes = read(RECORDINGS / "rust-kv-pool-exhausted.jsonl.xz")
    last = watch(thin(scrapes, 5))[-1]
    assert lead(last) == "kv-pool-exhausted"
    said = next(one.cause for one in last.incidents if one.key == last.lead)
    assert "the KV cache of 1,900 tokens is" in said or "the KV cache of 2,000 tokens is" in said
