"""What people read in Slack, PagerDuty and Opsgenie: our templates, rendered by the real Alertmanager."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.contract.programs import ROOT, Alertmanager, run
from tests.contract.test_real_alertmanager import Watched, firing
from tests.pagers import Inbox, Post, Reply, running, senders
from tests.waiting import until

FOLDER = ROOT / "deploy" / "alertmanager"


def configuration(folder: Path, inbox: str) -> dict[str, Any]:
    """The example with our own loopback in the place of the three services, and everything to all of them."""
    example: dict[str, Any] = yaml.safe_load((FOLDER / "receivers.yml").read_text())
    (folder / "key").write_text("k")
    (folder / "slack").write_text(f"{inbox}/slack")
    slack, pagerduty, opsgenie = example["receivers"]
    slack["slack_configs"][0]["api_url_file"] = str(folder / "slack")
    pagerduty["pagerduty_configs"][0] |= {
        "routing_key_file": str(folder / "key"),
        "url": f"{inbox}/pagerduty",
    }
    opsgenie["opsgenie_configs"][0] |= {"api_key_file": str(folder / "key"), "api_url": f"{inbox}/opsgenie/"}
    example["templates"] = [str(FOLDER / "people.tmpl")]
    names = [each["name"] for each in example["receivers"]]
    example["route"] |= {"group_wait": "100ms", "group_interval": "1s"}
    example["route"]["routes"] = [{"receiver": name, "continue": True} for name in names]
    return example


def of(posts: list[Post], service: str) -> list[Any]:
    return [post.json for post in posts if post.path.startswith(f"/{service}")]


def test_the_receivers_are_accepted_by_amtool() -> None:
    assert "SUCCESS" in run("amtool", "check-config", str(FOLDER / "receivers.yml"))


def test_people_read_the_cause_what_to_do_and_links_that_open(tmp_path: Path) -> None:
    # A model named so would call everybody in a channel, or hide an address behind words.
    hostile = '<!channel> <http://evil.example|click> "q"'
    one = replace(firing(model_name=hostile), runbook="docs/causes.md")
    accepted = Reply(202, b'{"status": "success", "result": "ok", "requestId": "1"}')
    with Inbox(lambda post: Reply(200, b"ok") if post.path == "/slack" else accepted) as inbox:
        given = configuration(tmp_path, inbox.url)
        with Alertmanager(tmp_path / "alertmanager", inbox.url, given) as real:
            sender = senders(
                {"urls": [real.url], "resend_seconds": 1},
                external_url="http://w.example",
                dashboard_url="http://grafana.example/d/x?var-target={target}&var-model={model_name}",
            )
            with running(sender), Watched(sender) as watched:
                watched.incidents = (one,)
                posts = until(lambda: all(of(inbox.posts, each) for each in NAMES) and list(inbox.posts))
    [slack] = of(posts, "slack")[0]["attachments"]
    pagerduty, opsgenie = of(posts, "pagerduty")[0], of(posts, "opsgenie")[0]
    cause, remedy = one.cause, "--max-model-len 8192"
    texts = [slack["text"], pagerduty["payload"]["custom_details"]["firing"], opsgenie["description"]]
    for text in texts:
        assert cause in text
        assert remedy in text
        assert "http://w.example/incidents/kv-pool-exhausted/gpu-0/" in text
        assert "http://w.example/rules/kv-pool-exhausted" in text
        # What a server is called is part of an address, never words of the message.
        assert "http://grafana.example/d/x?var-target=gpu-0&var-model=%3C%21channel%3E" in text
    for title in [slack["title"], pagerduty["payload"]["summary"], opsgenie["message"]]:
        assert title.startswith("CRITICAL: The KV cache is full")
    assert "<!channel>" not in slack["text"]
    assert "<http://evil" not in slack["text"]
    assert "&lt;!channel&gt;" in slack["text"]
    assert slack["title_link"].startswith("http://w.example/incidents/")
    assert pagerduty["payload"]["severity"] == "critical"
    assert opsgenie["priority"] == "P1"
    assert "<no value>" not in json.dumps([post.json for post in posts])


NAMES = ("slack", "pagerduty", "opsgenie")
