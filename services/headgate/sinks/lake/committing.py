"""The driver's commit of one table: rows, positions and the fence in one entry of the table's log."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headgate.config.crash_points import CrashPoint, reach
from headgate.sinks.contract import (
    Claim,
    ConstraintViolatedError,
    OffsetRange,
    SinkMovedError,
    SinkRefusedError,
)
from headgate.sinks.lake.attempts import until_committed
from headgate.sinks.lake.claims import Claims, about_attempt
from headgate.sinks.lake.shape import LakeShape, shape_of
from headgate.sinks.lake.staged_rows import GONE, OFFSET, PARTIAL, PARTITION, absent_column, column, unpack
from headgate.sinks.lake.tables import POSITIONS, Lake, Stamp, Upserts, VersionedTable, position_key
from headgate.sinks.on_driver import Commit

__all__ = ["LakeCommitter", "named_rows", "position_stamp"]

_NUMBER: Final = "number"
"""A row's place among all of the commit."""


class LakeCommitter:
    """Commits to tables of one lake."""

    def __init__(self, lake: Lake, claims: Claims, *, appends: bool, keeps_columns: bool = False) -> None:
        self._lake = lake
        self._claims = claims
        self._appends = appends
        self._keeps_columns = keeps_columns

    def commit(self, commit: Commit) -> None:
        """See Committer. A table that was changed by others in between is read, and its claim checked, again."""
        kept = False

        def attempt() -> None:
            nonlocal kept
            table = self._claims.held_table(commit.claim, commit.ranges)
            self._record(commit, table)
            if commit.keep is not None and not kept:
                commit.keep()
                kept = True
            reach(CrashPoint.ROWS_SENT)
            self._write(commit, table)

        doing = about_attempt(commit.claim)
        with self._lake.as_sink_errors(doing):
            until_committed(doing, attempt)
        reach(CrashPoint.COMMITTED)

    def close(self) -> None:
        """See Committer."""

    def _record(self, commit: Commit, table: VersionedTable) -> None:
        """Store what the batch shows of the source's table and columns, under the claim."""
        if commit.source_table is not None:
            self._claims.record_source(commit.claim, commit.ranges, table, commit.source_table)
        if self._keeps_columns and any(commit.payloads):
            shape = shape_of(table, commit.claim.table, appends=self._appends)
            columns = shape.columns.keys() - shape.own_columns
            self._claims.change_known_columns(
                commit.claim, commit.ranges, table, lambda known: known.with_applied(columns)
            )

    def _write(self, commit: Commit, table: VersionedTable) -> None:
        claim = commit.claim
        stamp = position_stamp(claim, commit.ranges)
        shape = shape_of(table, claim.table, appends=self._appends)
        rows, key = _joined(commit, shape)
        if rows is None:
            table.mark(stamp)
        elif self._appends:
            table.append(named_rows(rows, shape), stamp)
        else:
            latest = _latest(rows, shape, key, commit)
            _check_partial(table, latest, shape, key, commit)
            table.upsert(Upserts(latest, tuple(shape.columns), key), stamp)


def position_stamp(claim: Claim, ranges: Mapping[int, OffsetRange]) -> Stamp:
    """What a commit has of the positions at the ends of ``ranges``."""
    transactions = {position_key(claim, claim.incarnation, partition): span.next for partition, span in ranges.items()}
    positions = {str(partition): span.next for partition, span in sorted(ranges.items())}
    about = {
        "headgate.feed": claim.identity.feed,
        "headgate.epoch": str(claim.epoch),
        POSITIONS: msgspec.json.encode({claim.topic: positions}).decode(),
    }
    return Stamp(transactions, about)


