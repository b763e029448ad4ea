"""The parts that every drawn picture uses: colours, texts, boxes, arrows, and the frame around them.

Pictures load no font and no script. Texts are placed by the width that a monospaced font has everywhere, so a picture
is the same on every machine that makes it.
"""

from html import escape
from typing import Final

INK: Final = "#24292f"
FAINT: Final = "#8c959f"
PAPER: Final = "#fafafa"
BLUE: Final = "#0969da"
GREEN: Final = "#1a7f37"
RED: Final = "#b42318"
AMBER: Final = "#9a6700"

FONT: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
CHARACTER: Final = 0.61
"""Width of a character by its height: the widest of the fonts above."""


def document(name: str, title: str, width: float, height: float, parts: list[str]) -> str:
    """A whole picture. ``name`` distinguishes its arrowheads from those of another picture on the same page."""
    heads = "".join(
        f'<marker id="{name}-{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
        for colour in (INK, FAINT, BLUE, GREEN, RED, AMBER)
    )
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    lines = [
        f'<svg {size} xmlns="http://www.w3.org/2000/svg" role="img" font-family="{FONT}">',
        f"<title>{escape(title)}</title>",
        f"<defs>{heads}</defs>",
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="6" fill="{PAPER}"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(
    x: float, y: float, shown: str, *, size: float = 12, colour: str = INK, anchor: str = "middle", bold: bool = False
) -> str:
    """One line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(shown)}</text>"
    )


def label(x: float, y: float, shown: str, *, size: float = 10.5) -> str:
    """A text that covers the lines behind it."""
    wide = width_of(shown, size)
    place = f'x="{x - wide / 2:.1f}" y="{y - size:.1f}" width="{wide:.1f}" height="{size * 1.15:.1f}"'
    behind = f'<rect {place} fill="{PAPER}"/>'
    return behind + text(x, y, shown, size=size)


def box(x: float, y: float, width: float, height: float, *, colour: str = INK, fill: str = "#ffffff") -> str:
    """A rectangle with round corners; x and y are its upper left corner."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" fill="{fill}" '
        f'stroke="{colour}" stroke-width="1.3"/>'
    )


def line(points: list[tuple[float, float]], *, colour: str = INK, dash: str = "", width: float = 1.3) -> str:
    """A line through the points."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dashes}/>'


def arrow(name: str, points: list[tuple[float, float]], *, colour: str = INK, dash: str = "") -> str:
    """A line with a head at its last point. ``name`` is the picture's."""
    return line(points, colour=colour, dash=dash).replace("/>", f' marker-end="url(#{name}-{colour[1:]})"/>')


def width_of(shown: str, size: float) -> float:
    """How wide a text is at most."""
    return len(shown) * size * CHARACTER
