"""The kustomize bases, components and examples: valid, restricted, and never in vLLM's way."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from watchdog.rule.in_force import load_rules
from watchdog.settings.model import RuleSettings, load
from watchdog.web.guard import Hosts

from .objects import Object, containers, named, of_kind, pod_templates, read, validate
from .programs import Programs

FOLDERS = (
    "base",
    "vllm",
    "examples/sidecar",
    "examples/fleet",
    "examples/fleet-of-pods",
    "examples/fleet-with-token",
    "examples/fleet-on-openshift",
    "examples/from-a-prometheus",
)


@pytest.fixture(scope="module")
def built(programs: Programs, root: Path) -> dict[str, list[Object]]:
    return {folder: read(programs.kustomize(root / "deploy" / "kubernetes" / folder)) for folder in FOLDERS}


def sidecar_pod(built: dict[str, list[Object]]) -> Object:
    template: Object = named(built["examples/sidecar"], "Deployment", "vllm")["spec"]["template"]
    return template


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_object_fits_its_schema(built: dict[str, list[Object]], folder: str) -> None:
    for item in built[folder]:
        validate(item)


def test_every_component_is_part_of_an_example(root: Path) -> None:
    components = root / "deploy" / "kubernetes" / "components"
    used = "".join(path.read_text() for path in root.glob("deploy/kubernetes/examples/*/kustomization.yaml"))
    unused = [path.name for path in components.iterdir() if f"components/{path.name}\n" not in used]
    assert not unused


def test_the_watchdog_runs_as_a_native_sidecar_before_vllm(built: dict[str, list[Object]]) -> None:
    pod = sidecar_pod(built)
    (sidecar,) = pod["spec"]["initContainers"]
    assert sidecar["name"] == "vllm-watchdog"
    assert sidecar["restartPolicy"] == "Always"
    assert [each["name"] for each in pod["spec"]["containers"]] == ["vllm"]


def test_no_fault_of_the_sidecar_takes_vllm_out_of_service(built: dict[str, list[Object]]) -> None:
    (sidecar,) = sidecar_pod(built)["spec"]["initContainers"]
    # A probe of a sidecar counts for the pod, or holds vLLM back, or ends the container, which counts too.
    assert not {"readinessProbe", "startupProbe", "livenessProbe"} & set(sidecar)
    assert sidecar["command"] == ["serve-beside"]


def test_the_component_adds_to_the_pod_of_vllm_and_changes_nothing_in_it(
    built: dict[str, list[Object]],
) -> None:
    plain = named(built["vllm"], "Deployment", "vllm")["spec"]["template"]["spec"]
    beside = sidecar_pod(built)["spec"]
    assert beside["containers"] == plain["containers"]
    own = [each for each in beside["volumes"] if not each["name"].startswith("vllm-watchdog")]
    assert own == plain["volumes"]


def test_a_change_of_the_sidecars_settings_does_not_restart_vllm(built: dict[str, list[Object]]) -> None:
    names = {item["metadata"]["name"] for item in of_kind(built["examples/sidecar"], "ConfigMap")}
    assert "vllm-watchdog-sidecar" in names


def test_a_change_of_the_stand_alone_settings_rolls_out(built: dict[str, list[Object]]) -> None:
    names = {item["metadata"]["name"] for item in of_kind(built["base"], "ConfigMap")}
    (name,) = names
    assert name.startswith("vllm-watchdog-")
    pod = named(built["base"], "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]
    assert {"config": name}.items() <= {
        volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume
    }.items()


@pytest.mark.parametrize("folder", ["base", "examples/sidecar", "examples/fleet"])
def test_our_containers_meet_the_restricted_pod_security_standard(
    built: dict[str, list[Object]], folder: str
) -> None:
    ours = list(our_containers(built[folder]))
    assert ours
    for container, pod_context in ours:
        context = {**pod_context, **container["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] == 65532
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


def our_containers(objects: list[Object]) -> list[tuple[Object, dict[str, Any]]]:
    return [
        (container, template["spec"].get("securityContext", {}))
        for item in objects
        for template in pod_templates(item)
        for container in containers(template)
        if container["name"] == "vllm-watchdog"
    ]


@pytest.mark.parametrize(
    "folder", ["base", "examples/sidecar", "examples/fleet", "examples/from-a-prometheus"]
)
def test_the_settings_load_with_the_environment_of_the_container(
    built: dict[str, list[Object]], folder: str, tmp_path: Path
) -> None:
    for container, _ in our_containers(built[folder]):
        config = tmp_path / "watchdog.yaml"
        config.write_text(settings_text(built[folder]))
        settings = load(config, {}, environment(container))
        assert settings.web.host == "0.0.0.0"
        assert settings.targets or settings.prometheus
        # The only thing to be warned of is the open port, which the NetworkPolicy is for.
        assert [each.split()[0] for each in settings.warnings] == ["web.host"]


def settings_text(objects: list[Object]) -> str:
    texts = [item["data"].get("watchdog.yaml") for item in of_kind(objects, "ConfigMap")]
    (text,) = [each for each in texts if each]
    return str(text)


def environment(container: Object) -> dict[str, str]:
    """The variables as the kubelet sets them, in a pod vllm-7f of the namespace models."""
    told = {"metadata.name": "vllm-7f", "metadata.namespace": "models"}
    variables: dict[str, str] = {}
    for entry in container["env"]:
        value = entry["value"] if "value" in entry else told[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for name, known in variables.items():
            value = value.replace(f"$({name})", known)
        variables[entry["name"]] = value
    return {name: value for name, value in variables.items() if name != "WATCHDOG_CONFIG"}


def test_the_stand_alone_watchdog_answers_to_every_name_of_its_service(
    built: dict[str, list[Object]],
) -> None:
    ((container, _),) = our_containers(built["base"])
    hosts = Hosts(load(None, {}, environment(container)).web)
    for name in ("", ".models", ".models.svc", ".models.svc.cluster.local"):
        assert hosts.allows(f"vllm-watchdog{name}:9847")
    assert hosts.allows("10.0.0.7:9847")
    assert not hosts.allows("vllm-watchdog.example.com:9847")


def test_alerts_of_two_pods_with_equal_settings_differ_in_their_labels(
    built: dict[str, list[Object]],
) -> None:
    (sidecar,) = sidecar_pod(built)["spec"]["initContainers"]
    settings = load(None, {}, environment(sidecar))
    assert settings.alertmanager.external_labels == {"pod": "vllm-7f", "namespace": "models"}
    assert [(each.name, each.url) for each in settings.targets] == [
        ("vllm-7f", "http://127.0.0.1:8000/metrics")
    ]


def test_each_server_of_the_fleet_is_watched_by_an_address_of_its_own(
    built: dict[str, list[Object]], tmp_path: Path
) -> None:
    objects = built["examples/fleet"]
    servers = named(objects, "StatefulSet", "vllm")
    service = named(objects, "Service", servers["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    config = tmp_path / "watchdog.yaml"
    config.write_text(settings_text(objects))
    hosts = [target.url.split("/")[2] for target in load(config).targets]
    count = servers["spec"]["replicas"]
    assert hosts == [f"vllm-{index}.vllm-pods:8000" for index in range(count)]


def test_services_and_monitors_select_what_is_there(built: dict[str, list[Object]]) -> None:
    for objects in (built["examples/sidecar"], built["examples/fleet"]):
        pods = [template for item in objects for template in pod_templates(item)]
        for service in of_kind(objects, "Service"):
            ports = ports_of(select(pods, service["spec"]["selector"]))
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
        for monitor in of_kind(objects, "PodMonitor"):
            ports = ports_of(select(pods, monitor["spec"]["selector"]["matchLabels"]))
            assert {endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]} <= ports
        for monitor in of_kind(objects, "ServiceMonitor"):
            chosen = select(of_kind(objects, "Service"), monitor["spec"]["selector"]["matchLabels"])
            names = {port["name"] for service in chosen for port in service["spec"]["ports"]}
            assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} == names
        for policy in of_kind(objects, "NetworkPolicy"):
            assert select(pods, policy["spec"]["podSelector"]["matchLabels"])


def select(objects: list[Object], labels: dict[str, str]) -> list[Object]:
    chosen = [item for item in objects if labels.items() <= item["metadata"].get("labels", {}).items()]
    assert chosen, labels
    return chosen


def ports_of(pods: list[Object]) -> set[str]:
    return {port["name"] for pod in pods for each in containers(pod) for port in each.get("ports", [])}


def test_a_network_policy_leaves_the_port_of_vllm_open(built: dict[str, list[Object]]) -> None:
    policy = named(built["examples/sidecar"], "NetworkPolicy", "vllm-watchdog-sidecar")
    assert {"ports": [{"port": 8000}]} in policy["spec"]["ingress"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_rules_and_a_token_reach_the_sidecar_too(programs: Programs, root: Path, tmp_path: Path) -> None:
    for name in ("kubernetes", "grafana"):
        shutil.copytree(root / "deploy" / name, tmp_path / name)
    folder = tmp_path / "kubernetes" / "examples" / "all"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        "resources: [../sidecar]\ncomponents: [../../components/rules, ../../components/token]\n"
    )
    objects = read(programs.kustomize(folder))
    for item in objects:
        validate(item)
    pod = named(objects, "Deployment", "vllm")["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    settings = load(None, {}, environment(sidecar))
    mounts = {each["mountPath"] for each in sidecar["volumeMounts"]}
    assert {str(each) for each in settings.rules.directories} <= mounts
    assert settings.web.protected
    assert str(settings.web.bearer_token_file).rpartition("/")[0] in mounts
    # What is missing of ours must not keep vLLM from starting.
    ours = [each for each in pod["volumes"] if each["name"].startswith("vllm-watchdog")]
    sources = [each.get("configMap") or each.get("secret") for each in ours]
    assert [each["optional"] for each in sources if each] == [True, True, True]
    (monitor,) = of_kind(objects, "PodMonitor")
    endpoints = {each["port"]: each for each in monitor["spec"]["podMetricsEndpoints"]}
    assert "authorization" in endpoints["watchdog"]
    assert "authorization" not in endpoints["http"]


def test_the_rules_of_the_example_load_beside_the_shipped_ones(
    built: dict[str, list[Object]], tmp_path: Path
) -> None:
    files = named(built["examples/fleet"], "ConfigMap", "vllm-watchdog-rules")["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    rules = load_rules(RuleSettings(directories=[tmp_path]))
    assert all(rules.by_id(name.removesuffix(".yaml")) for name in files)


def test_no_manifest_names_a_namespace_and_only_pod_discovery_asks_for_the_kubernetes_api(root: Path) -> None:
    for path in (root / "deploy" / "kubernetes").rglob("*.yaml"):
        documents = [each for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict)]
        for item in documents:
            kind = item.get("kind", "")
            assert "namespace" not in item.get("metadata", {}), path
            assert kind not in {"ClusterRole", "ClusterRoleBinding"}, path
            assert kind not in {"Role", "RoleBinding"} or path.parent.name == "pod-discovery", path


def test_pod_discovery_may_read_pods_of_its_own_namespace_and_nothing_else(
    built: dict[str, list[Object]], tmp_path: Path
) -> None:
    objects = built["examples/fleet-of-pods"]
    (role,), (binding,) = of_kind(objects, "Role"), of_kind(objects, "RoleBinding")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (account,) = of_kind(objects, "ServiceAccount")
    assert [each["name"] for each in binding["subjects"]] == [account["metadata"]["name"]]
    pod = named(objects, "Deployment", "vllm-watchdog")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["automountServiceAccountToken"] is True
    assert account["automountServiceAccountToken"] is False
    config = tmp_path / "watchdog.yaml"
    config.write_text(settings_text(objects))
    ((container, _),) = our_containers(objects)
    assert load(config, {}, environment(container)).discovery.kubernetes[0].selector == "app=vllm"