def _joined(commit: Commit, shape: LakeShape) -> tuple[pa.Table | None, tuple[str, ...]]:
    """All rows that were staged, in their order, and their key."""
    payloads = [unpack(payload) for payload in commit.payloads if payload]
    if not payloads:
        return None, ()
    for payload in payloads:
        if payload.about.types != shape.types:
            raise SinkMovedError(
                f"{commit.claim.table}: the table was altered while the batch was read. The batch is read again"
            )
    keys = {payload.about.key for payload in payloads if payload.about.key}
    if len(keys) > 1:
        raise SinkRefusedError(
            f"{commit.claim.table}: events of topic {commit.claim.topic} have different key columns: "
            f"{' and '.join(', '.join(key) for key in sorted(keys))}"
        )
    return pa.concat_tables([payload.rows for payload in payloads], promote_options="default"), next(iter(keys), ())


def named_rows(rows: pa.Table, shape: LakeShape) -> pa.Table:
    """Rows under the table's own names."""
    return rows.rename_columns(list(shape.columns))


def _numbers(shape: LakeShape, key: Sequence[str]) -> list[str]:
    names = list(shape.columns)
    return [column(names.index(name)) for name in key]


def _latest(rows: pa.Table, shape: LakeShape, key: Sequence[str], commit: Commit) -> pa.Table:
    """The last row per key. Each task has reduced its own, so there is something to do for several tasks only."""
    by = _numbers(shape, key)
    numbers = pa.array(range(rows.num_rows), pa.int64())
    last = rows.select(by).append_column(_NUMBER, numbers).group_by(by).aggregate([(_NUMBER, "max")])
    if last.num_rows == rows.num_rows:
        return rows
    if any(absent_column(number) in rows.column_names for number in range(len(shape.columns))):
        return _folded(rows, shape, by, commit)
    return rows.take(last[f"{_NUMBER}_max"])


def _folded(rows: pa.Table, shape: LakeShape, by: Sequence[str], commit: Commit) -> pa.Table:
    """The same where later rows lack columns, whose values an earlier row of the key may have."""
    flags = [number for number in range(len(shape.columns)) if absent_column(number) in rows.column_names]
    folded: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows.to_pylist():
        key = tuple(row[name] for name in by)
        earlier = folded.pop(key, None)
        folded[key] = row
        if earlier is None or row[GONE]:
            continue
        if earlier[GONE] and row.get(PARTIAL):
            raise _orphan(commit, row)
        for number in flags:
            if row[absent_column(number)] and earlier[GONE]:
                row[absent_column(number)] = False
            elif row[absent_column(number)]:
                row[column(number)] = earlier[column(number)]
                row[absent_column(number)] = earlier[absent_column(number)]
        if PARTIAL in row:
            row[PARTIAL] = row[PARTIAL] and earlier[PARTIAL]
    return pa.Table.from_pylist(list(folded.values()), schema=rows.schema)


def _check_partial(table: VersionedTable, rows: pa.Table, shape: LakeShape, key: Sequence[str], commit: Commit) -> None:
    """Raise ConstraintViolatedError where a row leaves out values and the table does not have it."""
    if PARTIAL not in rows.column_names:
        return
    partial = rows.filter(pc.fill_null(rows[PARTIAL], False))
    if not partial.num_rows:
        return
    by = _numbers(shape, key)
    known = table.keys(key).rename_columns(by)
    known = known.cast(partial.select(by).schema)
    lacking = partial.select([*by, PARTITION, OFFSET]).join(known, by, join_type="left anti")
    if lacking.num_rows:
        raise _orphan(commit, lacking.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")]).to_pylist()[0])


def _orphan(commit: Commit, row: Mapping[str, object]) -> ConstraintViolatedError:
    partition, offset = int(str(row[PARTITION])), int(str(row[OFFSET]))
    claim = commit.claim
    return ConstraintViolatedError(
        f"{claim.table}: the event leaves out unchanged columns, but the table does not have the row. Either the "
        "connector sends its last changes again and the row's delete follows, or the row was never written or was "
        "deleted at the sink. In the second case, let the source send whole rows (PostgreSQL: REPLICA IDENTITY FULL) "
        f"[topic {claim.topic}, partition {partition}, offset {offset}]",
        partition,
        offset,
    )
