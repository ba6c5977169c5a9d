"""Ollama's own API, which splits a request into loading, prefill and decode where its OpenAI one does not."""

import json

from watchdog.http.endpoint import Endpoint
from watchdog.http.post import Poster
from watchdog.probe.stream import Split, ollama_split


class OllamaAccount:
    """Asks `/api/generate` of one server; its URL ends in that path."""

    def __init__(self, endpoint: Endpoint, model: str, deadline_seconds: float) -> None:
        self._poster = Poster(endpoint)
        self._model = model
        self._deadline_seconds = deadline_seconds

    def __call__(self, prompt: str, output_tokens: int) -> Split | None:
        """The split of one request; None where the server gives none. Never raises."""
        asked = {
            "model": self._model,
            "prompt": prompt,
            "stream": False,
            "options": {"num_predict": output_tokens, "temperature": 0.0},
        }
        answer = self._poster.post(json.dumps(asked).encode(), self._deadline_seconds)
        if not answer.accepted:
            return None
        try:
            return ollama_split(json.loads(answer.content))
        except (ValueError, RecursionError):
            return None
