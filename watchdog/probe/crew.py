"""Many streams at once against one server, while its page is read beside them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from watchdog.http.endpoint import Endpoint
from watchdog.probe.stream import CompletionStreams, Question, Streamed

MOST_STREAMS = 512


@dataclass(slots=True)
class Round:
    """What a number of questions came to; seconds from the first question to the last answer."""

    seconds: float = 0.0
    answers: list[Streamed] = field(default_factory=list)

    @property
    def first_tokens(self) -> list[float]:
        """The seconds to first token of what was answered."""
        return [each.first_token_seconds or 0.0 for each in self.answers if each.answered]

    @property
    def gaps(self) -> list[float]:
        """All gaps between tokens."""
        return [gap for each in self.answers for gap in each.gaps]

    @property
    def tokens(self) -> int:
        """Output tokens: as the server counted, else one an event."""
        return sum(
            each.output_tokens if each.output_tokens is not None else len(each.gaps) + 1
            for each in self.answers
            if each.answered
        )

    @property
    def failures(self) -> list[str]:
        """Why some have no answer."""
        return [each.detail for each in self.answers if not each.answered]


class Crew:
    """Asks one endpoint questions, so many at a time; `tick` is called about once a second meanwhile."""

    def __init__(self, endpoint: Endpoint, deadline_seconds: float, tick: Callable[[], None]) -> None:
        self._endpoint = endpoint
        self._deadline_seconds = deadline_seconds
        self._tick = tick
        self._idle: SimpleQueue[CompletionStreams] = SimpleQueue()
        self._ticked_at = 0.0

    def run(self, questions: Sequence[Question], concurrency: int) -> Round:
        """The answers to these, in any order; raises KeyboardInterrupt once those under way have been ended."""
        found = Round()
        began = time.monotonic()
        self._tick()
        streams = min(concurrency, MOST_STREAMS)
        with ThreadPoolExecutor(streams, thread_name_prefix="lab") as threads:
            waiting: set[Future[Streamed]] = {threads.submit(self._ask, each) for each in questions}
            try:
                while waiting:
                    done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
                    found.answers += [each.result() for each in done]
                    self._tick_when_due()
            except KeyboardInterrupt:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        found.seconds = time.monotonic() - began
        self._tick()
        return found

    def close(self) -> None:
        """Closes every connection."""
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _ask(self, question: Question) -> Streamed:
        try:
            streams = self._idle.get_nowait()
        except Empty:
            streams = CompletionStreams(self._endpoint)
        answer = streams.ask(question, self._deadline_seconds)
        self._idle.put(streams)
        return answer

    def _tick_when_due(self) -> None:
        now = time.monotonic()
        if now - self._ticked_at >= 1.0:
            self._ticked_at = now
            self._tick()
