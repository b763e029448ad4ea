"""The Grafana dashboard as a picture: its panels, drawn from a record of what Prometheus answered to their queries.

``infra/docs/dashboard.py`` makes the record. A panel without a series is shown empty, as Grafana does.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headgate_lab.pages import svg

_ROOT: Final = Path(__file__).parents[3]
_DASHBOARD: Final = _ROOT / "infra/monitoring/grafana/dashboards/headgate.json"
_RECORD: Final = _ROOT / "docs/pictures/dashboard.json"

_TITLE: Final = "The Grafana dashboard, while Headgate replicates three tables"
_WIDTH: Final = 900.0
_COLUMNS: Final = 24
"""Of Grafana's grid."""
_ROW: Final = 21.0
_GAP: Final = 6.0
_COLOURS: Final = (svg.GREEN, svg.BLUE, svg.AMBER, svg.RED, "#8250df", "#1b7c83", svg.FAINT)
_SERIES_MAX: Final = 7
"""Lines of one panel: more have no colour of their own."""
_UNITS: Final = {"s": " s", "cps": " c/s", "Bps": "B/s", "bytes": "B", "none": ""}
_BINARY: Final = ("bytes", "Bps")
_PREFIXES: Final = ((2**30, 1e9, "G"), (2**20, 1e6, "M"), (2**10, 1e3, "k"))


class _Place(msgspec.Struct, frozen=True):
    x: int
    y: int
    w: int
    h: int


class _Defaults(msgspec.Struct, frozen=True):
    unit: str


class _Fields(msgspec.Struct, frozen=True):
    defaults: _Defaults


class _Panel(msgspec.Struct, frozen=True, rename="camel"):
    title: str
    grid_pos: _Place
    field_config: _Fields


class _Dashboard(msgspec.Struct, frozen=True):
    panels: list[_Panel]


class _Record(msgspec.Struct, frozen=True):
    """``panels``: title → name of a series → pairs of second and value."""

    seconds: int
    panels: dict[str, dict[str, list[tuple[float, float]]]]


def picture() -> str:
    """pictures/dashboard.svg."""
    panels = msgspec.json.decode(_DASHBOARD.read_bytes(), type=_Dashboard).panels
    record = msgspec.json.decode(_RECORD.read_bytes(), type=_Record)
    height = max(panel.grid_pos.y + panel.grid_pos.h for panel in panels) * _ROW
    parts = [part for panel in panels for part in _drawn(panel, record)]
    return svg.document("dashboard", _TITLE, _WIDTH, height, parts)


def _drawn(panel: _Panel, record: _Record) -> list[str]:
    place, unit = panel.grid_pos, panel.field_config.defaults.unit
    left, top = place.x * _WIDTH / _COLUMNS + _GAP / 2, place.y * _ROW + _GAP / 2
    width, height = place.w * _WIDTH / _COLUMNS - _GAP, place.h * _ROW - _GAP
    series = dict(sorted(record.panels.get(panel.title, {}).items())[:_SERIES_MAX])
    most = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    x0, x1, y0, y1 = left + 62, left + width - 10, top + 30, top + height - 36
    parts = [svg.box(left, top, width, height, colour="#d0d7de")]
    parts.append(svg.text(left + 10, top + 18, panel.title, anchor="start", bold=True))
    for part in (0.0, 0.5, 1.0):
        y = y1 - part * (y1 - y0)
        parts.append(svg.line([(x0, y), (x1, y)], colour="#e7e9ec", width=1))
        parts.append(svg.text(x0 - 6, y + 3.5, _shown(most * part, unit), size=9, colour=svg.FAINT, anchor="end"))
    for colour, points in zip(_COLOURS, series.values(), strict=False):
        parts.append(
            svg.line(
                [(x0 + at / record.seconds * (x1 - x0), y1 - value / most * (y1 - y0)) for at, value in points],
                colour=colour,
                width=1.5,
            )
        )
    return [*parts, *_legend(list(series), left + 10, top + height - 10, width - 20)]


def _legend(names: Sequence[str], x: float, y: float, room: float) -> list[str]:
    if not names:
        return [svg.text(x, y, "no data", size=9, colour=svg.FAINT, anchor="start")]
    parts = []
    for colour, name in zip(_COLOURS, names, strict=False):
        wide = svg.width_of(name, 9) + 24
        if room < wide:
            break
        parts.append(svg.line([(x, y - 3), (x + 12, y - 3)], colour=colour, width=2))
        parts.append(svg.text(x + 16, y, name, size=9, anchor="start"))
        x, room = x + wide, room - wide
    return parts


def _shown(value: float, unit: str) -> str:
    for binary, decimal, prefix in _PREFIXES:
        size = binary if unit in _BINARY else decimal
        if unit != "s" and value >= size:
            return f"{value / size:.3g} {prefix}{_UNITS[unit].strip()}"
    if unit == "s" and 0 < value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g}{' ' if unit in _BINARY else ''}{_UNITS[unit]}"
