"""Record what a Prometheus answers to the panels of the Grafana dashboard, as docs/pictures/dashboard.json.

``python infra/docs/dashboard.py http://127.0.0.1:9090 MINUTES`` asks for the last minutes, while services run that the
Prometheus scrapes. ``headgate_lab.pages.dashboard`` draws the panels from the record.
"""

import json
import re
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DASHBOARD: Final = ROOT / "infra/monitoring/grafana/dashboards/headgate.json"
RECORD: Final = ROOT / "docs/pictures/dashboard.json"

POINTS: Final = 120
"""As many as a panel of the picture can show."""

ANSWER_SECONDS_MAX: Final = 30.0
"""A local Prometheus answers a query in less than a second."""


def asked(prometheus: str, expression: str, start: float, end: float) -> list[dict[str, object]]:
    """The series of a range query: labels, and pairs of time and value."""
    query = {"query": expression, "start": start, "end": end, "step": (end - start) / POINTS}
    url = f"{prometheus}/api/v1/query_range?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310
        return list(json.load(answer)["data"]["result"])


def legend(form: str, labels: dict[str, str]) -> str:
    """As Grafana writes it: the labels' values in the places of their names."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name[1], ""), form).strip()


def main(prometheus: str, minutes: str) -> None:
    """Ask, and write the record: for each panel the name and the points of each series."""
    end = time.time()
    start = end - 60 * float(minutes)
    panels = {}
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        series = {}
        for target in panel["targets"]:
            for one in asked(prometheus, target["expr"], start, end):
                points = [[round(at - start), float(f"{float(value):.4g}")] for at, value in one["values"]]
                series[legend(target["legendFormat"], one["metric"])] = points
        panels[panel["title"]] = series
    record = {"seconds": round(end - start), "panels": panels}
    RECORD.write_text(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n", encoding="utf-8")


main(*sys.argv[1:])
