"""The explanation of a rule agrees with what the rule did."""

import pytest

from tests.places import RECORDINGS
from tests.watching import shipped_rules
from watchdog.model import Scope, Target, Truth
from watchdog.replay.explanation import WHEN, ClauseStory, Explainer, Explanation
from watchdog.scrape.recording import read, thin


def explanation(identity: str, recording: str, interval_seconds: float = 5.0) -> Explanation:
    rules = shipped_rules()
    found, scrapes = read(RECORDINGS / f"{recording}.jsonl.xz")
    explainer = Explainer(Target(found.name, "x"), rules, rules.by_id(identity))
    for scrape in thin(scrapes, interval_seconds):
        explainer.observe(scrape)
    return explainer.explanation()


def truth_at(story: ClauseStory, wall: float) -> Truth:
    return next(span.truth for span in story.spans if span.begin <= wall <= span.end)


CASES = [
    ("seqs-limited", "seqs-limited"),
    ("kv-pool-exhausted", "seqs-limited"),
    ("ttft-high", "dp-imbalance"),
    ("engine-stalled", "engine-hang"),
    ("target-down", "restart"),
]


@pytest.mark.parametrize(("identity", "recording"), CASES)
def test_the_clauses_give_the_answer_of_the_rule(identity: str, recording: str) -> None:
    found = explanation(identity, recording)
    assert found.subjects
    for subject in found.subjects:
        for span in subject.spans:
            for wall in (span.begin, span.end):
                against = {
                    truth_at(each, wall) if each.kind == WHEN else Truth.NO
                    for each in subject.clauses
                    if each.is_against(truth_at(each, wall))
                }
                expected = Truth.NO if Truth.NO in against else Truth.UNKNOWN if against else Truth.YES
                assert span.truth is expected
        is_yes = any(span.truth is Truth.YES for span in subject.spans)
        assert subject.nearest is not None
        assert (subject.nearest.against == ()) == is_yes


@pytest.mark.parametrize(("identity", "recording"), CASES)
def test_it_fired_only_where_the_rule_held(identity: str, recording: str) -> None:
    found = explanation(identity, recording)
    for episode in found.episodes:
        [subject] = [
            each
            for each in found.subjects
            if (each.subject.model_name, each.subject.engine) == (episode.key.model_name, episode.key.engine)
        ]
        assert any(
            span.truth is Truth.YES and span.begin <= episode.firing_at <= span.end for span in subject.spans
        )


def test_the_whole_server_is_a_subject_of_its_own() -> None:
    found = explanation("target-down", "restart")
    assert found.rule.scope is Scope.TARGET
    assert [(each.subject.model_name, each.subject.engine) for each in found.subjects] == [("", "")]


def test_engines_are_followed_apart() -> None:
    found = explanation("ttft-high", "dp-imbalance")
    assert len({each.subject.engine for each in found.subjects}) > 1
