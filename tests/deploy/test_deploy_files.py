"""The files of deploy/ are valid, name commands, options and settings that exist, and run without privileges."""

import copy
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from support.serving.commands import leaves
from support.serving.deployments import DEPLOY, manifests
from support.serving.deployments import compose_file as compose

from booking_core.base.settings import Settings

ROOT = Path(__file__).parents[2]


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for manifest in manifests():
        if manifest["kind"] == "Deployment":
            pod = manifest["spec"]["template"]["spec"]
            for container in [*pod["initContainers"], *pod["containers"]]:
                yield f"{manifest['metadata']['name']}/{container['name']}", pod, container


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every command line of `booking` with the place that has it."""
    for name, service in compose()["services"].items():
        if service["image"] == "booking":
            yield f"compose {name}", service["command"]
    for name, _, container in containers():
        yield f"kubernetes {name}", container["args"]
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        (line,) = re.findall(r"^ExecStart=.*/booking (.+)$", unit.read_text(), re.MULTILINE)
        yield unit.name, shlex.split(line)
    (line,) = re.findall(r"^CMD (\[.+\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    yield "Dockerfile", yaml.safe_load(line)


@pytest.mark.parametrize(("place", "words"), list(commands()))
def test_a_command_exists_with_its_options(place: str, words: list[str]) -> None:
    (leaf,) = [leaf for leaf in leaves() if tuple(words[: len(leaf.words)]) == leaf.words]
    options = {name for parameter in leaf.command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options, place


def test_variables_are_settings() -> None:
    settings = set(Settings().shown())
    config = [manifest["data"] for manifest in manifests() if manifest["kind"] == "ConfigMap"]
    services = compose()["services"].values()
    of_compose = [service.get("environment", {}) for service in services if service["image"] == "booking"]
    names = {name for variables in (*config, *of_compose) for name in variables}
    assert len(names) > 4
    assert names <= settings


def test_pods_get_no_variables_of_services() -> None:
    """Of the service `booking`, they would be named as settings are."""
    assert [name for name, pod, _ in containers() if pod.get("enableServiceLinks") is not False] == []


def test_containers_run_without_privileges() -> None:
    for name, pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"], name
        limits = container["securityContext"]
        assert limits["readOnlyRootFilesystem"], name
        assert (limits["allowPrivilegeEscalation"], limits["capabilities"]) == (False, {"drop": ["ALL"]}), name
    for name, service in compose()["services"].items():
        if service["image"] == "booking":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
    assert re.search(r"^USER 10001$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)


def test_the_image_has_every_package_and_the_context_nothing_else() -> None:
    copied = set(re.findall(r"^COPY (\w+) \w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("*/pyproject.toml")}
    assert copied == packages
    allowed = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    assert allowed == packages | {"locks/test.txt"}


def test_the_image_can_back_up_the_server_of_the_compose_file() -> None:
    image = (ROOT / "Dockerfile").read_text()
    images = [service["image"] for service in compose()["services"].values()]
    (server,) = [image for image in images if image.startswith("postgres:")]
    (package,) = set(re.findall(r"postgresql-client-(\d+)", image))
    assert int(server.removeprefix("postgres:")) <= int(package)
    programs = re.findall(rf"/client/usr/lib/postgresql/{package}/bin/(\w+)", image)
    assert sorted(programs) == ["pg_dump", "pg_restore", "psql"]
    assert f" /usr/lib/postgresql/{package}/bin/\n" in image, "a folder where `booking backup` looks for the programs"


def test_stopping_waits_longer_than_requests_in_progress() -> None:
    from booking_cli.operator.service import _SHUTDOWN_S

    waits = [
        int(value)
        for file in DEPLOY.glob("systemd/*")
        for value in re.findall(r"TimeoutStopSec=(\d+)", file.read_text())
    ]
    waits += [pod["terminationGracePeriodSeconds"] for _, pod, _ in containers()]
    waits += [int(compose()["x-booking"]["stop_grace_period"].removesuffix("s"))]
    (config,) = [manifest["data"] for manifest in manifests() if manifest["kind"] == "ConfigMap"]
    assert min(waits) > _SHUTDOWN_S + float(config["BOOKING_SHUTDOWN_DELAY"])


def test_a_pod_that_ends_gets_requests_until_every_node_knows() -> None:
    """A Service sends requests to a pod for some seconds after its SIGTERM; a closed port would refuse them."""
    (config,) = [manifest["data"] for manifest in manifests() if manifest["kind"] == "ConfigMap"]
    assert config["BOOKING_SHUTDOWN_DELAY"] == "5"


def test_the_processes_behind_the_proxy_of_the_compose_file_keep_their_addresses() -> None:
    """nginx looks up names only when it starts: a new container with another address would not be found."""
    document = compose()
    (pool,) = document["networks"]["default"]["ipam"]["config"]
    behind = re.findall(
        r"^server ([\w-]+):8000 ", (DEPLOY / "proxies" / "upstream-compose.conf").read_text(), re.MULTILINE
    )
    addresses = {document["services"][name]["networks"]["default"]["ipv4_address"] for name in behind}
    assert len(addresses) == len(behind) == 2
    assert all(ip_address(address) in ip_network(pool["subnet"]) for address in addresses)
    assert not any(ip_address(address) in ip_network(pool["ip_range"]) for address in addresses), (
        "Docker may assign the address to another container"
    )
    assert document["x-booking"]["environment"]["BOOKING_TRUSTED_PROXIES"] == pool["subnet"]


@pytest.mark.component("systemd-analyze", package="systemd")
def test_systemd_takes_the_units_and_exposes_little_to_them(tmp_path: Path) -> None:
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        unit_file = tmp_path / unit.name
        unit_file.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE))
        for words in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20"]):
            result = subprocess.run(
                ["systemd-analyze", *words, str(unit_file)], capture_output=True, text=True, check=False
            )
            assert (result.returncode, "Unknown" in result.stderr) == (0, False), result.stderr + result.stdout[-200:]


# Valid for Compose and Kubernetes, without unknown fields ---------------------------------------------------------

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
    schema: dict[str, Any] = json.loads((SCHEMAS / "compose.json").read_text())
    return schema


def schema_of(kind: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / "kubernetes.json").read_text())
    return schema | {"$ref": f"#/$defs/{_KINDS[kind]}"}


def test_compose_takes_the_compose_file() -> None:
    assert problems(compose(), compose_schema()) == []


def test_everything_that_a_service_of_the_compose_file_names_is_in_it() -> None:
    document = compose()
    for name, service in document["services"].items():
        assert set(service.get("depends_on", {})) <= set(document["services"]), name
        sources = [volume.split(":")[0] for volume in service.get("volumes", [])]
        assert {source for source in sources if not source.startswith(".")} <= set(document["volumes"]), name
        assert all((DEPLOY / source).exists() for source in sources if source.startswith(".")), name


@pytest.mark.parametrize(
    "manifest", manifests(), ids=lambda manifest: f"{manifest['kind']} {manifest['metadata']['name']}"
)
def test_kubernetes_takes_the_manifest(manifest: dict[str, Any]) -> None:
    assert problems(manifest, schema_of(manifest["kind"])) == []


def test_selectors_services_and_probes_name_what_the_pods_have() -> None:
    objects = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests()}
    pods = [manifest["spec"]["template"] for (kind, _), manifest in objects.items() if kind == "Deployment"]
    for (kind, _), manifest in objects.items():
        selector = manifest.get("spec", {}).get("selector", {})
        labels = selector.get("matchLabels", selector)
        chosen = [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]
        assert kind == "ConfigMap" or len(chosen) == 1
        if kind == "Service":
            port_names = {port["name"] for port in chosen[0]["spec"]["containers"][0]["ports"]}
            assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= port_names
    for pod in pods:
        for container in pod["spec"]["containers"]:
            port_names = {port["name"] for port in container["ports"]}
            probes = ("startupProbe", "livenessProbe", "readinessProbe")
            assert {container[probe]["httpGet"]["port"] for probe in probes} <= port_names


def test_a_field_with_a_typing_error_is_found() -> None:
    """The schemas must be as strict as the programs themselves."""
    wrong = copy.deepcopy(compose())
    wrong["services"]["worker"]["comand"] = []
    assert problems(wrong, compose_schema())
    deployment = copy.deepcopy(next(manifest for manifest in manifests() if manifest["kind"] == "Deployment"))
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert problems(deployment, schema_of("Deployment"))
