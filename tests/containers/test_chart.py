"""The Helm chart: rendered by helm, its objects checked against the schemas that Kubernetes publishes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from containers.conftest import ROOT, run
from headgate.cli.feed_folder import read_folder
from headgate.provisioning.time_scale import scaled_seconds
from support.commands import commands

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(1800))]

CHART = ROOT / "infra/helm/headgate"
KUBERNETES = "1.34"
VALIDATOR = "kubernetes-validate==1.37.0"
WITH_SECRETS = ("coordinator", "agent", "migration", "generation", "ingest", "views", "topics", "feeds")
NODES = '{"nodeSelectorTerms":[{"matchExpressions":[{"key":"disk","operator":"In","values":["ssd"]}]}]}'
MONITORED = ("--set", "podMonitor.enabled=true,prometheusRule.enabled=true,prometheusRule.labels.release=prometheus")
"""Objects of the Prometheus operator, which Kubernetes itself does not know."""
FEEDS = {
    "shop": {
        "source": {"topics": ["shop.public.orders"], "format": "debezium-json"},
        "sink": {"type": "postgresql", "dsn": "postgresql://h@w:5432/shop", "password_file": "/run/secrets/shop"},
        "batch_rows_max": 1_000_000,
    },
    "b.2": {"source": {"topics": ["b"], "format": "canal-json"}, "sink": {"type": "kafka", "dsn": "kafka://w:9092"}},
}
EVERYTHING = (
    *("--set-json", f"feeds={json.dumps(FEEDS)}"),
    *("--set", "generation.enabled=true,migration.enabled=true,agent.autoscaling.enabled=true"),
    *("--set", "image.pullSecrets={one}"),
    *("--set", ",".join(f"secrets.{service}.kafka={service}-kafka" for service in WITH_SECRETS)),
    *("--set", ",".join(f"secrets.{service}.files={service}-files" for service in WITH_SECRETS)),
    *("--set-json", 'ingests=[{"name":"shop","log":"orders","topics":["shop.a","shop.b"],"replicas":2}]'),
    *("--set", r"kafka.properties.security\.protocol=SASL_SSL,networkPolicy.viewsFrom.app=portal"),
    *("--set", "ingress.enabled=true,ingress.host=headgate.example,ingress.tlsSecret=tls,ingress.className=nginx"),
    *("--set", r"serviceAccount.annotations.iam\.example/role=headgate,scratch.sizeLimit=10Gi,priorityClassName=high"),
    *("--set-json", 'extraEnv=[{"name":"TZ","value":"UTC"}]'),
    *("--set-json", 'extraVolumes=[{"name":"jars","configMap":{"name":"jars"}}]'),
    *("--set-json", 'extraVolumeMounts=[{"name":"jars","mountPath":"/jars"}]'),
    *("--set-json", 'affinity={"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":' + NODES + "}}"),
)


ON_A_CLUSTER = (*EVERYTHING, "--set", "agent.spark.master=spark://master:7077,networkPolicy.executorsFrom.app=spark")


@pytest.fixture(scope="session")
def helm() -> str:
    return run("infra/helm/local-helm").strip()


def rendered(helm: str, *options: str) -> str:
    return run(helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, *options)


def objects(text: str) -> dict[tuple[str, str], Any]:
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


@pytest.mark.parametrize("options", [(), EVERYTHING, ON_A_CLUSTER], ids=["as it is", "everything", "on a cluster"])
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
    for one in [*deployments, found["Job", "prod-topics"], found["Job", "prod-feeds"]]:
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert pod["terminationGracePeriodSeconds"] > float(environment["HEADGATE_SHUTDOWN_SECONDS"])
        assert environment["HEADGATE_KAFKA__SECURITY_PROTOCOL"] == "SASL_SSL"
    assert "replicas" not in found["Deployment", "prod-agent"]["spec"], "the autoscaler says how many"


def test_each_service_has_its_own_secrets_and_no_others(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    pods = {
        name.removeprefix("prod-").removesuffix("-shop"): one
        for (kind, name), one in found.items()
        if kind in ("Deployment", "Job")
    }
    assert set(pods) == set(WITH_SECRETS)
    for service, one in pods.items():
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert [each["secretRef"]["name"] for each in container["envFrom"]] == [f"{service}-kafka"]
        assert [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each] == [f"{service}-files"]


def test_executors_of_a_cluster_reach_the_drivers(helm: str) -> None:
    found = objects(rendered(helm, *ON_A_CLUSTER))
    for service in ("agent", "migration"):
        (container,) = found["Deployment", f"prod-{service}"]["spec"]["template"]["spec"]["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        properties = dict(line.split() for line in environment["HEADGATE_SPARK__PROPERTIES"].splitlines() if line)
        assert properties["spark.driver.host"] == "$(POD_ADDRESS)"
        (rule,) = found["NetworkPolicy", f"prod-{service}-executors"]["spec"]["ingress"]
        assert rule["from"][0]["podSelector"]["matchLabels"] == {"app": "spark"}
        let_in = {str(port["port"]) for port in rule["ports"]}
        assert let_in == {properties["spark.driver.port"], properties["spark.driver.blockManager.port"]}
    cluster = ("--set", "agent.spark.master=spark://master:7077")
    command = [helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, *cluster]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "networkPolicy.executorsFrom is empty" in refused.stderr


def test_views_are_open_to_nobody_unless_the_values_say_to_whom(helm: str) -> None:
    for options, is_open in (
        ((), False),
        (("--set", "networkPolicy.viewsFrom.app=portal"), True),
        (("--set", "networkPolicy.viewsFrom.app=portal,networkPolicy.enabled=false"), False),
        (("--set", "views.open=true"), True),
    ):
        found = objects(rendered(helm, *options))
        (container,) = found["Deployment", "prod-views"]["spec"]["template"]["spec"]["containers"]
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert (environment["HEADGATE_VIEWS__BIND"] != "127.0.0.1") == is_open, options
        assert (("Service", "prod-views") in found) == is_open, options
        policy = found.get(("NetworkPolicy", "prod-headgate"))
        if policy is not None:
            admitted = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
            assert (8421 in admitted) == is_open, options


def test_topics_are_copied_into_change_logs(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    (container,) = found["Deployment", "prod-ingest-shop"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == [
        *("serve", "ingest", "orders", "--name", "shop", "--topic", "shop.a", "--topic", "shop.b")
    ]
    assert ("PodDisruptionBudget", "prod-ingest-shop") in found
    assert not any("ingest" in name for _, name in objects(rendered(helm)))


def test_feeds_are_applied_behind_each_install_upgrade_and_rollback(helm: str, tmp_path: Path) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    for name, text in found["ConfigMap", "prod-feeds"]["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert {name: spec.feed for name, spec in read_folder(tmp_path).items()} == {"shop": "shop", "b.2": "b.2"}
    job = found["Job", "prod-feeds"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-install,post-upgrade,post-rollback"
    pod = job["spec"]["template"]["spec"]
    assert (job["spec"]["backoffLimit"], pod["restartPolicy"]) == (0, "Never"), "a failed pod stays, with its log"
    (container,) = pod["containers"]
    assert {"name": "feeds", "configMap": {"name": "prod-feeds"}} in pod["volumes"]
    assert {"name": "feeds", "mountPath": "/feeds", "readOnly": True} in container["volumeMounts"]
    for options, more in (((), []), (("--set", "applyFeeds.prune=true"), ["--prune", "--yes"])):
        (container,) = objects(rendered(helm, *EVERYTHING, *options))["Job", "prod-feeds"]["spec"]["template"]["spec"][
            "containers"
        ]
        assert container["args"] == ["feed", "apply", "/feeds", "--timeout", "120", *more]
    assert not any(name == "prod-feeds" for _, name in objects(rendered(helm))), "without feeds there is no job"


def test_unknown_and_impossible_values_are_refused(helm: str) -> None:
    for setting, why in (
        ("agents.replicas=3", "additional properties"),
        ("secrets.files=everything", "additional properties"),
        ("shards=0", "minimum"),
        ("kafka.bootstrap=broker", "pattern"),
        ("image.digest=latest", "pattern"),
        ("ingests[0].name=shop,ingests[0].log=orders", "topics"),
        ("feeds.shop.source.format=debezium-json", "sink"),
        ("feeds.a b.source.format=x,feeds.a b.sink.type=y", "pattern"),
        ("applyFeeds.often=true", "additional properties"),
    ):
        command = [helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, "--set", setting]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode != 0, setting
        assert why in refused.stderr, refused.stderr


def test_every_pod_has_what_the_values_add(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))
    assert found["ServiceAccount", "prod-headgate"]["metadata"]["annotations"] == {"iam.example/role": "headgate"}
    for (kind, name), one in found.items():
        if kind not in ("Deployment", "Job"):
            continue
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name": "TZ", "value": "UTC"} in container["env"], name
        assert {"name": "jars", "configMap": {"name": "jars"}} in pod["volumes"]
        assert {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}} in pod["volumes"]
        assert {"name": "jars", "mountPath": "/jars"} in container["volumeMounts"]
        assert (pod["priorityClassName"], list(pod["affinity"])) == ("high", ["nodeAffinity"])
    plain = objects(rendered(helm))["Deployment", "prod-agent"]["spec"]["template"]["spec"]
    assert not {"affinity", "priorityClassName"} & set(plain)
    assert {"name": "scratch", "emptyDir": {}} in plain["volumes"]


def test_an_ingress_is_made_for_open_views_only(helm: str) -> None:
    found = objects(rendered(helm, *EVERYTHING))["Ingress", "prod-views"]["spec"]
    assert found["tls"] == [{"hosts": ["headgate.example"], "secretName": "tls"}]
    (rule,) = found["rules"]
    assert rule["host"] == "headgate.example"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "prod-views", "port": {"name": "views"}}
    for values, why in (
        ("ingress.enabled=true,ingress.host=headgate.example", "the views listen within their pod only"),
        ("ingress.enabled=true,views.open=true", "ingress.host is empty"),
    ):
        command = [helm, "template", "prod", str(CHART), "--kube-version", KUBERNETES, "--set", values]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode != 0
        assert why in refused.stderr


def test_alerts_are_those_that_are_tested(helm: str) -> None:
    found = objects(rendered(helm, *MONITORED))
    rule = found["PrometheusRule", "prod-headgate"]
    assert rule["metadata"]["labels"] == {"release": "prometheus"}
    assert rule["spec"] == yaml.safe_load((ROOT / "infra/monitoring/alerts.yml").read_text(encoding="utf-8"))
    (endpoint,) = found["PodMonitor", "prod-headgate"]["spec"]["podMetricsEndpoints"]
    assert [each["targetLabel"] for each in endpoint["relabelings"]] == ["job", "role"], "which the alerts name"


NOTES = """\
kind: Notes
metadata: {name: notes}
text: |
{{ tpl (.Files.Get "notes.txt") . | indent 2 }}
"""
"""`helm template` leaves NOTES.txt out, and `helm install --dry-run` wants a cluster: so an object has its text."""


@pytest.mark.parametrize(
    "options", [(), EVERYTHING, ("--set", "views.enabled=false")], ids=["plain", "all", "no views"]
)
def test_notes_have_commands_that_exist(helm: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    chart = tmp_path / "headgate"
    shutil.copytree(CHART, chart)
    shutil.move(chart / "templates/NOTES.txt", chart / "notes.txt")
    (chart / "templates/notes.yaml").write_text(NOTES, encoding="utf-8")
    command = (helm, "template", "prod", str(chart), "--namespace", "data", "--kube-version", KUBERNETES, *options)
    found = objects(run(*command))
    text = found["Notes", "notes"]["text"]
    for kubectl in (line.strip() for line in text.splitlines() if line.startswith("  ")):
        assert kubectl.startswith("kubectl -n data "), kubectl
        subprocess.run(["bash", "-n", "-c", kubectl], check=True)
    named = re.findall(r"headgate ((?:[a-z]+ ?)+)", "\n".join(re.findall(r"-- (headgate .*)", text)))
    assert named, "commands"
    known = {name for name, _ in commands()}
    assert [each for each in named if not any(f"{each} ".startswith(f"{name} ") for name in known)] == []
    deployments = {name for kind, name in found if kind == "Deployment"}
    assert set(re.findall(r"deploy/(\S+)", text)) <= deployments
    assert ("https://headgate.example/" in text) == (options is EVERYTHING)
    assert ("prod-views" in text) == (options == ())
