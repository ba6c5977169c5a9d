"""Generated files are in step with their source; promtool accepts the alert rules inside objects."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .objects import of_kind, read
from .programs import Programs, run


def test_generated_files_are_in_step_with_their_source(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, root / "deploy" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_accepts_the_rules_inside_every_prometheus_rule(
    programs: Programs, root: Path, tmp_path: Path
) -> None:
    chart = root / "deploy" / "helm" / "vllm-watchdog"
    rendered = [
        programs.kustomize(root / "deploy" / "kubernetes" / "examples" / "sidecar"),
        programs.template(chart, "--set", "prometheusRule.enabled=true"),
    ]
    source = yaml.safe_load((root / "deploy" / "prometheus" / "rules.yaml").read_text())
    for text in rendered:
        (item,) = of_kind(read(text), "PrometheusRule")
        assert item["spec"] == source
        rules = tmp_path / "rules.yaml"
        rules.write_text(yaml.safe_dump(item["spec"]))
        run(["promtool", "check", "rules", "--lint-fatal", rules])
