"""The picture of the architecture: the way of a change, and below it who writes each control topic.

The lower half is made from the table of rights and the list of control topics. The upper half is drawn here.
"""

from typing import Final

from headgate.config.rights import RIGHTS, Resource
from headgate.eventlog.topics import CONTROL_TOPICS
from headgate_lab.pages import svg

_NAME: Final = "architecture"
_TITLE: Final = "The way of a change from the source to the target, and the writers of each control topic"

_WAY: Final = (
    ("source", "PostgreSQL, MariaDB, …"),
    ("connector", "Debezium, or another"),
    ("change topics", "Kafka"),
    ("agents", "Spark streaming queries"),
    ("target", "database, lake, topics"),
)
_WIDTH: Final = 900.0
_BOX: Final = (144.0, 50.0)
_SERVICES_AT: Final = 138.0
_TOPICS_AT: Final = 208.0
_ROW: Final = 25.0
_TOPICS_WIDTH: Final = 160.0

_CONSUMERS: Final = ("sink", "reader", "writer", "ingest")
"""Clients of change logs and of Kafka sinks, which are not in the picture."""


def picture() -> str:
    """pictures/architecture.svg."""
    topics = [topic.name for topic in CONTROL_TOPICS]
    height = _TOPICS_AT + _ROW * len(topics) + 34
    return svg.document(_NAME, _TITLE, _WIDTH, height, [*_way_of_a_change(), *_control(topics, height)])


def _way_of_a_change() -> list[str]:
    wide, high = _BOX
    gap = (_WIDTH - 40 - wide * len(_WAY)) / (len(_WAY) - 1)
    parts = []
    for at, (what, example) in enumerate(_WAY):
        x = 20 + at * (wide + gap)
        parts.append(svg.box(x, 30, wide, high, colour=svg.BLUE if what == "agents" else svg.INK))
        parts.append(svg.text(x + wide / 2, 52, what, bold=True))
        parts.append(svg.text(x + wide / 2, 69, example, size=9.5, colour=svg.FAINT))
        if at:
            parts.append(svg.arrow(_NAME, [(x - gap + 2, 55), (x - 2, 55)], colour=svg.BLUE))
    parts.append(
        svg.text(_WIDTH - 20, 20, "rows and positions in one transaction", size=9.5, colour=svg.FAINT, anchor="end")
    )
    return parts


def _control(topics: list[str], height: float) -> list[str]:
    writers = _writers()
    services = list(dict.fromkeys(who for who in _order() if any(who in writers[topic] for topic in topics)))
    first = _TOPICS_WIDTH + 70
    step = (_WIDTH - first - 70) / (len(services) - 1)
    columns = {who: first + at * step for at, who in enumerate(services)}
    parts = [svg.text(20, _SERVICES_AT + 17, "control topics", anchor="start", bold=True)]
    parts.append(svg.text(20, _SERVICES_AT + 33, "compacted", size=9.5, colour=svg.FAINT, anchor="start"))
    for who, x in columns.items():
        lowest = max(at for at, topic in enumerate(topics) if who in writers[topic])
        bottom = _TOPICS_AT + lowest * _ROW + 12
        parts.append(svg.line([(x, _SERVICES_AT + 26), (x, bottom)], colour=svg.FAINT))
        wide = max(svg.width_of(who, 12) + 14, 90)
        parts.append(svg.box(x - wide / 2, _SERVICES_AT, wide, 26, colour=svg.BLUE if who == "agent" else svg.INK))
        parts.append(svg.text(x, _SERVICES_AT + 17.5, who, bold=True))
    for at, topic in enumerate(topics):
        y = _TOPICS_AT + at * _ROW
        parts.append(svg.line([(20 + _TOPICS_WIDTH, y + 12), (_WIDTH - 20, y + 12)], colour=svg.FAINT, dash="1 4"))
        parts.append(svg.box(20, y + 2, _TOPICS_WIDTH, 20, colour=svg.FAINT))
        parts.append(svg.text(30, y + 16, topic, size=11, anchor="start"))
        parts += [
            f'<circle cx="{columns[who]:.1f}" cy="{y + 12:.1f}" r="4.5" fill="{svg.GREEN}"/>'
            for who in services
            if who in writers[topic]
        ]
    parts.append(
        svg.text(20, height - 12, "A dot: may write it. Each may read all of them.", size=10.5, anchor="start")
    )
    return parts


def _order() -> list[str]:
    return [right.who for right in RIGHTS if right.who not in _CONSUMERS]


def _writers() -> dict[str, set[str]]:
    """Control topic → the services that have the right to write it."""
    writers: dict[str, set[str]] = {topic.name: set() for topic in CONTROL_TOPICS}
    for right in RIGHTS:
        if right.resource is Resource.TOPIC and "Write" in right.operations and isinstance(right.names, tuple):
            for name in right.names:
                topic = name.removeprefix("{cluster}.")
                if topic in writers:
                    writers[topic].add(right.who)
    return writers
