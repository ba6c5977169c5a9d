"""Writes the files under deploy/ that repeat another one: `python deploy/generate.py [--check]`.

One source each: alert rules in deploy/prometheus/rules.yaml, dashboards in deploy/grafana, the keys of the settings in
watchdog/settings.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

from watchdog.settings.model import Settings

DEPLOY = Path(__file__).resolve().parent
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARDS = DEPLOY / "grafana"
CHART_FILES = DEPLOY / "helm" / "vllm-watchdog" / "files"

VALUES_SCHEMA = DEPLOY / "helm" / "vllm-watchdog" / "values.schema.json"

PRINTED_FROM = "# Made from deploy/prometheus/rules.yaml by deploy/generate.py: change that file.\n"
PROMETHEUS_RULE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: vllm-watchdog
  labels:
    app.kubernetes.io/name: vllm-watchdog
    # Most Prometheus objects select rules by a label such as `release`: set it to yours.
    release: kube-prometheus-stack
spec:
"""


def wanted() -> dict[Path, str]:
    """What each generated file must hold."""
    rules = RULES.read_text(encoding="utf-8")
    files = {
        DEPLOY / "kubernetes" / "components" / "prometheus-rule" / "prometheusrule.yaml": PRINTED_FROM
        + PROMETHEUS_RULE
        + indent(rules, "  "),
        CHART_FILES / "rules.yaml": PRINTED_FROM + rules,
    }
    for dashboard in sorted(DASHBOARDS.glob("*.json")):
        files[CHART_FILES / dashboard.name] = dashboard.read_text(encoding="utf-8")
    files[VALUES_SCHEMA] = values_schema()
    return files


def values_schema() -> str:
    """The schema of the chart's values, in which a key of the settings that does not exist is refused."""
    schema = json.loads(VALUES_SCHEMA.read_text(encoding="utf-8"))
    settings = Settings.model_json_schema()
    known = _keys(settings, settings["$defs"])
    schema["properties"]["config"] = known
    sidecar = schema["properties"]["sidecar"]["properties"]
    sidecar["config"] = known
    sidecar["target"] = known["properties"]["targets"]["items"]
    return json.dumps(schema, indent=2) + "\n"


def _keys(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Which keys there are, and no more: what a value may be, and how else it may be written, the settings know."""
    if "$ref" in schema:
        return _keys(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "properties" in schema:
        properties = {name: _keys(each, definitions) for name, each in schema["properties"].items()}
        return {"properties": properties, "additionalProperties": False}
    if "items" in schema:
        return {"items": _keys(schema["items"], definitions)}
    if isinstance(schema.get("additionalProperties"), dict):
        return {"additionalProperties": _keys(schema["additionalProperties"], definitions)}
    return {}


def stale(files: dict[Path, str]) -> list[Path]:
    """Files that are missing, differ, or have no source any more."""
    differing = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    return differing + [path for path in sorted(CHART_FILES.glob("*")) if path not in files]


def main(arguments: list[str]) -> int:
    """Write what is stale, or with --check only name it; 1 if --check found any."""
    files = wanted()
    paths = stale(files)
    if arguments == ["--check"]:
        for path in paths:
            sys.stderr.write(f"{path.relative_to(DEPLOY.parent)} is not in step: run `make generate`\n")
        return 1 if paths else 0
    for path in paths:
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
