"""Alerts and the dashboard, against Debian's Prometheus (package prometheus) and a coordinator that it scrapes."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from headgate_lab.pages.metrics import page

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "infra" / "monitoring"
NAME = re.compile(r"\bheadgate_\w+")
SUFFIXES = re.compile(r"_(bucket|sum|count)$")

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Debian's package prometheus is not installed",
)


def queries() -> list[str]:
    dashboard = json.loads((MONITORING / "grafana/dashboards/headgate.json").read_text(encoding="utf-8"))
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    return [
        *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"]),
        *(rule["expr"] for group in rules["groups"] for rule in group["rules"]),
    ]


def test_every_metric_that_is_asked_for_exists() -> None:
    known = set(re.findall(r"^\| `(\w+)`", page(), re.MULTILINE))
    asked = {SUFFIXES.sub("", name) for query in queries() for name in NAME.findall(query.replace("headgate_(", ""))}
    assert asked <= known, asked - known
    assert len(asked) > 10


def test_every_alert_has_its_line_in_the_runbook() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [alert["alert"] for alert in alerts] == headings
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"


@needs_prometheus
def test_alerts_fire_where_they_should() -> None:
    for arguments in (["check", "config", "prometheus.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    tested = (MONITORING / "alerts_test.yml").read_text(encoding="utf-8")
    for name in re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text(encoding="utf-8")):
        assert f"alertname: {name}" in tested, f"{name} is not tested"
