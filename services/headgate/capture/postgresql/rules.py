"""What of a PostgreSQL has to change before Debezium can capture it. Pure: facts in, findings out."""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from headgate.capture.finding import KEYLESS, CaptureFinding, State
from headgate.capture.postgresql.facts import PostgresFacts, PostgresTable, Publication, Slot
from headgate.databases.postgresql.sql import quoted
from headgate.sources.connector_warnings import FORGOTTEN_ARRAYS, LOST_TYPES, without_length

__all__ = ["OLDEST", "postgresql_findings"]

OLDEST: Final = 100_000
"""PostgreSQL 10, the first with the plugin that the connector decodes by."""

_ROOTS: Final = 130_000
"""PostgreSQL 13, the first that publishes a partitioned table under its own name."""

_STANDBYS: Final = 160_000
"""PostgreSQL 16, the first that decodes on a standby."""

_RETAINED_BYTES_MAX: Final = 2**30
"""WAL of one inactive slot that is worth a warning: the server keeps it until its disk is full."""

_LOST: Final = "lost"
_OPERATIONS: Final = ("insert", "update", "delete")
_RESTART: Final = "Restart PostgreSQL: the setting is read at its start"

_KINDS: Final = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}


def postgresql_findings(
    facts: PostgresFacts, tables: Sequence[PostgresTable], *, publication: str, slot: str
) -> list[CaptureFinding]:
    """Every check, in the order in which a new source is set up."""
    return [
        *_server(facts),
        *_slots(facts, slot),
        *_user(facts, tables),
        *(finding for table in tables for finding in _table(table)),
        # After the tables: an unlogged one cannot be published.
        *_publication(facts, [table for table in tables if not table.is_view], publication),
    ]


def _server(facts: PostgresFacts) -> Iterator[CaptureFinding]:
    shown = f"{facts.version // 10_000}.{facts.version % 10_000}"
    if facts.version < OLDEST:
        yield CaptureFinding(
            "version", State.WRONG, f"{shown} has no pgoutput", then="Upgrade to PostgreSQL 10 or later"
        )
    elif facts.is_standby and facts.version < _STANDBYS:
        yield CaptureFinding(
            "version", State.WRONG, f"{shown}, a standby, which cannot decode", then="Give the address of the primary"
        )
    elif facts.is_standby:
        yield CaptureFinding("version", State.WARNING, f"{shown}, a standby. Its slots end when it is promoted")
    else:
        yield CaptureFinding("version", State.OK, shown)
    if facts.wal_level == "logical":
        yield CaptureFinding("wal_level", State.OK, "logical")
    else:
        yield CaptureFinding(
            "wal_level",
            State.WRONG,
            f"{facts.wal_level}: the log does not have what logical decoding needs",
            fix=("ALTER SYSTEM SET wal_level = 'logical';",),
            then=_RESTART,
        )


def _slots(facts: PostgresFacts, name: str) -> Iterator[CaptureFinding]:
    known = {slot.name: slot for slot in facts.slots}
    yield from _room("max_replication_slots", facts.slots_max, len(facts.slots), is_there=name in known)
    is_sending = name in known and known[name].is_active
    yield from _room("max_wal_senders", facts.senders_max, facts.senders, is_there=is_sending)
    yield _slot(facts, name, known.get(name))
    for slot in facts.slots:
        if slot.name != name and not slot.is_active and (slot.retained_bytes or 0) > _RETAINED_BYTES_MAX:
            yield CaptureFinding(
                "slot",
                State.WARNING,
                f"no client reads it, and it retains {(slot.retained_bytes or 0) / 2**30:.1f} GiB of WAL",
                slot.name,
                fix=(_dropped(slot.name),),
                then="Do this only if its reader will not come back",
            )


def _room(setting: str, most: int, used: int, *, is_there: bool) -> Iterator[CaptureFinding]:
    if used < most or is_there:
        yield CaptureFinding(setting, State.OK, f"{used} of {most} in use")
    else:
        yield CaptureFinding(
            setting,
            State.WRONG,
            f"all {most} are in use, and the connector needs one",
            fix=(f"ALTER SYSTEM SET {setting} = {max(10, used + 4)};",),
            then=_RESTART,
        )


