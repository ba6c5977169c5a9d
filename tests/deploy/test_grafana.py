"""The dashboards: well-formed, every query valid, and none empty on recordings of real servers."""

import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from .past import Past, prometheus_of_the_past

Panel = dict[str, Any]

UIDS = {"vllm-server.json": "vllm-watchdog-server", "vllm-fleet.json": "vllm-watchdog-fleet"}
# What Grafana puts in; a server that suffers, and every server.
SERVER = {
    "instance": "watchdog:9847",
    "target": "surge",
    "model_name": ".*",
    "engine": ".*",
    "vllm": "surge:8000",
}
FLEET = {"instance": ".*", "model_name": ".*"}
CHOICES = {"vllm-server.json": SERVER, "vllm-fleet.json": FLEET}


@pytest.fixture(scope="module")
def dashboards(root: Path) -> dict[str, dict[str, Any]]:
    folder = root / "deploy" / "grafana"
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def panels(dashboard: dict[str, Any]) -> Iterator[Panel]:
    for panel in dashboard["panels"]:
        yield from [panel, *panel.get("panels", [])]


def queries(dashboard: dict[str, Any]) -> Iterator[tuple[Panel, str]]:
    for panel in panels(dashboard):
        for target in panel.get("targets", []):
            yield panel, target["expr"]


def filled_in(query: str, choices: dict[str, str], range_seconds: int) -> str:
    """The query as Grafana sends it."""
    query = query.replace("$__rate_interval", "30s").replace("$__range", f"{range_seconds}s")
    query = re.sub(r"\$(\w+)", lambda match: choices[match[1]], query)
    assert "$" not in query, query
    return query


def test_each_dashboard_has_its_stable_uid_and_a_data_source_to_choose(
    dashboards: dict[str, dict[str, Any]],
) -> None:
    assert {name: dashboard["uid"] for name, dashboard in dashboards.items()} == UIDS
    for dashboard in dashboards.values():
        first = dashboard["templating"]["list"][0]
        assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
        assert dashboard["schemaVersion"] >= 39
        sources = re.findall(r'"uid": "([^"]+)"', json.dumps([*dashboard["panels"], dashboard["templating"]]))
        assert set(sources) == {"${datasource}"}


def test_each_panel_says_what_it_shows_and_lies_on_no_other(dashboards: dict[str, dict[str, Any]]) -> None:
    for dashboard in dashboards.values():
        seen: set[tuple[int, int]] = set()
        identities = [panel["id"] for panel in panels(dashboard)]
        assert len(identities) == len(set(identities))
        for panel in panels(dashboard):
            assert panel["title"]
            assert panel["type"] == "row" or panel["description"], panel["title"]
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            covered = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not covered & seen, panel["title"]
            seen |= covered


def test_every_query_is_promql_and_names_only_variables_that_exist(
    dashboards: dict[str, dict[str, Any]],
) -> None:
    for dashboard in dashboards.values():
        known = {variable["name"]: ".*" for variable in dashboard["templating"]["list"]}
        expressions = [query for _, query in queries(dashboard)]
        expressions += [each["expr"] for each in dashboard["annotations"]["list"] if "expr" in each]
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                match = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])
                assert match, variable
                expressions.append(match[1])
        for expression in expressions:
            promql_parser.parse(filled_in(expression, known, 3600))


def test_links_lead_to_dashboards_that_exist(dashboards: dict[str, dict[str, Any]]) -> None:
    for dashboard in dashboards.values():
        linked = set(re.findall(r"/d/([\w-]+)", json.dumps(dashboard)))
        assert linked <= set(UIDS.values())
        assert linked


def test_every_panel_leads_to_the_watchdogs_page_of_what_it_shows(
    dashboards: dict[str, dict[str, Any]],
) -> None:
    for name, page in (
        ("vllm-server.json", "${watchdog}/?target=${target:percentencode}"),
        ("vllm-fleet.json", "${watchdog}/"),
    ):
        panels = [each for each in dashboards[name]["panels"] if each["type"] != "row"]
        assert {link["url"] for each in panels for link in each["links"]} == {page}
        assert all(each["links"] for each in panels)
    of_one = [
        link["url"]
        for each in dashboards["vllm-fleet.json"]["panels"]
        for link in each.get("fieldConfig", {}).get("defaults", {}).get("links", ())
    ]
    assert "${watchdog}/?target=${__field.labels.target}" in of_one


@pytest.fixture(scope="module")
def past(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    recordings = root / "tests" / "recordings"
    chosen = {
        "surge": recordings / "traffic-surge.jsonl.xz",
        "full": recordings / "v0.8.5-V0-kv-pool-exhausted.jsonl.xz",
        "gone": recordings / "restart.jsonl.xz",
    }
    # In the midst of the surge, and of the other servers' troubles.
    with prometheus_of_the_past(tmp_path_factory.mktemp("prometheus"), chosen, end_seconds=75) as past:
        yield past


def has_a_value(series: list[dict[str, Any]]) -> bool:
    values = [value for each in series for _, value in each.get("values", [each.get("value")])]
    return any(math.isfinite(float(value)) for value in values)


@pytest.mark.parametrize("name", sorted(UIDS))
def test_no_panel_is_empty_on_recordings_of_real_servers(
    dashboards: dict[str, dict[str, Any]], past: Past, name: str
) -> None:
    empty = []
    for panel, query in queries(dashboards[name]):
        expression = filled_in(query, CHOICES[name], int(past.end - past.begin))
        is_instant = panel["type"] in {"stat", "table", "bargauge"}
        series = past.instant(expression) if is_instant else past.range(expression)
        if not has_a_value(series):
            empty.append(f"{panel['title']}: {expression}")
    assert not empty, "\n".join(empty)


@pytest.mark.parametrize("name", sorted(UIDS))
def test_each_variable_offers_something_to_choose(
    dashboards: dict[str, dict[str, Any]], past: Past, name: str
) -> None:
    for variable in dashboards[name]["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match
        series = past.instant(filled_in(match[1], CHOICES[name], 60))
        assert {each["metric"].get(match[2]) for each in series} - {None}, variable["name"]


def test_findings_are_annotated(dashboards: dict[str, dict[str, Any]], past: Past) -> None:
    for name, dashboard in dashboards.items():
        findings = [each for each in dashboard["annotations"]["list"] if "expr" in each]
        assert findings
        series = [past.range(filled_in(each["expr"], CHOICES[name], 60)) for each in findings]
        assert any(map(has_a_value, series)), name


def test_a_finding_that_cannot_be_judged_is_grey(dashboards: dict[str, dict[str, Any]], past: Past) -> None:
    [(panel, query)] = [
        each for each in queries(dashboards["vllm-server.json"]) if each[0]["title"] == "Findings"
    ]
    colours = {
        value: shown["color"]
        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
        for value, shown in mapping["options"].items()
    }
    assert colours == {"-1": "#8e8e8e", "0": "transparent", "1": "red"}
    stood, _ = filled_in(query, {**SERVER, "target": "full"}, 60).split(" and on (rule) ")
    # V0 shows no inputs of several kinds: rules about them are blind, whatever else fires.
    assert {value for each in past.range(stood) for _, value in each["values"]} == {"-1", "1"}
    # Nothing is left of the first minute but that it was: what fired in it and does so no more is 0.
    over = stood.replace("[60s]", "[600s]").replace("== 1", "== 1 < 0")
    assert {value for each in past.range(over) for _, value in each["values"]} == {"-1", "0"}
