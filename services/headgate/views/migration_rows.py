"""Migrations as rows, equal to those of `headgate migration list`: from the same records, with the same words."""

import re
from typing import Any, Final

import msgspec

from headgate.eventlog.snapshot import Snapshot
from headgate.records.migration import MigrationKey, MigrationRecorded
from headgate.records.migration_standing import percent_of_stage, seconds_in_stages, waits_for

NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""Names of connections; no address is one."""


class MigrationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schema change. ``percent`` is of the present stage, None where nothing can be counted; ``stages``: seconds."""

    id: str
    state: str
    stage: str
    percent: int | None
    rows_copied: int
    table_rows: int
    eta_seconds: int
    throttle_reason: str
    waits_for: str
    stages: dict[str, float]
    table: str
    statement: str
    strategy: str
    database: str
    context: str
    submitted_by: str
    approved_by: str
    retries: int
    message: str
    added_ms: int
    started_ms: int
    ended_ms: int


def migration_rows(snapshot: Snapshot, now_ms: int) -> list[MigrationRow]:
    """All of them, in the order of their submission."""
    found = snapshot.each(MigrationKey, MigrationRecorded)
    placed = sorted(((key.migration, record) for key, record in found), key=lambda item: (item[1].sequence, item[0]))
    return [_row(name, record, now_ms) for name, record in placed]


def migration_row(snapshot: Snapshot, name: str, now_ms: int) -> MigrationRow | None:
    """One of them, None if it does not exist."""
    record = snapshot.get(MigrationKey(name), MigrationRecorded)
    return None if record is None else _row(name, record, now_ms)


def _row(name: str, record: MigrationRecorded, now_ms: int) -> MigrationRow:
    spec = _spec_of(record)
    return MigrationRow(
        id=name,
        state=record.state.value,
        stage=record.stage,
        percent=percent_of_stage(record),
        rows_copied=record.rows_copied,
        table_rows=record.table_rows,
        eta_seconds=record.eta_seconds,
        throttle_reason=record.throttle_reason,
        waits_for=waits_for(name, record, now_ms),
        stages=seconds_in_stages(record, now_ms),
        table=record.table,
        statement=str(spec.get("statement", "")),
        strategy=str(spec.get("strategy", "")),
        database=_connection(spec),
        context=str(spec.get("context", "")),
        submitted_by=record.submitted_by,
        approved_by=record.approved_by,
        retries=record.retries,
        message=record.message,
        added_ms=record.added_ms,
        started_ms=record.started_ms,
        ended_ms=record.ended_ms,
    )


def _spec_of(record: MigrationRecorded) -> dict[str, Any]:
    """The spec as JSON: records of any version are shown, whatever options they have."""
    try:
        found = msgspec.json.decode(record.spec)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _connection(spec: dict[str, Any]) -> str:
    """The connection's name; records of earlier versions have an address in its place, which is not shown."""
    database = str(spec.get("database", ""))
    is_by_address = spec.keys() & {"password_file", "connection"} or NAME.fullmatch(database) is None
    return str(spec.get("connection") or "") if is_by_address else database
