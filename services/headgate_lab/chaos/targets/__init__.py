"""The databases a campaign's feed writes to, behind one protocol; a file and its parts per database.

``target`` the protocol · ``postgresql`` · ``mysql`` with ``mysql_schema`` (the shop's tables), ``mysql_audit`` (its
triggers and what they wrote down) and ``across`` (rows of two kinds of databases compared).
"""

from pathlib import Path

from headgate_lab.chaos.targets.mysql import MysqlTarget
from headgate_lab.chaos.targets.postgresql import PostgresTarget
from headgate_lab.chaos.targets.target import ChaosTarget, SinkType

__all__ = ["ChaosTarget", "SinkType", "make_target"]


def make_target(kind: SinkType, folder: Path) -> ChaosTarget:
    """The database of this kind, with its data in ``folder``; not started yet."""
    match kind:
        case SinkType.POSTGRESQL:
            return PostgresTarget(folder)
        case SinkType.MYSQL:
            return MysqlTarget(folder)
