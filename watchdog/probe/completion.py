"""One completion of one token, asked of a server under one deadline: answered, late, or refused."""

import json
from enum import StrEnum

from watchdog.http.endpoint import Endpoint
from watchdog.http.post import Poster

# Short, and the same each time: what is asked must cost next to nothing.
PROMPT = "1"
MARK = "vllm-watchdog-probe"
"""What every request of ours carries, as its user and in its request id: a server's log tells it from traffic."""


class Outcome(StrEnum):
    """What came of a completion: a token, nothing in time, or an answer that is none (a status, no connection)."""

    ANSWERED = "answered"
    LATE = "late"
    REFUSED = "refused"


class CompletionProbe:
    """Asks one endpoint for completions, one at a time; its URL ends in /v1/completions."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._poster = Poster(endpoint)

    def ask(self, model: str, deadline_seconds: float) -> Outcome:
        """One token of this model; never raises, and takes the deadline's time at most."""
        asked = {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0.0, "user": MARK}
        answer = self._poster.post(json.dumps(asked).encode(), deadline_seconds)
        if answer.accepted:
            return Outcome.ANSWERED
        return Outcome.LATE if answer.timed_out else Outcome.REFUSED

    def close(self) -> None:
        """Ends a completion under way, from another thread, and refuses further ones."""
        self._poster.abort()