def _slot(facts: PostgresFacts, name: str, slot: Slot | None) -> CaptureFinding:
    if slot is None:
        return CaptureFinding("slot", State.OK, _NO_SLOT, name)
    if slot.plugin != "pgoutput" or slot.database != facts.database:
        what = "is a physical slot" if slot.plugin is None else f"decodes {slot.database} by {slot.plugin}"
        return CaptureFinding(
            "slot",
            State.WRONG,
            f"{what}, so the connector cannot use it",
            name,
            then="Choose another name with --slot, and as the connector's slot.name",
        )
    if slot.wal_status == _LOST:
        return CaptureFinding(
            "slot",
            State.WRONG,
            "the server has removed WAL that it had yet to send",
            name,
            fix=(_dropped(name),),
            then="Let the connector take a new snapshot",
        )
    return CaptureFinding(
        "slot", State.OK, "in use by a connector" if slot.is_active else "exists, and no client reads it", name
    )


_NO_SLOT: Final = (
    "does not exist. A new connector creates it. A connector that has read from it before has lost changes and needs a "
    "new snapshot: give it another name, or delete its offsets"
)


def _dropped(slot: str) -> str:
    """A slot's name consists of letters, digits and underscores."""
    return f"SELECT pg_drop_replication_slot('{slot}');"


def _user(facts: PostgresFacts, tables: Iterable[PostgresTable]) -> Iterator[CaptureFinding]:
    role = quoted(facts.user)
    if facts.replication_grant is None:
        yield CaptureFinding("replication", State.OK, "may open replication connections", facts.user)
    else:
        yield CaptureFinding(
            "replication",
            State.WRONG,
            "may not open replication connections",
            facts.user,
            fix=(f"{facts.replication_grant};",),
        )
    closed = [table for table in tables if not table.may_select]
    schemas = dict.fromkeys(table.schema for table in closed if not table.may_use_schema)
    fix = [f"GRANT USAGE ON SCHEMA {quoted(schema)} TO {role};" for schema in schemas]
    fix += [f"GRANT SELECT ON {quoted(table.schema, table.table)} TO {role};" for table in closed]
    if closed:
        names = ", ".join(table.name for table in closed)
        yield CaptureFinding(
            "select", State.WRONG, f"may not read {names}, which a snapshot does", facts.user, tuple(fix)
        )
    else:
        yield CaptureFinding("select", State.OK, "may read every table", facts.user)


def _publication(facts: PostgresFacts, tables: Sequence[PostgresTable], name: str) -> Iterator[CaptureFinding]:
    needs_root = any(table.is_partitioned for table in tables) and facts.version >= _ROOTS
    listed = ", ".join(quoted(table.schema, table.table) for table in tables)
    found = next((each for each in facts.publications if each.name == name), None)
    if found is None:
        root = " WITH (publish_via_partition_root = true)" if needs_root else ""
        what = f"FOR TABLE {listed}{root}" if tables else "FOR ALL TABLES"
        yield CaptureFinding(
            "publication",
            State.WRONG,
            "does not exist",
            name,
            fix=(f"CREATE PUBLICATION {quoted(name)} {what};",),
        )
        return
    yield from _publishes(found, needs_root=needs_root)
    missing = [table for table in tables if not _has(found, table)]
    if missing:
        listed = ", ".join(quoted(table.schema, table.table) for table in missing)
        yield CaptureFinding(
            "publication",
            State.WRONG,
            f"does not publish {', '.join(table.name for table in missing)}",
            name,
            fix=(f"ALTER PUBLICATION {quoted(name)} ADD TABLE {listed};",),
        )
    filtered = [table.name for table in tables if (table.schema, table.table) in found.filtered]
    if filtered:
        yield CaptureFinding("publication", State.WARNING, f"publishes only some rows of {', '.join(filtered)}", name)


