"""The Compose file and the manifests are valid for Compose and Kubernetes, without unknown fields."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

DEPLOY = Path(__file__).parents[2] / "deploy"
SCHEMAS = Path(__file__).parent / "schemas"
_KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "PodDisruptionBudget": "io.k8s.api.policy.v1.PodDisruptionBudget",
    "Service": "io.k8s.api.core.v1.Service",
}


def problems(document: Any, schema: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in Draft202012Validator(schema).iter_errors(document)]


def compose_schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / "compose.json").read_text())
    return found


def schema_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / "kubernetes.json").read_text())
    return found | {"$ref": f"#/$defs/{_KINDS[kind]}"}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def manifests() -> list[dict[str, Any]]:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def test_compose_takes_the_compose_file() -> None:
    assert problems(compose(), compose_schema()) == []


def test_everything_that_a_service_of_the_compose_file_names_is_in_it() -> None:
    found = compose()
    for name, service in found["services"].items():
        assert set(service.get("depends_on", {})) <= set(found["services"]), name
        sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert {each for each in sources if not each.startswith(".")} <= set(found["volumes"]), name
        assert all((DEPLOY / each).exists() for each in sources if each.startswith(".")), name


@pytest.mark.parametrize("manifest", manifests(), ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_kubernetes_takes_the_manifest(manifest: dict[str, Any]) -> None:
    assert problems(manifest, schema_of(manifest["kind"])) == []


def test_selectors_services_and_probes_name_what_the_pods_have() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests()}
    pods = [each["spec"]["template"] for (kind, _), each in found.items() if kind == "Deployment"]
    for (kind, _), each in found.items():
        selector = each.get("spec", {}).get("selector", {})
        labels = selector.get("matchLabels", selector)
        chosen = [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]
        assert kind == "ConfigMap" or len(chosen) == 1
        if kind == "Service":
            named = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= named
    for pod in pods:
        for container in pod["spec"]["containers"]:
            named = {port["name"] for port in container["ports"]}
            probes = ("startupProbe", "livenessProbe", "readinessProbe")
            assert {container[probe]["httpGet"]["port"] for probe in probes} <= named


def test_a_field_with_a_typing_error_is_found() -> None:
    """The schemas must be as strict as the programs themselves."""
    wrong = copy.deepcopy(compose())
    wrong["services"]["worker"]["comand"] = []
    assert problems(wrong, compose_schema())
    deployment = copy.deepcopy(next(each for each in manifests() if each["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert problems(deployment, schema_of("Deployment"))
