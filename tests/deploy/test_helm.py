"""The chart: linted, rendered over several values files, and the same containers as kustomize gives."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from watchdog.settings.model import load

from .objects import Object, named, of_kind, read, validate
from .programs import Programs, run

VALUES = ("", "fleet", "pods", "sidecar", "replicas", "prometheus")
ONLY_THE_SIDECAR = ("--set", "fleet.enabled=false,sidecar.enabled=true")


@pytest.fixture(scope="module")
def chart(root: Path) -> Path:
    return root / "deploy" / "helm" / "vllm-watchdog"


def values(chart: Path, name: str) -> list[str | Path]:
    return ["--values", chart / "ci" / f"{name}-values.yaml"] if name else []


@pytest.mark.parametrize("name", VALUES)
def test_the_chart_lints(programs: Programs, chart: Path, name: str) -> None:
    run([programs.helm, "lint", "--strict", chart, *values(chart, name)])


@pytest.mark.parametrize("name", VALUES)
def test_every_object_fits_its_schema(programs: Programs, chart: Path, name: str) -> None:
    objects = read(programs.template(chart, *values(chart, name)))
    assert objects
    for item in objects:
        validate(item)


def test_every_values_file_is_tried(chart: Path) -> None:
    names = {path.name.removesuffix("-values.yaml") for path in (chart / "ci").iterdir()}
    assert names == set(VALUES) - {""}


def test_a_misspelt_value_is_refused(programs: Programs, chart: Path) -> None:
    with pytest.raises(AssertionError, match="servicemonitor"):
        programs.template(chart, "--set", "servicemonitor.enabled=true")


def test_two_replicas_cannot_share_a_database(programs: Programs, chart: Path) -> None:
    with pytest.raises(AssertionError, match="cannot share one database"):
        programs.template(chart, "--set", "persistence.enabled=true,fleet.replicas=2")


def test_every_value_is_described_and_in_the_schema(chart: Path) -> None:
    text = (chart / "values.yaml").read_text()
    schema = yaml.safe_load((chart / "values.schema.json").read_text())
    missing = list(unknown_keys(yaml.safe_load(text), schema))
    assert not missing
    for switch in ("serviceMonitor", "podMonitor", "prometheusRule", "dashboards", "networkPolicy"):
        lines = text.partition(f"\n{switch}:\n")[2].splitlines()
        assert lines[0].startswith("  # -- "), switch
        assert "  enabled: false" in lines[:4], switch


def unknown_keys(default: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    if not isinstance(default, dict) or "properties" not in schema:
        return []
    found = [f"{path}{key}" for key in default if key not in schema["properties"]]
    for key in default.keys() & schema["properties"].keys():
        found += unknown_keys(default[key], schema["properties"][key], f"{path}{key}.")
    return found


@pytest.mark.parametrize(
    ("switch", "kind"),
    [
        ("serviceMonitor", "ServiceMonitor"),
        ("podMonitor", "PodMonitor"),
        ("prometheusRule", "PrometheusRule"),
        ("networkPolicy", "NetworkPolicy"),
    ],
)
def test_each_extra_is_off_until_enabled(programs: Programs, chart: Path, switch: str, kind: str) -> None:
    assert not of_kind(read(programs.template(chart)), kind)
    assert of_kind(read(programs.template(chart, "--set", f"{switch}.enabled=true")), kind)


def test_dashboards_are_those_of_the_repository(programs: Programs, chart: Path, root: Path) -> None:
    objects = read(programs.template(chart, "--set", "dashboards.enabled=true"))
    shown = {
        name: text
        for item in of_kind(objects, "ConfigMap")
        if item["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in item["data"].items()
    }
    sources = {path.name: path.read_text() for path in (root / "deploy" / "grafana").glob("*.json")}
    assert {name: text.rstrip() for name, text in shown.items()} == {
        name: text.rstrip() for name, text in sources.items()
    }


def test_settings_and_secrets_of_ones_own_are_mounted(programs: Programs, chart: Path) -> None:
    objects = read(programs.template(chart, *values(chart, "fleet")))
    pod = named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]
    assert {"name": "secrets", "secret": {"secretName": "vllm-watchdog"}} in pod["volumes"]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/etc/vllm-watchdog/secrets"]["readOnly"] is True
    objects = read(programs.template(chart, *values(chart, "replicas")))
    pod = named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]
    assert {volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume} == {
        "my-settings",
        "my-rules",
    }


def test_the_settings_that_the_chart_writes_load(programs: Programs, chart: Path, tmp_path: Path) -> None:
    for name in ("fleet", "sidecar"):
        for item in of_kind(read(programs.template(chart, *values(chart, name))), "ConfigMap"):
            if "watchdog.yaml" in item["data"]:
                config = tmp_path / f"{name}.yaml"
                config.write_text(item["data"]["watchdog.yaml"])
                load(config)


def test_changed_settings_roll_out_and_changed_rules_do_not(programs: Programs, chart: Path) -> None:
    def checksum(*arguments: str) -> str:
        objects = read(programs.template(chart, *arguments))
        template = named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum() != checksum("--set", "config.log.level=debug")
    assert checksum() == checksum("--set-string", "rules.mine\\.yaml=id: mine")


# What the two must agree on; the names of objects around the containers are each way's own.
def test_chart_and_kustomize_give_the_same_stand_alone_container(
    programs: Programs, chart: Path, root: Path
) -> None:
    by_kustomize = read(programs.kustomize(root / "deploy" / "kubernetes" / "base"))
    by_chart = read(programs.template(chart))
    pods = [
        named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]
        for objects in (by_kustomize, by_chart)
    ]
    assert pods[0]["containers"] == pods[1]["containers"]
    assert pods[0]["securityContext"] == pods[1]["securityContext"]
    assert volumes(pods[0]) == volumes(pods[1])


def test_chart_and_kustomize_give_the_same_sidecar(programs: Programs, chart: Path, root: Path) -> None:
    by_kustomize = read(programs.kustomize(root / "deploy" / "kubernetes" / "examples" / "sidecar"))
    pod = named(by_kustomize, "Deployment", "vllm")["spec"]["template"]["spec"]
    patch = yaml.safe_load(sidecar_patch(programs, chart))["spec"]["template"]["spec"]
    assert patch["initContainers"] == pod["initContainers"]
    ours = [each for each in pod["volumes"] if each["name"].startswith("vllm-watchdog")]
    assert volumes({"volumes": ours}) == volumes(patch)
    settings = [
        yaml.safe_load(named(objects, "ConfigMap", "vllm-watchdog-sidecar")["data"]["watchdog.yaml"])
        for objects in (by_kustomize, read(programs.template(chart, *ONLY_THE_SIDECAR)))
    ]
    assert settings[0] == settings[1]


def sidecar_patch(programs: Programs, chart: Path) -> str:
    objects = read(programs.template(chart, *ONLY_THE_SIDECAR))
    return str(named(objects, "ConfigMap", "vllm-watchdog-sidecar-patch")["data"]["patch.yaml"])


def test_what_is_known_of_the_server_reaches_the_sidecar(programs: Programs, chart: Path) -> None:
    objects = read(programs.template(chart, *values(chart, "sidecar")))
    patch = yaml.safe_load(named(objects, "ConfigMap", "vllm-watchdog-sidecar-patch")["data"]["patch.yaml"])
    (sidecar,) = patch["spec"]["template"]["spec"]["initContainers"]
    variables = {each["name"]: each.get("value", "") for each in sidecar["env"]}
    (target,) = load(None, {}, {"WATCHDOG_TARGETS": variables["WATCHDOG_TARGETS"]}).targets
    assert (target.gpu, target.slo.ttft_p95_seconds) == ("H100", 1.5)
    assert target.url == "http://127.0.0.1:8000/metrics"


def volumes(pod: Object) -> dict[str, str]:
    return {each["name"]: next(key for key in each if key != "name") for each in pod["volumes"]}


def test_the_patch_applies_to_a_deployment(
    programs: Programs, chart: Path, root: Path, tmp_path: Path
) -> None:
    deployment = root / "deploy" / "kubernetes" / "vllm" / "deployment.yaml"
    (tmp_path / "deployment.yaml").write_text(deployment.read_text())
    (tmp_path / "patch.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: vllm}\n" + sidecar_patch(programs, chart)
    )
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [deployment.yaml]\npatches: [{path: patch.yaml}]\n"
    )
    (patched,) = read(programs.kustomize(tmp_path))
    validate(patched)
    names = [each["name"] for each in patched["spec"]["template"]["spec"]["initContainers"]]
    assert names == ["vllm-watchdog"]


def test_another_chart_can_take_the_sidecar_from_ours(
    programs: Programs, chart: Path, root: Path, tmp_path: Path
) -> None:
    text = (root / "docs" / "quickstart-sidecar.md").read_text()
    snippet = text.partition("<!-- a chart of your own -->\n```yaml\n")[2].partition("```")[0]
    assert snippet
    (tmp_path / "templates").mkdir()
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "vllm-watchdog").symlink_to(chart)
    (tmp_path / "Chart.yaml").write_text(
        "apiVersion: v2\nname: mine\nversion: 1.0.0\n"
        "dependencies: [{name: vllm-watchdog, version: 1.0.0, repository: ''}]\n"
    )
    (tmp_path / "values.yaml").write_text(
        "vllm-watchdog: {fleet: {enabled: false}, sidecar: {enabled: true}}\n"
    )
    (tmp_path / "templates" / "deployment.yaml").write_text(snippet)
    objects = read(programs.template(tmp_path))
    pod = named(objects, "Deployment", "vllm")["spec"]["template"]["spec"]
    patch = yaml.safe_load(sidecar_patch(programs, chart))["spec"]["template"]["spec"]
    assert pod["initContainers"] == patch["initContainers"]
    assert pod["volumes"] == patch["volumes"]


def the_pod(objects: list[Object]) -> Any:
    return named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]


def test_openshift_gives_its_own_ids(programs: Programs, chart: Path, root: Path) -> None:
    asked = ("--api-versions", "security.openshift.io/v1", "--set", "sidecar.enabled=true")
    for arguments in (asked, ("--set", "openshift=true,sidecar.enabled=true")):
        text = programs.template(chart, *arguments)
        assert "runAsUser" not in text
        assert the_pod(read(text))["securityContext"] == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
    assert "runAsUser: 65532" in programs.template(chart, *asked, "--set", "openshift=false")
    overlay = root / "deploy" / "kubernetes" / "examples" / "fleet-on-openshift"
    assert "runAsUser" not in programs.kustomize(overlay)


def test_a_security_context_of_ones_own_is_merged_over_ours(programs: Programs, chart: Path) -> None:
    pod = the_pod(
        read(
            programs.template(
                chart, "--set", "podSecurityContext.runAsUser=1000,securityContext.privileged=false"
            )
        )
    )
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (1000, 65532)
    assert pod["containers"][0]["securityContext"]["privileged"] is False
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_port_in_the_settings_moves_all_that_speaks_of_it(programs: Programs, chart: Path) -> None:
    switches = "networkPolicy.enabled=true,sidecar.enabled=true,sidecar.config.web.port=1235"
    objects = read(programs.template(chart, "--set", f"config.web.port=1234,{switches}"))
    [container] = the_pod(objects)["containers"]
    assert container["ports"] == [{"name": "watchdog", "containerPort": 1234}]
    assert {"name": "WATCHDOG_WEB__PORT", "value": "1234"} in container["env"]
    assert {
        probe["httpGet"]["port"] for probe in (container["livenessProbe"], container["readinessProbe"])
    } == {"watchdog"}
    policies = of_kind(objects, "NetworkPolicy")
    ports = [each["spec"]["ingress"][-1]["ports"] for each in policies]
    assert sorted(port["port"] for each in ports for port in each) == [1234, 1235]
    patch = named(objects, "ConfigMap", "vllm-watchdog-sidecar-patch")["data"]["patch.yaml"]
    assert "containerPort: 1235" in patch


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("config.web.prot=1", "prot"),
        ("config.targets[0].slos.ttft_p95_seconds=1", "slos"),
        ("config.alertmanager.url=x", "url"),
        ("sidecar.target.gpus=1", "gpus"),
        ("sidecar.config.web.prot=1", "prot"),
    ],
)
def test_a_misspelt_setting_is_refused(programs: Programs, chart: Path, value: str, key: str) -> None:
    with pytest.raises(AssertionError, match=f"'{key}' not allowed"):
        programs.template(chart, "--set", value)


def test_settings_may_be_written_in_every_form_that_the_service_takes(
    programs: Programs, chart: Path
) -> None:
    short = "config.targets={vllm-0:8000},config.scrape.interval_seconds=5s,config.webhooks={http://hook/x}"
    assert "vllm-0:8000" in programs.template(chart, "--set", short)


@pytest.mark.parametrize(
    ("values_", "kind", "url"),
    [
        ("ingress.enabled=true,ingress.hosts={w.example.com}", "Ingress", "http://w.example.com"),
        (
            "ingress.enabled=true,ingress.hosts={w.example.com},ingress.tls[0].secretName=w",
            "Ingress",
            "https://w.example.com",
        ),
        (
            "httpRoute.enabled=true,httpRoute.hostnames={w.example.com},httpRoute.parentRefs[0].name=g",
            "HTTPRoute",
            "https://w.example.com",
        ),
    ],
)
def test_what_publishes_it_gives_alerts_their_address(
    programs: Programs, chart: Path, values_: str, kind: str, url: str
) -> None:
    objects = read(programs.template(chart, "--set", values_))
    assert len(of_kind(objects, kind)) == 1
    env = {each["name"]: each.get("value") for each in the_pod(objects)["containers"][0]["env"]}
    assert env["WATCHDOG_WEB__EXTERNAL_URL"] == url
    assert "w.example.com" in str(env["WATCHDOG_WEB__ALLOWED_HOSTS"])
    own = read(programs.template(chart, "--set", f"{values_},config.web.external_url=https://other"))
    env = {each["name"]: each.get("value") for each in the_pod(own)["containers"][0]["env"]}
    assert env["WATCHDOG_WEB__EXTERNAL_URL"] == "https://other"


def test_extras_of_a_site_have_their_place(programs: Programs, chart: Path, tmp_path: Path) -> None:
    given = {
        "commonLabels": {"team": "ml"},
        "extraArgs": ["--log-level", "debug"],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
        "networkPolicy": {"enabled": True, "extraEgress": [{"ports": [{"port": 443}]}]},
        "serviceMonitor": {"enabled": True, "scrapeTimeout": "5s", "relabelings": [{"targetLabel": "a"}]},
        "podMonitor": {"enabled": True, "scrapeTimeout": "5s", "relabelings": [{"targetLabel": "a"}]},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(given))
    objects = read(programs.template(chart, "--values", tmp_path / "values.yaml"))
    assert {each["metadata"]["labels"]["team"] for each in objects} == {"ml"}
    pod = the_pod(objects)
    assert pod["containers"][0]["args"] == ["serve", "--log-level", "debug"]
    assert {"name": "ca", "mountPath": "/ca"} in pod["containers"][0]["volumeMounts"]
    assert {"name": "ca", "configMap": {"name": "ca"}} in pod["volumes"]
    [policy] = of_kind(objects, "NetworkPolicy")
    assert policy["spec"]["egress"][-1] == {"ports": [{"port": 443}]}
    [endpoint] = of_kind(objects, "ServiceMonitor")[0]["spec"]["endpoints"]
    assert (endpoint["scrapeTimeout"], endpoint["relabelings"]) == ("5s", [{"targetLabel": "a"}])
    for item in objects:
        validate(item)


def test_pods_may_be_read_where_they_are_looked_for_and_nowhere_else(programs: Programs, chart: Path) -> None:
    objects = read(programs.template(chart, *values(chart, "pods"), "--namespace", "watch"))
    roles, bindings = of_kind(objects, "Role"), of_kind(objects, "RoleBinding")
    for found in (roles, bindings):
        assert [each["metadata"]["namespace"] for each in found] == ["watch", "batch", "vllm-test"]
    for role in roles:
        assert role["rules"] == [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
        ]
    (account,) = of_kind(objects, "ServiceAccount")
    told = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "watch"}
    assert all(each["subjects"] == [told] for each in bindings)
    assert the_pod(objects)["automountServiceAccountToken"] is True
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert {"ports": [{"port": 443}, {"port": 6443}]} in policy["spec"]["egress"]


def test_who_looks_for_no_pods_asks_for_nothing(programs: Programs, chart: Path) -> None:
    objects = read(programs.template(chart))
    assert not of_kind(objects, "Role") + of_kind(objects, "RoleBinding")
    assert the_pod(objects)["automountServiceAccountToken"] is False
    named_here = read(programs.template(chart, "--set", "rbac.namespaces={llm},existingConfigMap=mine"))
    assert [each["metadata"]["namespace"] for each in of_kind(named_here, "Role")] == ["llm"]
    by_others = read(programs.template(chart, *values(chart, "pods"), "--set", "rbac.create=false"))
    assert not of_kind(by_others, "Role")