def _publishes(found: Publication, *, needs_root: bool) -> Iterator[CaptureFinding]:
    fix = []
    lacking = [word for word in _OPERATIONS if word not in found.operations]
    if lacking:
        fix.append(f"ALTER PUBLICATION {quoted(found.name)} SET (publish = 'insert, update, delete, truncate');")
    if needs_root and not found.via_root:
        fix.append(f"ALTER PUBLICATION {quoted(found.name)} SET (publish_via_partition_root = true);")
    if not fix:
        yield CaptureFinding("publication", State.OK, "publishes inserts, updates and deletes", found.name)
        return
    says = [f"does not publish {' and '.join(f'{word}s' for word in lacking)}"] if lacking else []
    says += ["publishes partitions as tables of their own"] if needs_root and not found.via_root else []
    yield CaptureFinding("publication", State.WRONG, ", and ".join(says), found.name, fix=tuple(fix))


def _has(publication: Publication, table: PostgresTable) -> bool:
    return publication.all_tables or (table.schema, table.table) in publication.tables


def _table(table: PostgresTable) -> Iterator[CaptureFinding]:
    name = table.name
    if table.kind in _KINDS:
        yield CaptureFinding(
            "table",
            State.WRONG,
            f"is {_KINDS[table.kind]}, which has no changes of its own",
            name,
            then="Leave it out with --tables",
        )
        return
    problems = [
        *_unlogged(table, name),
        *_identity(table, name),
        *_types(table, name),
    ]
    yield from problems or [CaptureFinding("table", State.OK, table.shown_key, name)]


def _unlogged(table: PostgresTable, name: str) -> Iterator[CaptureFinding]:
    found = [each for each in table.parts if each.is_unlogged]
    if found:
        yield CaptureFinding(
            "table",
            State.WRONG,
            "is unlogged, so its changes are not in the log",
            name,
            fix=tuple(f"ALTER TABLE {quoted(each.schema, each.table)} SET LOGGED;" for each in found),
        )


def _identity(table: PostgresTable, name: str) -> Iterator[CaptureFinding]:
    """What updates and deletes contain of their former row: enough to find it."""
    if table.key:
        kinds = {"n": "is NOTHING", "i": "is an index that need not be the key"}
        says = next((what for identity, what in kinds.items() if _to_set(table, "DEFAULT", {identity})), "")
        fix = _to_set(table, "DEFAULT", kinds)
        if fix:
            says += ", so updates and deletes do not contain the key of their row"
            yield CaptureFinding("replica identity", State.WRONG, says, name, fix=fix)
    elif table.unique_index is not None:
        fix = _to_set(table, "FULL", "dn")
        if fix and not table.partitions:
            fix = _to_set(table, f"USING INDEX {quoted(table.unique_index)}", "dn")
        if fix:
            says = f"is not that of {table.unique_index}, so {_REFUSED}"
            yield CaptureFinding("replica identity", State.WRONG, says, name, fix=fix)
    else:
        fix = _to_set(table, "FULL", "din")
        says = "has none, so updates and deletes do not identify their row" + (f", and {_REFUSED}" if fix else "")
        yield CaptureFinding("primary key", State.WRONG if fix else State.WARNING, says, name, fix=fix, then=KEYLESS)


_REFUSED: Final = "PostgreSQL refuses updates and deletes once the table is published"


def _to_set(table: PostgresTable, identity: str, wrong: Container[str]) -> tuple[str, ...]:
    """The statements that give it to the table and its partitions, where they have a ``wrong`` one."""
    found = [each for each in table.parts if each.identity in wrong]
    return tuple(f"ALTER TABLE {quoted(each.schema, each.table)} REPLICA IDENTITY {identity};" for each in found)


def _types(table: PostgresTable, name: str) -> Iterator[CaptureFinding]:
    kinds = {column.name: without_length(column.type) for column in table.columns}
    lost = [f"{column} ({kind})" for column, kind in kinds.items() if kind in LOST_TYPES]
    if lost:
        yield CaptureFinding("column types", State.WARNING, f"the connector does not write {', '.join(lost)}", name)
    forgotten = [f"{column} ({kind})" for column, kind in kinds.items() if kind in FORGOTTEN_ARRAYS]
    fix = _to_set(table, "FULL", "din")
    if forgotten and fix:
        yield CaptureFinding(
            "column types",
            State.WARNING,
            f"an UPDATE that does not touch a large array sets it to NULL: {', '.join(forgotten)}",
            name,
            fix=fix,
        )
