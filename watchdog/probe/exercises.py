"""Exercises on a server that may be loaded: a shared prefix, a long prompt among streams, a sweep to the knee."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, NamedTuple

from watchdog.probe.counts import Counts
from watchdog.probe.crew import Crew, Round
from watchdog.probe.drawing import Bar
from watchdog.probe.examination import words_of
from watchdog.probe.knee import Step, knee, percentile
from watchdog.probe.stream import Question
from watchdog.text import seconds_text

PREFIX_REQUESTS, PREFIX_TOKENS, PREFIX_TAIL_TOKENS, PREFIX_OUTPUT_TOKENS = 8, 1000, 50, 8
PREFIX_AT_ONCE = 4
JITTER_STREAMS, JITTER_TOKENS = 4, 96
SWEEP_REQUESTS_A_STREAM, SWEEP_PROMPT_TOKENS, SWEEP_OUTPUT_TOKENS = 3, 200, 64
# So many words are asked first, to learn how many tokens a word is to this server.
LEARNING_WORDS, LEARNING_TOKENS = 60, 200
# Of a prefix that is found the first token comes this much earlier, or what is found is not worth its while.
_WORTH = 0.7


class Plan(NamedTuple):
    """What an exercise will ask: requests, and tokens of prompts and output at most."""

    requests: int
    tokens: int
    text: str


@dataclass(slots=True)
class Exercise:
    """What an exercise showed: bars, what they mean, and all figures for a report.

    `is_measured` is false where what it is about has no answer.
    """

    name: str
    title: str
    bars: list[Bar] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    is_measured: bool = True


class Bench:
    """A server under exercise: how to ask it, its page now, and what binds it by the reading of its page."""

    def __init__(
        self,
        crew: Crew,
        question: Question,
        page: Callable[[], Counts | None],
        limit: Callable[[], str],
        seed: int | None = None,
    ) -> None:
        self._crew = crew
        self._question = question
        self._page = page
        self._limit = limit
        self._chance = random.Random(seed)  # noqa: S311 - words of a prompt, no secret
        self._tokens_a_word = 1.0

    def prefix(self) -> Exercise:
        """Two rounds with one head, and two whose head changes: hits and first tokens of each."""
        self._learn_words()
        found = Exercise("prefix", "Mean time to first token with a shared prefix")
        stable = self._words(PREFIX_TOKENS)
        for name, changing in (("stable head", False), ("changed head", True)):
            for number in (1, 2):
                hits, asked = self._round_of_prefix(stable, changing)
                found.failures += asked.failures
                first = mean(asked.first_tokens) if asked.first_tokens else None
                label = f"{name}, round {number}"
                found.figures[label] = {"ttft_mean_seconds": first, "hit_ratio": hits}
                told = "no answer" if first is None else seconds_text(first)
                found.bars.append(
                    Bar(label, first or 0.0, told + ("" if hits is None else f", {hits:.0%} hit"))
                )
        found.said.append(_prefix_said(found.figures))
        return found

    def jitter(self, long_tokens: int, earlier: dict[str, Any] | None = None) -> Exercise:
        """Streams alone, and streams while a long prompt is computed; beside an earlier report where there is one."""
        self._learn_words()
        found = Exercise("jitter", "Gaps of streams beside a long prompt")
        calm = self._crew.run([self._ask(50, JITTER_TOKENS) for _ in range(JITTER_STREAMS)], JITTER_STREAMS)
        mixed = [self._ask(50, JITTER_TOKENS) for _ in range(JITTER_STREAMS)]
        mixed += [self._ask(long_tokens, 1), self._ask(long_tokens, 1)]
        # One more than there are streams: the second long prompt begins once the first is done, amid the streams.
        disturbed = self._crew.run(mixed, JITTER_STREAMS + 1)
        found.failures += calm.failures + disturbed.failures
        for name, seen in (("alone", calm), ("beside a long prompt", disturbed)):
            figures = _gap_figures(seen)
            found.figures[name] = figures
            for what in ("median", "p99", "longest"):
                value = figures[f"{what}_seconds"] or 0.0
                found.bars.append(Bar(f"{name}, {what}", value, seconds_text(value)))
        if disturbed.failures:
            found.is_measured = False
            found.said.append(
                f"{len(disturbed.failures)} of {len(mixed)} requests have no answer, so what a long prompt does "
                "was not measured. Where the server takes no prompt of that length, ask with a smaller --long."
            )
            return found
        longest = max((each.prompt_tokens or 0 for each in disturbed.answers), default=0)
        found.said.append(_jitter_said(found.figures, longest or long_tokens))
        if earlier:
            found.said.append(_compared(earlier, found.figures))
        return found

    def sweep(self, most: int) -> Exercise:
        """One, two, four and more streams at once, until throughput stops growing or `most` is reached."""
        self._learn_words()
        found = Exercise("sweep", "Output tokens a second by streams at once")
        steps: list[Step] = []
        concurrency = 1
        while concurrency <= most:
            step, failures = self._step(concurrency)
            steps.append(step)
            found.failures += failures
            found.bars.append(Bar(f"{concurrency}", step.tokens_per_second, _step_text(step)))
            seen = knee(steps, SWEEP_PROMPT_TOKENS)
            if failures or (seen is not None and seen.reached):
                break
            concurrency *= 2
        found.figures["steps"] = [_step_figures(each) for each in steps]
        found.said += sweep_said(steps, SWEEP_PROMPT_TOKENS)
        return found

    def _learn_words(self) -> None:
        """Asks once how many tokens a word is; one, where the server counts none."""
        learnt = self._crew.run([self._with(words_of(self._chance, LEARNING_WORDS), 1)], 1)
        tokens = learnt.answers[0].prompt_tokens
        self._tokens_a_word = tokens / LEARNING_WORDS if tokens else 1.0

    def _step(self, concurrency: int) -> tuple[Step, list[str]]:
        requests = max(4, concurrency * SWEEP_REQUESTS_A_STREAM)
        questions = [self._ask(SWEEP_PROMPT_TOKENS, SWEEP_OUTPUT_TOKENS) for _ in range(requests)]
        seen = self._crew.run(questions, concurrency)
        firsts, gaps = seen.first_tokens, seen.gaps
        step = Step(
            concurrency=concurrency,
            requests=requests,
            tokens_per_second=seen.tokens / seen.seconds if seen.seconds > 0 else 0.0,
            ttft_mean_seconds=mean(firsts) if firsts else None,
            ttft_p95_seconds=percentile(firsts, 0.95),
            itl_mean_seconds=mean(gaps) if gaps else None,
            itl_p99_seconds=percentile(gaps, 0.99),
            limit=self._limit(),
        )
        return step, seen.failures

    def _round_of_prefix(self, stable: str, changing: bool) -> tuple[float | None, Round]:
        prompts = []
        for _ in range(PREFIX_REQUESTS):
            head = f"{self._words(20)} " if changing else ""
            prompts.append(f"{head}{stable} {self._words(PREFIX_TAIL_TOKENS)}")
        before = self._page()
        questions = [self._with(prompt, PREFIX_OUTPUT_TOKENS) for prompt in prompts]
        seen = self._crew.run(questions, PREFIX_AT_ONCE)
        return _hit_ratio(before, self._page(), seen), seen

    def _ask(self, prompt_tokens: int, output_tokens: int) -> Question:
        return self._with(self._words(prompt_tokens), output_tokens)

    def _with(self, prompt: str, output_tokens: int) -> Question:
        asked = self._question
        return Question(asked.model, prompt, output_tokens, asked.chat, asked.ignore_eos)

    def _words(self, tokens: int) -> str:
        return words_of(self._chance, tokens / self._tokens_a_word)


def plan_of(name: str, most: int = 64, long_tokens: int = 4000) -> Plan:
    """What the exercise of that name asks at most, with the one request that learns how many tokens a word is."""
    if name == "prefix":
        each = 20 + PREFIX_TOKENS + PREFIX_TAIL_TOKENS + PREFIX_OUTPUT_TOKENS
        count = 4 * PREFIX_REQUESTS
        return Plan(
            1 + count,
            LEARNING_TOKENS + count * each,
            f"four rounds of {PREFIX_REQUESTS} requests, {PREFIX_AT_ONCE} at once",
        )
    if name == "jitter":
        streams = 2 * JITTER_STREAMS
        tokens = streams * (50 + JITTER_TOKENS) + 2 * (long_tokens + 1)
        return Plan(
            1 + streams + 2,
            LEARNING_TOKENS + tokens,
            f"{JITTER_STREAMS} streams alone, then beside {long_tokens:,} tokens twice",
        )
    count, concurrency = 0, 1
    while concurrency <= most:
        count += max(4, concurrency * SWEEP_REQUESTS_A_STREAM)
        concurrency *= 2
    tokens = count * (SWEEP_PROMPT_TOKENS + SWEEP_OUTPUT_TOKENS)
    return Plan(1 + count, LEARNING_TOKENS + tokens, f"1, 2, 4 ... {most} streams at once")


def sweep_said(steps: list[Step], prompt_tokens: float | None) -> list[str]:
    """What a sweep means: its knee, what binds there, and the flags that match."""
    found = knee(steps, prompt_tokens)
    if found is None:
        return ["Nothing was measured."]
    at = found.step
    if not found.reached:
        return [f"The knee was not reached at {_streams(at)}: {at.tokens_per_second:,.0f} tokens/s."]
    worth = "twice as many give under 15% more tokens and longer waits"
    said = [f"The knee is at {_streams(at)}, {at.tokens_per_second:,.0f} tokens/s: {worth}."]
    if at.limit != "unknown":
        said.append(f"What limits throughput there: {at.limit}.")
    flags = [f"--max-num-seqs {found.max_num_seqs}"] if found.max_num_seqs else []
    flags += [f"--max-num-batched-tokens {found.token_budget}"] if found.token_budget else []
    if flags:
        said.append(f"To match: {' '.join(flags)}.")
    return said


def _streams(step: Step) -> str:
    return "1 stream" if f"{step.concurrency:.0f}" == "1" else f"{step.concurrency:.0f} streams"


def _hit_ratio(before: Counts | None, after: Counts | None, seen: Round) -> float | None:
    cached = [each.cached_tokens for each in seen.answers if each.cached_tokens is not None]
    prompts = [each.prompt_tokens or 0 for each in seen.answers]
    if cached and sum(prompts):
        return sum(cached) / sum(prompts)
    if before is None or after is None:
        return None
    hits, queries = after.since(before, "prefix_hits"), after.since(before, "prefix_queries")
    return hits / queries if hits is not None and queries else None


def _prefix_said(figures: dict[str, Any]) -> str:
    warm, changed = figures["stable head, round 2"], figures["changed head, round 2"]
    first, other = warm["ttft_mean_seconds"], changed["ttft_mean_seconds"]
    if first is None or other is None:
        return "Some rounds got no answer, so the cache cannot be judged."
    if first < other * _WORTH:
        return (
            f"The cache works: a stable head brings the first token after {seconds_text(first)}, a head that changes "
            f"after {seconds_text(other)}. Keep what changes behind what stays."
        )
    if warm["hit_ratio"]:
        return "The prefix is cached, but the first token is no faster: prefill is not the bottleneck."
    return (
        "A stable head is no faster: prefix caching is off, or the prefix is evicted or shorter than a block."
    )


def _gap_figures(seen: Round) -> dict[str, float | None]:
    gaps = seen.gaps
    return {
        "median_seconds": median(gaps) if gaps else None,
        "p99_seconds": percentile(gaps, 0.99),
        "longest_seconds": max(gaps, default=None),
    }


def _jitter_said(figures: dict[str, Any], long_tokens: int) -> str:
    before, after = (figures[name]["longest_seconds"] for name in ("alone", "beside a long prompt"))
    if before is None or after is None:
        return "There are no gaps to compare."
    if after < 2 * before:
        return f"A prompt of {long_tokens:,} tokens does not disturb streams here."
    return (
        f"A prompt of {long_tokens:,} tokens stretches the longest gap from {seconds_text(before)} to "
        f"{seconds_text(after)}. A smaller --max-num-batched-tokens cuts it into shorter steps: restart with one "
        "and run this again with --before and this report."
    )


def _compared(earlier: dict[str, Any], figures: dict[str, Any]) -> str:
    name = "beside a long prompt"
    try:
        before = float(earlier["exercises"]["jitter"][name]["longest_seconds"])
        after = float(figures[name]["longest_seconds"])
    except (KeyError, TypeError, ValueError):
        return "The earlier report holds no jitter to compare with."
    return f"Longest gap beside a long prompt: {seconds_text(before)} before, {seconds_text(after)} now."


def _step_text(step: Step) -> str:
    parts = [f"{step.tokens_per_second:,.0f} tokens/s"]
    if step.ttft_mean_seconds is not None:
        parts.append(f"TTFT {seconds_text(step.ttft_mean_seconds)}")
    if step.itl_mean_seconds is not None:
        parts.append(f"ITL {seconds_text(step.itl_mean_seconds)}")
    if step.limit != "unknown":
        parts.append(step.limit)
    return ", ".join(parts)


def _step_figures(step: Step) -> dict[str, Any]:
    return {
        "concurrency": step.concurrency,
        "requests": step.requests,
        "tokens_per_second": step.tokens_per_second,
        "ttft_mean_seconds": step.ttft_mean_seconds,
        "ttft_p95_seconds": step.ttft_p95_seconds,
        "itl_mean_seconds": step.itl_mean_seconds,
        "itl_p99_seconds": step.itl_p99_seconds,
        "limit": step.limit,
    }
