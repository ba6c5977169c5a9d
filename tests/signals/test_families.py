"""Each metric family of the newest vLLM is read, or there is a reason why it is not."""

import re

from tests.places import ROOT, SAMPLES
from watchdog.history.unread import UNREAD

FAMILIES = (SAMPLES / "families-0.33.0.txt").read_text(encoding="utf-8").split()
# Where signals and facts name what they read.
READERS = (ROOT / "watchdog" / "signals", ROOT / "watchdog" / "facts")


def read_families() -> set[str]:
    """The families that code of signals and facts names, with the suffix of a counter or without."""
    texts = [path.read_text(encoding="utf-8") for folder in READERS for path in folder.glob("*.py")]
    words = {word.removeprefix("vllm:") for text in texts for word in re.findall(r'"([a-z0-9_:]+)"', text)}
    ends = re.compile(r"_(?:bucket|sum|count|total)$")
    return {form for word in words for form in (word, ends.sub("", word), ends.sub("", ends.sub("", word)))}


def test_the_newest_vllm_has_these_families() -> None:
    assert len(FAMILIES) == len(set(FAMILIES)) == 138


def test_each_family_is_read_or_has_a_reason() -> None:
    read = read_families()
    assert [one for one in FAMILIES if one not in read and one not in UNREAD] == []


def test_no_reason_is_given_for_what_is_read_or_is_not_there() -> None:
    assert UNREAD.keys() - set(FAMILIES) == set()
    # What tells the version, or which engine wrote a page, need not be read as a figure.
    telling = {"kv_block_lifetime_seconds", "request_num_preemptions"}
    assert UNREAD.keys() & read_families() == telling
