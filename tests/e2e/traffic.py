"""Requests that come at a rate, as users send them: each waits for its own answer and for nobody else's."""

import random
import threading
import time
from types import TracebackType
from typing import Any, Self

import requests

from tests.e2e.model import VOCABULARY
from tests.e2e.vllm_server import MODEL_NAME

REQUEST_SECONDS = 300.0
SHARED_WORDS, OWN_WORDS = 150, 30
_TEXT = "the server reads a page and says which flag to change what it costs and how long the queue has been"
_WORDS = _TEXT.split()


class Traffic:
    """So many requests a second until the block ends; `failed` counts those that no answer came for.

    Prompts share a head and end in words that no other has. Random weights give each token alike, so a set of tokens
    that end an answer gives answers of some `output_tokens` on average, and none is longer than `most_tokens`.
    """

    def __init__(
        self,
        url: str,
        per_second: float,
        output_tokens: int = 40,
        most_tokens: int = 240,
        shared_words: int = SHARED_WORDS,
    ) -> None:
        self.failed = 0
        self._url = url
        self._per_second = per_second
        self._most_tokens = most_tokens
        self._chance = random.Random()
        self._shared = " ".join(random.Random(7).choices(_WORDS, k=shared_words))
        self._ends = random.Random(7).sample(range(VOCABULARY), VOCABULARY // output_tokens)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _send_all(self) -> None:
        due = time.monotonic()
        while not self._over.is_set():
            own = " ".join(self._chance.choices(_WORDS, k=OWN_WORDS))
            threading.Thread(target=self._send, args=(f"{self._shared} {own}",), daemon=True).start()
            due += self._chance.expovariate(self._per_second)
            self._over.wait(max(0.0, due - time.monotonic()))

    def _send(self, prompt: str) -> None:
        body: dict[str, Any] = {
            "model": MODEL_NAME,
            "prompt": prompt,
            "max_tokens": self._most_tokens,
            "temperature": 1.0,
            "ignore_eos": True,
            "stop_token_ids": self._ends,
        }
        with requests.Session() as session:
            session.trust_env = False
            try:
                session.post(
                    f"{self._url}/v1/completions", json=body, timeout=REQUEST_SECONDS
                ).raise_for_status()
            except requests.RequestException:
                self.failed += 1
