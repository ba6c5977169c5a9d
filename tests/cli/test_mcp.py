"""The tools of an assistant, asked by the SDK's own client over standard input and output."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.a_service import a_service, healthy, snapshot
from tests.a_site import a_site
from tests.commands import command
from tests.places import DOCS, RECORDINGS, ROOT
from watchdog.cli.assistant import MOST_CHARACTERS

sdk = pytest.importorskip("mcp")

NAME = "kv-pool-exhausted.jsonl.xz"


def ask(url: str, recordings: Path | None, questions: Callable[[Any], Awaitable[Any]]) -> Any:
    more = ["--recordings", str(recordings)] if recordings else []
    server = sdk.StdioServerParameters(
        command=sys.executable,
        args=["-m", "watchdog", "mcp", "--url", url, *more],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def session() -> Any:
        async with sdk.Client(server, read_timeout_seconds=30) as client:
            return await questions(client)

    return asyncio.run(session())


async def told(client: Any, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    text = "".join(each.text for each in answer.content)
    assert answer.is_error is text.startswith("Error executing tool")
    assert len(text) <= MOST_CHARACTERS + 200
    return text.replace(f"Error executing tool {tool}:", "ERROR") if answer.is_error else str(text)


def test_an_assistant_gets_short_answers_and_can_only_read(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shutil.copy(RECORDINGS / NAME, shared)
    (tmp_path / "secret.jsonl").write_text("{}\n")

    async def questions(client: Any) -> dict[str, str]:
        tools = (await client.list_tools()).tools
        assert {each.name for each in tools} == {"diagnose", "incidents", "explain", "replay"}
        assert all(each.annotations.read_only_hint and each.description for each in tools)
        return {
            "all": await told(client, "diagnose"),
            "one": await told(client, "diagnose", target="chat", verbose=True),
            "typo": await told(client, "diagnose", target="chta"),
            "incidents": await told(client, "incidents", state="firing"),
            "nonsense": await told(client, "incidents", since="yesterday"),
            "explain": await told(client, "explain", rule="kv-pool-exhausted"),
            "no rule": await told(client, "explain", rule="kv-pool-exhaustd"),
            "recordings": await told(client, "replay"),
            "replay": await told(client, "replay", recording=NAME),
            "outside": await told(client, "replay", recording="../secret.jsonl"),
        }

    with a_site(a_service(tmp_path, snapshot(), healthy())) as site:
        answers = ask(f"http://127.0.0.1:{site.port}", shared, questions)
    assert answers["all"].startswith("CRITICAL  kv-pool-exhausted on chat")
    assert "evidence" in answers["one"]
    assert answers["typo"] == "ERROR no target has this name; did you mean `chat`?"
    assert answers["incidents"].count("firing since") == 2
    assert "To do: Shorten the longest request the server takes." in answers["incidents"]
    assert answers["nonsense"].startswith("ERROR since must be RFC 3339")
    assert "- waiting_recent_min > 0" in answers["explain"]
    assert "What to do:" in answers["explain"]
    assert "did you mean `kv-pool-exhausted`?" in answers["no rule"]
    assert answers["recordings"] == NAME
    assert "kv-pool-exhausted" in answers["replay"]
    assert answers["outside"].startswith("ERROR no recording is called ../secret.jsonl")


def test_without_a_service_the_answer_says_what_to_start() -> None:
    async def questions(client: Any) -> tuple[str, str]:
        return await told(client, "diagnose"), await told(client, "replay")

    diagnosed, replayed = ask("http://127.0.0.1:1", None, questions)
    assert "is `vllm-watchdog serve` running, and is --url right?" in diagnosed
    assert "start `vllm-watchdog mcp` with --recordings DIR" in replayed


def test_without_the_optional_part_the_command_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    ended = command(capsys, "mcp")
    assert ended.code == 2
    assert "pip install 'vllm-watchdog[mcp]'" in ended.err


def test_the_document_starts_it_with_options_that_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    block = (DOCS / "assistant.md").read_text().partition("```json")[2].partition("```")[0]
    [server] = json.loads(block)["mcpServers"].values()
    assert (server["command"], server["args"][0]) == ("vllm-watchdog", "mcp")
    offered = command(capsys, "mcp", "--help").out
    assert [each for each in server["args"] if each.startswith("--") and each not in offered] == []
