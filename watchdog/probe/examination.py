"""A probe of one server: alive, streams, prefill against decode, one prefix twice; within a budget."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from watchdog.model import Finding, Severity
from watchdog.probe.budget import Budget, BudgetSpentError
from watchdog.probe.completion import CompletionProbe, Outcome
from watchdog.probe.counts import Counts
from watchdog.probe.judgement import (
    Life,
    Prefill,
    PrefixTwice,
    gap_finding,
    life_finding,
    life_of,
    prefill_of,
    prefix_findings,
    slow_parts,
)
from watchdog.probe.stream import CompletionStreams, Question, Split, Streamed

PROMPT_TOKENS = (200, 2000)
PREFIX_TOKENS = 1000
STREAM_TOKENS = 32
SHORT_OUTPUT_TOKENS = 12
# Common words, which most tokenizers keep as one token each.
_COMMON = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house"
)
_WORDS = _COMMON.split()


class Asked(NamedTuple):
    """What is asked how: a model, as a chat or not, under which deadline; `ignore_eos` only of vLLM."""

    model: str
    chat: bool = False
    deadline_seconds: float = 30.0
    ignore_eos: bool = False


@dataclass(slots=True)
class Examined:
    """All that a probe saw; None for what was not asked. `stopped` says why it ended early, empty where it did not."""

    life: Life = Life.LATE
    waited_seconds: float = 0.0
    streams: list[Streamed] = field(default_factory=list)
    prefill: Prefill | None = None
    lengths: dict[int, Streamed] = field(default_factory=dict)
    prefix: PrefixTwice | None = None
    prefix_word: str = "not asked"
    queue_seconds: float | None = None
    split: Split | None = None
    ceiling_tokens_per_second: float | None = None
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    stopped: str = ""
    cost: str = ""

    @property
    def kept(self) -> Streamed | None:
        """The stream that counts: the second, as the first pays for what was cold."""
        return self.streams[-1] if self.streams else None

    @property
    def time_went(self) -> dict[str, float]:
        """Seconds of the kept stream in queue, prefill and decode; the queue only where a page shows it."""
        stream = self.kept
        if stream is None or stream.first_token_seconds is None or stream.total_seconds is None:
            return {}
        first = stream.first_token_seconds
        queue = {} if self.queue_seconds is None else {"queue": min(self.queue_seconds, first)}
        return queue | {
            "prefill": first - sum(queue.values()),
            "decode": stream.total_seconds - first,
        }

    @property
    def worst(self) -> Severity | None:
        """The gravest severity found; None where nothing was."""
        found = [finding.severity for _, finding in self.findings]
        return next(
            (each for each in (Severity.CRITICAL, Severity.WARNING, Severity.INFO) if each in found), None
        )


class Examination:
    """Asks one server; `page` reads its metrics page now, None where there is none of vLLM.

    `account` asks for a prompt and so many tokens by an API that gives the server's own split; None where it has none.
    """

    def __init__(
        self,
        target: str,
        probe: CompletionProbe,
        streams: CompletionStreams,
        page: Callable[[], Counts | None],
        asked: Asked,
        budget: Budget,
        account: Callable[[str, int], Split | None] | None = None,
    ) -> None:
        self._target = target
        self._probe = probe
        self._streams = streams
        self._page = page
        self._asked = asked
        self._budget = budget
        self._account = account
        self._chance = random.Random()  # noqa: S311 - words of a prompt, no secret
        # Tokens a word takes, learned from the server's own counts.
        self._tokens_a_word = 1.2

    def run(self, max_prompt_tokens: int | None = None, ceiling: float | None = None) -> Examined:
        """Asks all there is to ask, and stops by itself where the budget or a queue says so."""
        found = Examined()
        try:
            self._alive(found)
            if found.life in {Life.ALIVE, Life.STALE_GAUGES}:
                self._stream(found)
                self._lengths(found, max_prompt_tokens)
                self._twice(found)
                self._own_account(found)
        except BudgetSpentError as spent:
            found.stopped = str(spent)
        found.ceiling_tokens_per_second = ceiling
        self._judge(found, ceiling)
        found.cost = self._budget.cost
        return found

    def _alive(self, found: Examined) -> None:
        before = self._page()
        self._take(2, before)
        began = time.monotonic()
        outcome = self._probe.ask(self._asked.model, self._asked.deadline_seconds)
        found.waited_seconds = time.monotonic() - began
        after = self._page()
        found.life = life_of(
            outcome is Outcome.ANSWERED,
            outcome is Outcome.REFUSED,
            before,
            self._moved(before, after) if outcome is Outcome.ANSWERED else after,
            began=before is None or bool(before["generation_tokens"]),
        )

    def _moved(self, before: Counts | None, after: Counts | None) -> Counts | None:
        """The page once it moved: counters follow a token by a moment, and never by seconds."""
        ends_at = time.monotonic() + 2.0
        while before and after and before.progress() == after.progress() and time.monotonic() < ends_at:
            time.sleep(0.1)
            after = self._page()
        return after

    def _stream(self, found: Examined) -> None:
        before = self._page()
        for _ in range(2):
            found.streams.append(self._ask(40, STREAM_TOKENS))
            if not found.streams[-1].answered:
                return
        after = self._page()
        if before and after:
            seconds, count = after.since(before, "queue_seconds"), after.since(before, "queue_requests")
            found.queue_seconds = seconds / count if seconds is not None and count else None

    def _lengths(self, found: Examined, max_prompt_tokens: int | None) -> None:
        wanted = sorted({*PROMPT_TOKENS, *((max_prompt_tokens,) if max_prompt_tokens else ())})
        for tokens in wanted:
            if max_prompt_tokens is not None and tokens > max_prompt_tokens:
                continue
            answer = self._ask(tokens, SHORT_OUTPUT_TOKENS)
            if answer.answered:
                found.lengths[answer.prompt_tokens or tokens] = answer
        points = [(tokens, each.first_token_seconds or 0.0) for tokens, each in found.lengths.items()]
        found.prefill = prefill_of(points)

    def _twice(self, found: Examined) -> None:
        prompt = self._prompt(PREFIX_TOKENS)
        before = self._page()
        first = self._ask_prompt(prompt, PREFIX_TOKENS, 1)
        middle = self._page()
        if not first.answered:
            return
        second = self._ask_prompt(prompt, PREFIX_TOKENS, 1)
        after = self._page()
        found.prefix = PrefixTwice(
            prompt_tokens=second.prompt_tokens,
            first=first,
            second=second,
            hit_tokens=after.since(middle, "prefix_hits") if middle and after else None,
            queried_tokens=after.since(before, "prefix_queries") if before and after else None,
            counts=after,
        )

    def _own_account(self, found: Examined) -> None:
        """The split by the server itself: in a stream's last event, or by an API of its own."""
        found.split = found.kept.split if found.kept else None
        if found.split is None and self._account is not None:
            self._take(PROMPT_TOKENS[0] + STREAM_TOKENS, None)
            found.split = self._account(self._prompt(PROMPT_TOKENS[0]), STREAM_TOKENS)

    def _judge(self, found: Examined, ceiling: float | None) -> None:
        found.findings.extend(self._findings(found, ceiling))

    def _findings(self, found: Examined, ceiling: float | None) -> Iterator[tuple[str, Finding]]:
        if found.stopped and not found.waited_seconds:
            return
        dead = life_finding(found.life, self._target, found.waited_seconds)
        if dead:
            yield dead
        if found.kept:
            yield from slow_parts(self._target, found.kept, found.queue_seconds, found.prefill, ceiling)
        if len(found.lengths) >= 2:
            grown = gap_finding(
                self._target, found.lengths[min(found.lengths)], found.lengths[max(found.lengths)]
            )
            if grown:
                yield grown
        if found.prefix:
            found.prefix_word, more = prefix_findings(self._target, found.prefix)
            yield from more

    def _ask(self, tokens: int, output_tokens: int) -> Streamed:
        return self._ask_prompt(self._prompt(tokens), tokens, output_tokens)

    def _ask_prompt(self, prompt: str, tokens: int, output_tokens: int) -> Streamed:
        self._take(tokens + output_tokens, self._page())
        asked = self._asked
        question = Question(asked.model, prompt, output_tokens, asked.chat, asked.ignore_eos)
        answer = self._streams.ask(question, asked.deadline_seconds)
        if answer.prompt_tokens:
            self._budget.settle(tokens + output_tokens, answer.prompt_tokens + (answer.output_tokens or 0))
            # The template of a chat adds some: long prompts tell best.
            if tokens >= 100 or len(prompt.split()) >= 30:
                self._tokens_a_word = answer.prompt_tokens / len(prompt.split())
        return answer

    def _take(self, tokens: int, page: Counts | None) -> None:
        self._budget.take(tokens, page["waiting"] if page else None)

    def _prompt(self, tokens: int) -> str:
        """A prompt of about so many tokens that begins like no other, so that no cache holds it."""
        return words_of(self._chance, tokens / self._tokens_a_word)


def words_of(chance: random.Random, count: float) -> str:
    """So many common words by chance, one at least."""
    return " ".join(chance.choice(_WORDS) for _ in range(max(1, round(count))))


def median_gap(stream: Streamed) -> float | None:
    """The median of the gaps of a stream; None where it has none."""
    return median(stream.gaps) if stream.gaps else None
