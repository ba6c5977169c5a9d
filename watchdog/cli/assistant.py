"""What an assistant reads: short texts about servers, incidents, rules and recordings; it can change nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from watchdog.cli.replay import as_text, replay_file
from watchdog.errors import RecordingError, WatchdogError
from watchdog.http.endpoint import Endpoint
from watchdog.http.get import Answer, Getter
from watchdog.http.url import redact_url
from watchdog.rule.rule import Rule
from watchdog.rule.rule_set import RuleSet
from watchdog.text import clean, nearest, one_line

MOST_CHARACTERS = 6000
"""Of an answer: what an assistant reads costs its user, and buries what was asked."""
MOST_INCIDENTS = 20
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 4 * 1024 * 1024
_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".prom")


class AssistantError(WatchdogError):
    """A question that cannot be answered; the text says what to ask or start instead."""


class Assistant:
    """Answers from a running service, the rules, and one folder of recordings (None: no recordings)."""

    def __init__(self, endpoint: Endpoint, rules: RuleSet, recordings: Path | None) -> None:
        self._getter = Getter(endpoint, what="answer")
        self._url = self._getter.url.rstrip("/")
        self._rules = rules
        self._recordings = recordings

    def diagnose(self, target: str = "", verbose: bool = False) -> str:
        """What is wrong now, why and what to do, on all servers or on the one of that name."""
        wanted = {"format": "text"} | ({"target": target} if target else {})
        return self._short(
            self._ask("/diagnose", wanted | ({"verbose": "true"} if verbose else {})), "ask for one target"
        )

    def incidents(self, since: str = "24h", state: str = "", rule: str = "") -> str:
        """The incidents since an age such as 24h or a time, the newest first, one a line."""
        wanted = {"since": since, "state": state, "rule": rule, "limit": str(MOST_INCIDENTS)}
        text = self._ask("/incidents", {name: value for name, value in wanted.items() if value})
        found = json.loads(text)
        lines = [_incident_line(each) for each in found["incidents"]]
        if len(lines) == MOST_INCIDENTS:
            lines.append(
                f"These are the newest {MOST_INCIDENTS}: narrow it by state, rule or a shorter time."
            )
        return self._short("\n".join(lines) or "No incident.", "narrow it by state, rule or a shorter time")

    def explain(self, rule: str) -> str:
        """What a rule looks at, what it says, what to do and what will not help."""
        found = self._rules.find(rule)
        if found is None:
            known = [each.id for each in self._rules.rules]
            hint = nearest(rule, known) or f"there are {', '.join(known)}"
            raise AssistantError(f"no rule is called {one_line(rule, 100)}; {hint}")
        return self._short("\n".join(_rule_lines(found)), f"the rest: vllm-watchdog rules show {found.id}")

    def replay(self, recording: str = "") -> str:
        """What would have been said over a recording; without a name, which recordings there are."""
        folder = self._recordings
        if folder is None:
            raise AssistantError("no recordings are shared: start `vllm-watchdog mcp` with --recordings DIR")
        names = sorted(each.name for each in folder.iterdir() if each.name.endswith(_SUFFIXES))
        if not recording:
            return self._short("\n".join(names) or "The folder has no recording.", "name one")
        # Only names that the folder has: a path would lead out of it.
        if recording not in names:
            hint = nearest(recording, names) or "ask without a name for a list"
            raise AssistantError(f"no recording is called {one_line(recording, 100)}; {hint}")
        path = folder / recording
        if not path.resolve().is_relative_to(folder.resolve()):
            raise AssistantError(f"{recording} leads out of the folder")
        try:
            read, story = replay_file(path, None, self._rules)
        except RecordingError as error:
            raise AssistantError(str(error)) from None
        return self._short(
            "\n".join(as_text(Path(recording), read, story)), "the rest: vllm-watchdog replay FILE"
        )

    def close(self) -> None:
        """Closes the connection to the service."""
        self._getter.close()

    def _ask(self, path: str, wanted: dict[str, str]) -> str:
        url = f"{self._url}{path}?{urlencode(wanted, quote_via=quote)}"
        try:
            answer = self._getter.get(url, "*/*", _ANSWER_SECONDS, _ANSWER_BYTES, any_status=True)
        except Exception as error:  # whatever the libraries raise
            why = self._getter.failure(error, _ANSWER_SECONDS).detail
            raise AssistantError(
                f"{redact_url(self._url)} does not answer ({why}): "
                "is `vllm-watchdog serve` running, and is --url right?"
            ) from None
        if answer.status != 200:
            raise AssistantError(_refusal(answer))
        return answer.body.decode("utf-8", "replace")

    def _short(self, text: str, more: str) -> str:
        cleaned = clean(text).strip()
        if len(cleaned) <= MOST_CHARACTERS:
            return cleaned
        return f"{cleaned[:MOST_CHARACTERS].rpartition(chr(10))[0]}\n... shortened; {more}."


def _refusal(answer: Answer) -> str:
    """What the service says of a question that it does not take."""
    try:
        told: Any = json.loads(answer.body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        told = f"the service answers with status {answer.status}"
    return one_line(str(told))


def _incident_line(incident: dict[str, Any]) -> str:
    where = " ".join(filter(None, incident["labels"].values()))
    times = f"since {incident['since']}" + (
        f", over at {incident['resolved_at']}" if incident["resolved_at"] else ""
    )
    first = next((one["action"] for one in incident["remedies"]), "")
    to_do = f" To do: {first}" if first and not incident["resolved_at"] else ""
    return (
        f"{incident['severity'].upper()} {incident['state']} {times}: {incident['title']} "
        f"({incident['rule']}, {where}). {incident['cause']}{to_do}"
    )


def _rule_lines(rule: Rule) -> Iterator[str]:
    yield f"{rule.id} ({rule.severity}): {rule.title}"
    yield f"Holds for {rule.for_seconds:g} s before it fires. All of these hold:"
    yield from (f"- {_flat(clause.text)}" for clause in rule.when)
    if rule.unless:
        yield "None of these does:"
        yield from (f"- {_flat(clause.text)}" for clause in rule.unless)
    if rule.parameters:
        yield "Figures: " + ", ".join(
            f"{name} {each.value:g} {each.unit}" for name, each in rule.parameters.items()
        )
    yield f"It says: {_flat(rule.cause)}"
    if rule.explains:
        yield f"It explains: {', '.join(rule.explains)}"
    yield "What to do:"
    for each in rule.remedies:
        flag = f"{each.flag}: " if each.flag else ""
        yield f"- {flag}{_flat(each.action)}"
    for text in rule.unhelpful:
        yield f"Will not help: {_flat(text)}"


def _flat(text: str) -> str:
    return " ".join(text.split())
