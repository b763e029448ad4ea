"""The Helm chart: rendered by helm, its objects checked against the schemas that Kubernetes publishes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.conftest import ROOT, run

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1800)]

CHART = ROOT / "infra/helm/headgate"
KUBERNETES = "1.34"
VALIDATOR = "kubernetes-validate==1.37.0"
EVERYTHING = (
    *("--set", "generation.enabled=true,migration.enabled=true,agent.autoscaling.enabled=true"),
    *("--set", "secrets.files=files,secrets.kafka=kafka,image.pullSecrets={one}"),
    *("--set-json", 'ingests=[{"name":"shop","log":"orders","topics":["shop.a","shop.b"],"replicas":2}]'),
    *("--set", r"kafka.properties.security\.protocol=SASL_SSL,networkPolicy.viewsFrom.app=portal"),
)


@pytest.fixture(scope="session")
def helm() -> str:
    return run("infra/helm/local-helm").strip()


def rendered(helm: str, *options: str) -> str:
    return run(helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, *options)


def objects(text: str) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


@pytest.mark.parametrize("options", [(), EVERYTHING], ids=["as it is", "everything"])
def test_what_it_renders_is_what_kubernetes_knows(helm: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(rendered(helm, *options), encoding="utf-8")
    uv = Path(sys.executable).with_name("uv")
    check = ("kubernetes-validate", "--strict", "--kubernetes-version", KUBERNETES, str(file))
    said = run(str(uv), "tool", "run", "--quiet", "--from", VALIDATOR, *check)
    assert "FAIL" not in said


def test_pods_are_confined_and_have_time_to_stop(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    deployments = [one for (kind, _), one in found.items() if kind == "Deployment"]
    names = {one["metadata"]["name"] for one in deployments}
    services = ("agent", "coordinator", "generation", "ingest-shop", "migration", "views")
    assert names == {f"prod-{service}" for service in services}
    for one in [*deployments, found["Job", "prod-topics"]]:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert pod["terminationGracePeriodSeconds"] > float(environment["HEADGATE_SHUTDOWN_SECONDS"])
        assert environment["HEADGATE_KAFKA__SECURITY_PROTOCOL"] == "SASL_SSL"
    assert "replicas" not in found["Deployment", "prod-agent"]["spec"], "the autoscaler says how many"


def test_topics_are_copied_into_change_logs(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    (container,) = found["Deployment", "prod-ingest-shop"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        *("serve", "ingest", "orders", "--name", "shop", "--topic", "shop.a", "--topic", "shop.b")
    ]
    assert ("PodDisruptionBudget", "prod-ingest-shop") in found
    assert not any("ingest" in name for _, name in objects(rendered(helm)))


def test_unknown_and_impossible_values_are_refused(helm: str) -> None:
    for setting, why in (
        ("agents.replicas=3", "additional properties"),
        ("shards=0", "minimum"),
        ("kafka.bootstrap=broker", "pattern"),
        ("image.digest=latest", "pattern"),
        ("ingests[0].name=shop,ingests[0].log=orders", "topics"),
    ):
        command = [helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, "--set", setting]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode != 0, setting
        assert why in refused.stderr, refused.stderr
