"""Every clause, by each strategy, at each database, ends as the server's own statement does on a twin of the table.

The twin is in a schema of its own, gets the same writes, and then the statement. Compared are the rows, the product's
fingerprint, and what the catalogue itself tells. A clause that a strategy refuses leaves everything as it was.

``make test`` tries a few cells, drawn by its seed; ``make test-long`` tries all.
"""

import itertools
import random
import traceback
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest
from msgspec.structs import replace

from fixtures.services import database_connect
from headgate.databases.postgresql import sql
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.migration.core import effects as fx
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.shell.work import MigrationWork
from headgate.migration.statements.clauses import CLAUSES, DialectName, Support
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.mariadb.fingerprint import facts_of as mariadb_facts
from headgate.migration.strategies.postgresql.fingerprint import facts_of as postgres_facts
from headgate.migration.strategies.target import NO_CLUSTER
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.migration import MigrationStrategy
from headgate_lab.schema_changes.case import Case, changing
from headgate_lab.schema_changes.cases import CASES, TABLES, cases_of, drawn, together
from headgate_lab.schema_changes.load import COLUMNS, Batch, ClientHistory
from headgate_lab.schema_changes.outcome import outcome_of
from headgate_lab.schema_changes.postgresql_cases import IDENTITY_IS_FAR
from headgate_lab.schema_changes.refusal import refusal
from integration.migration.played import WHOLE, Played
from integration.migration.tool_change import owned
from support.connections import described
from support.migration_records import recorded
from support.waiting import eventually

pytestmark = pytest.mark.integration

SEED = 33
"""Where pytest-randomly, whose seed `make test SEED=…` gives, is switched off."""

ONLINE_CELLS, DIRECT_CELLS = 2, 2
"""Of each database in ``make test``: 40 s for both on a busy machine."""

TOGETHER_CELLS, TOGETHER_CELLS_LONG = 1, 40
"""Statements of several clauses, of each database."""

PT_OSC_MORE: Final = (
    changing("modify-column", "MODIFY s varchar(60) CHARACTER SET utf8mb4 FIRST, ADD COLUMN c int AFTER s"),
    changing("change-column", "CHANGE s title varchar(30) DEFAULT 'é'"),
    changing("rename-column", "RENAME COLUMN a TO amount"),
    changing("drop-column", "DROP COLUMN a"),
    changing("add-unique", "ADD UNIQUE KEY by_both (a, id)", lossy=("a", "id")),
)
"""Cases like those that pt-osc refuses, written so that it does them or refuses them for another reason."""

PT_OSC_REFUSES: Final = {
    "modify-column: MODIFY S varchar(60) CHARACTER SET utf8mb4 FIRST, ADD COLUMN c int AFTER S": "letter by letter",
    "change-column: CHANGE S title varchar(30) DEFAULT 'é'": "letter by letter",
    "rename-column: RENAME COLUMN A TO amount, DROP COLUMN d": "letter by letter",
    "rename-column: RENAME COLUMN a TO amount": "write CHANGE COLUMN",
    "drop-column: DROP COLUMN a, ADD COLUMN a int DEFAULT 47": "another one after the change",
    "add-unique: ADD UNIQUE KEY by_both (a, id)": "drops rows that become equal",
    "add-primary: DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)": "no unique key without NULLs",
    "drop-constraint: DROP CONSTRAINT positive": "has CONSTRAINT `positive`",
}
"""Cases of clauses that are copied which pt-osc refuses, and a part of the reason."""

WITHOUT_NAMED: Final = "ALTER TABLE items DROP CONSTRAINT positive"
"""pt-osc refuses tables with such constraints, so its cells use a table without, except for drop-constraint."""

DATABASES: Final[tuple[DialectName, ...]] = ("mysql", "postgres")
EPOCH = datetime(1970, 1, 1)


class Bed:
    """A database with the standard tables twice: where the product works, and their twin."""

    def __init__(self, url: str, folder: Path) -> None:
        parts = urlsplit(url)
        self.url, self.folder = url, folder
        self.dialect: DialectName = "mysql" if parts.scheme == "mysql" else "postgres"
        self.is_mariadb = self.dialect == "mysql"
        own = parts.path.strip("/")
        self.schemas = (own, f"{own}_twin") if self.is_mariadb else ("public", "twin")
        self._session = database_connect(url)
        self._session.cursor().execute("SELECT 1")
        (folder / "password").write_text(unquote(parts.password or ""), encoding="utf-8")
        address = f"{parts.scheme}://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
        self.connection = described(address, folder / "password")

    def run(self, schema: str, *statements: str) -> list[tuple[Any, ...]]:
        """Statements with that schema as the default one."""
        with self._session.cursor() as cursor:
            cursor.execute(f"USE {schema}" if self.is_mariadb else f"SET search_path = {schema}")
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def roll_back(self) -> None:
        """End a transaction in which a statement has failed."""
        self._session.rollback()

    def both(self, *statements: str) -> None:
        for schema in self.schemas:
            self.run(schema, *statements)

    def make(self, case: Case, load: ClientHistory) -> None:
        """Both tables, fresh, as the case needs them."""
        for schema in self.schemas:
            self._empty(schema)
            self.run(schema, *TABLES[self.dialect])
        self.run(
            self.schemas[0],
            "DROP DATABASE IF EXISTS headgate" if self.is_mariadb else "DROP SCHEMA IF EXISTS headgate CASCADE",
        )
        if not self.is_mariadb:
            self.run("public", "DROP PUBLICATION IF EXISTS captured")
            self.run("public", "CREATE PUBLICATION captured FOR TABLE public.items, twin.items")
        self.both(*case.prepare)
        self.both(*in_one(load.first()))

    def _empty(self, schema: str) -> None:
        if self.is_mariadb:
            self.run(self.schemas[0], f"CREATE OR REPLACE DATABASE {schema} CHARACTER SET utf8mb4")
        else:
            self.run("public", f"DROP SCHEMA IF EXISTS {schema} CASCADE", f"CREATE SCHEMA {schema}")

    def outcome(self, schema: str) -> dict[str, list[tuple[Any, ...]]]:
        """What there is, and the product's own fingerprint of the table."""
        found = outcome_of(lambda query: self.run(schema, query), self.dialect, schema)
        if ("items",) in found["tables"]:
            found["fingerprint"] = sorted(self._facts(schema))
        return found

    def _facts(self, schema: str) -> list[tuple[Any, ...]]:
        if self.is_mariadb:
            facts = mariadb_facts(self.run(schema, "SHOW CREATE TABLE items")[0][1].replace("CREATE ", "", 1))
        else:
            self.run("pg_catalog", "SELECT 1")
            facts = postgres_facts(self._session, sql.Identifier(schema, "items"))
        named = (f"{schema}.", "public.")
        texts = {fact: fact.text.replace(named[0], "").replace(named[1], "") for fact in facts}
        return [(fact.aspect, fact.subject, text, fact.column) for fact, text in texts.items()]

    def events(self, batch: Batch) -> list[Change]:
        """As a connector tells of these rows."""
        columns = [*COLUMNS, *(["twice"] if self.is_mariadb else [])]
        ids = ", ".join(map(str, sorted(batch.ids)))
        rows = self.run(self.schemas[0], f"SELECT {', '.join(columns)} FROM items WHERE id IN ({ids})")
        found = {row[0]: dict(zip(columns, map(_told, row), strict=True)) for row in rows}
        semantics = {"at": "io.debezium.time.MicroTimestamp", CONNECTOR: "mariadb" if self.is_mariadb else "postgresql"}
        changes = []
        for number in sorted(batch.ids):
            operation = Operation.UPSERT if number in found else Operation.DELETE
            changes.append(Change(0, 0, operation, {"id": number}, found.get(number), None, 0, semantics))
        return changes

    def write(self, load: ClientHistory) -> list[Change]:
        batch = load.batch()
        self.both(*in_one(batch))
        return self.events(batch)

    def close(self) -> None:
        self._session.close()


def in_one(batch: Batch) -> tuple[str, ...]:
    """In one transaction: each commit waits for the disk."""
    return ("START TRANSACTION", *batch.statements, "COMMIT")


def _told(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - EPOCH).total_seconds() * 1_000_000)
    return value if isinstance(value, int) or value is None else str(value)


@pytest.fixture
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    fixture = "mariadb_database" if request.param == "mysql" else "postgres_database"
    with closing(Bed(request.getfixturevalue(fixture), tmp_path)) as found:
        yield found
        if found.is_mariadb:
            found.run(found.schemas[0], f"DROP DATABASE IF EXISTS {found.schemas[1]}")
        else:
            found.run("public", "DROP PUBLICATION IF EXISTS captured")


# --- a cell ---


def own_statement(bed: Bed, case: Case) -> str | None:
    """The statement at the twin; the server's error if it refuses."""
    try:
        bed.run(bed.schemas[1], case.statement)
    except (psycopg.Error, pymysql.Error) as error:
        return refusal(error)
    return None


def tried(bed: Bed, case: Case) -> str | None:
    """The server's error if the tables cannot be made as the case needs them, or if it refuses the statement."""
    try:
        bed.make(case, ClientHistory(random.Random(SEED)))  # noqa: S311 - a load is its seed
    except (psycopg.Error, pymysql.Error) as error:
        bed.roll_back()
        return refusal(error)
    return own_statement(bed, case)


def check_equal(bed: Bed, case: Case) -> None:
    wanted = own_statement(bed, case)
    assert wanted is None, f"{case.name}: the product did what the server refuses: {wanted}"
    check_alike(bed, case)


def check_alike(bed: Bed, case: Case) -> None:
    product, twin = map(bed.outcome, bed.schemas)
    assert product == twin, case.name


def online(bed: Bed, case: Case, seed: int) -> None:
    """The writes: before the copy, beside it, of copied rows, after the comparison, and as the table is locked."""
    load = ClientHistory(random.Random(seed))  # noqa: S311 - a load is its seed
    bed.make(case, load)
    bed.write(load)
    with closing(
        Played(bed.url, bed.folder, case.statement.removeprefix("ALTER TABLE items "), allow_lossy=case.lossy)
    ) as change:
        try:
            change.make()
        except RefusedError as error:
            if not case.refusal or case.refusal not in str(error):
                raise
            check_alike(bed, case)
            return
        beside = bed.write(load)
        change.copied()
        change.send(*beside)
        change.send(*bed.write(load))
        assert change.lane.differing(change.plan, WHOLE) == [], case.name
        touched = change.followed()
        change.send(*bed.write(load))
        change.late(*bed.write(load))
        change.cut_over(touched)
        assert change.is_changed
        change.lane.settle(change.plan)
    check_equal(bed, case)


def refused(bed: Bed, case: Case, strategy: MigrationStrategy) -> None:
    bed.make(case, ClientHistory(random.Random(1)))  # noqa: S311 - a load is its seed
    before = bed.outcome(bed.schemas[0])
    with closing(MigrationWork(cluster_id=NO_CLUSTER)) as work:
        for reads_only in (True, False):
            told = work.run(fx.ExamineMigration("r", "m", spec_of(bed, case, strategy), reads_only=reads_only))
            assert isinstance(told, fx.ExamineRefused), (case.name, told)
    assert bed.outcome(bed.schemas[0]) == before, case.name


def spec_of(bed: Bed, case: Case, strategy: MigrationStrategy) -> MigrationSpec:
    return MigrationSpec(
        statement=case.statement,
        database=bed.connection,
        strategy=strategy,
        topic="topic" if strategy is MigrationStrategy.ONLINE else None,
        allow_lossy=() if strategy is MigrationStrategy.DIRECT else case.lossy,
        cutover_threshold_seconds=30.0,
    )


def direct(bed: Bed, case: Case, seed: int) -> None:
    """The writes: before the statement, and in a transaction that it waits for."""
    load = ClientHistory(random.Random(seed))  # noqa: S311 - a load is its seed
    bed.make(case, load)
    bed.write(load)
    late = load.batch()
    spec = spec_of(bed, case, MigrationStrategy.DIRECT)
    record = recorded(written(spec))
    with (
        closing(MigrationWork(cluster_id=NO_CLUSTER)) as work,
        closing(database_connect(bed.url)) as client,
        client.cursor() as cursor,
    ):
        examined = work.run(fx.ExamineMigration("r", "m", spec))
        for statement in ("START TRANSACTION", *late.statements):
            cursor.execute(statement)
        told = work.run(fx.StartMigration("m", record, owner_rev=1))
        cursor.execute("COMMIT")
        bed.run(bed.schemas[1], *in_one(late))

        def ended() -> Any:
            found = (
                told if not isinstance(told, fx.Progressed) else work.run(fx.WatchMigration("m", record, owner_rev=1))
            )
            return None if isinstance(found, fx.Progressed) else found

        end = eventually(ended, f"{case.name} ends")
    if isinstance(end, fx.Completed):
        assert isinstance(examined, fx.Examined), (case.name, examined)
        check_equal(bed, case)
        return
    before = bed.outcome(bed.schemas[1])
    assert bed.outcome(bed.schemas[0]) == before, f"{case.name}: untouched"
    assert own_statement(bed, case) is not None, f"{case.name}: the server does it, the product does not: {end}"


def pt_osc_refuses(case: Case) -> str | None:
    """A part of the reason. A case that may lose values says what it accepts."""
    return None if case.lossy else PT_OSC_REFUSES.get(case.name)


def by_pt_osc(bed: Bed, case: Case, seed: int, program: Path) -> None:
    """The writes: before it begins, and in each stage up to the renaming, while the program waits."""
    load = ClientHistory(random.Random(seed))  # noqa: S311 - a load is its seed
    if case.clause != "drop-constraint":
        case = replace(case, prepare=(WITHOUT_NAMED, *case.prepare))
    bed.make(case, load)
    bed.write(load)
    with owned(bed.folder, pt_osc=str(program)) as make:
        one = make(spec_of(bed, case, MigrationStrategy.PT_OSC), 1)
        examined = one.examine()
        if (why := pt_osc_refuses(case)) is not None:
            assert isinstance(examined, fx.ExamineRefused), (case.name, examined)
            assert why in examined.reason, (case.name, examined)
            check_alike(bed, case)
            return
        assert isinstance(examined, fx.Examined), (case.name, examined)
        written_at = ("making the copy", "making triggers", "copying", "copied", "renaming")
        for stage in written_at:
            one.at[stage] = partial(bed.write, load)
        begun = one.start()
        assert isinstance(begun, fx.Progressed), (case.name, begun)
        end = one.ended()
        assert isinstance(end, fx.Completed), (case.name, end)
        assert one.at == {}, f"{case.name}: rows were written in each stage"
        one.stands(replace(one.record, artifacts=end.artifacts))
        assert one.do(fx.CleanUpMigration) == fx.CleanedUp()
    check_equal(bed, case)


def try_cell_by_pt_osc(bed: Bed, case: Case, program: Path) -> None:
    if CLAUSES[bed.dialect][case.clause].support is Support.COPIED:
        by_pt_osc(bed, case, SEED, program)
    else:
        refused(bed, case, MigrationStrategy.PT_OSC)


def try_cell(bed: Bed, case: Case, strategy: MigrationStrategy) -> None:
    support = CLAUSES[bed.dialect][case.clause].support
    if support is Support.REFUSED:
        refused(bed, case, strategy)
    elif strategy is MigrationStrategy.DIRECT:
        direct(bed, case, SEED)
    elif support is Support.DIRECT:
        refused(bed, case, strategy)
    else:
        online(bed, case, SEED)


STRATEGIES = (MigrationStrategy.ONLINE, MigrationStrategy.DIRECT)


@pytest.mark.long
@pytest.mark.timeout(scaled_seconds(3_600))
@pytest.mark.parametrize("bed", DATABASES, indirect=True)
def test_every_cell(bed: Bed) -> None:
    failed = {}
    for case, strategy in itertools.product(CASES[bed.dialect], STRATEGIES):
        try:
            try_cell(bed, case, strategy)
        except Exception:  # noqa: BLE001 - each cell is tried, and all that failed are shown
            failed[f"{strategy}, {case.name}"] = traceback.format_exc()
    assert not failed, "\n\n".join(f"{name}:\n{error}" for name, error in failed.items())


@pytest.mark.long
@pytest.mark.timeout(scaled_seconds(1_800))
@pytest.mark.parametrize("bed", ["mysql"], indirect=True)
def test_every_cell_by_pt_osc(bed: Bed, pt_osc: Path) -> None:
    failed = {}
    for case in (*CASES[bed.dialect], *PT_OSC_MORE):
        try:
            try_cell_by_pt_osc(bed, case, pt_osc)
        except Exception:  # noqa: BLE001 - each cell is tried, and all that failed are shown
            failed[case.name] = traceback.format_exc()
    assert not failed, "\n\n".join(f"{name}:\n{error}" for name, error in failed.items())


def test_every_refusal_of_pt_osc_is_of_a_case() -> None:
    assert set(PT_OSC_REFUSES) <= {case.name for case in (*CASES["mysql"], *PT_OSC_MORE)}


@pytest.mark.parametrize("bed", ["mysql"], indirect=True)
def test_some_cells_by_pt_osc(bed: Bed, pt_osc: Path, request: pytest.FixtureRequest) -> None:
    chance = random.Random(request.config.getoption("randomly_seed", SEED))  # noqa: S311 - tests are drawn by a seed
    cases = [case for case in (*cases_of(bed.dialect, Support.COPIED), *PT_OSC_MORE) if pt_osc_refuses(case) is None]
    try_cell_by_pt_osc(bed, chance.choice(cases), pt_osc)
    try_cell_by_pt_osc(bed, chance.choice(cases_of(bed.dialect, Support.DIRECT, Support.REFUSED)), pt_osc)


@pytest.mark.parametrize("bed", DATABASES, indirect=True)
def test_some_cells(bed: Bed, request: pytest.FixtureRequest) -> None:
    chance = random.Random(request.config.getoption("randomly_seed", SEED))  # noqa: S311 - tests are drawn by a seed
    for case in chance.sample(cases_of(bed.dialect, Support.COPIED), ONLINE_CELLS):
        try_cell(bed, case, MigrationStrategy.ONLINE)
    for case in chance.sample(cases_of(bed.dialect, Support.COPIED, Support.DIRECT), DIRECT_CELLS):
        try_cell(bed, case, MigrationStrategy.DIRECT)
    try_cell(bed, chance.choice(cases_of(bed.dialect, Support.REFUSED)), MigrationStrategy.DIRECT)


def try_together(bed: Bed, seed: int, count: int) -> None:
    """Statements of several cases, drawn until the server itself does them."""
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")  # noqa: S311 - tests are drawn by a seed
        strategy = chance.choice(STRATEGIES)
        supports = (Support.COPIED,) if strategy is MigrationStrategy.ONLINE else (Support.COPIED, Support.DIRECT)
        case = together(bed.dialect, chance, supports, partial(tried, bed))
        (online if strategy is MigrationStrategy.ONLINE else direct)(bed, case, SEED)


@pytest.mark.parametrize("bed", DATABASES, indirect=True)
def test_some_clauses_together(bed: Bed, request: pytest.FixtureRequest) -> None:
    try_together(bed, request.config.getoption("randomly_seed", SEED), TOGETHER_CELLS)


@pytest.mark.long
@pytest.mark.timeout(scaled_seconds(1_800))
@pytest.mark.parametrize("bed", DATABASES, indirect=True)
def test_many_clauses_together(bed: Bed, request: pytest.FixtureRequest) -> None:
    try_together(bed, request.config.getoption("randomly_seed", SEED) + 1, TOGETHER_CELLS_LONG)


@pytest.mark.parametrize("bed", DATABASES, indirect=True)
def test_a_change_of_keys_ends_as_at_the_server(bed: Bed) -> None:
    cases = [case for case in CASES[bed.dialect] if case.clause in ("add-unique", "add-primary", "drop-primary")]
    assert len(cases) >= 2
    for case in cases:
        try_cell(bed, case, MigrationStrategy.ONLINE)


@pytest.mark.parametrize("bed", ["mysql"], indirect=True)
@pytest.mark.parametrize(
    ("change", "is_refused"), [("DROP COLUMN d", True), ("RENAME COLUMN d TO amount", False), ("CHANGE d e int", False)]
)
def test_an_index_of_words_beside_what_is_done_at_once(bed: Bed, change: str, is_refused: bool) -> None:
    """Only trying shows it: ``online`` refuses at its submission, or ends as the server does."""
    statement = f"ALTER TABLE items ADD FULLTEXT KEY words (body), {change}"
    lossy = ("e",) if " e " in change else ()
    case = Case("add-index", statement, lossy=lossy, refusal="at once" if is_refused else "")
    online(bed, case, SEED)
    assert bool(bed.run(bed.schemas[0], "SHOW INDEX FROM items WHERE key_name = 'words'")) is not is_refused


@pytest.mark.parametrize("dialect", DATABASES)
def test_campaigns_draw_every_change_of_keys(dialect: DialectName) -> None:
    wanted = {c.clause for c in CASES[dialect]} & {"add-unique", "add-primary", "drop-primary"}
    found = [drawn(dialect, random.Random(seed), lambda _: None) for seed in range(2_000)]  # noqa: S311 - tests are drawn by a seed
    assert wanted <= {case.clause for case, strategy in found if strategy is MigrationStrategy.ONLINE}


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_an_identity_goes_on_or_begins_again_as_at_the_server(bed: Bed) -> None:
    cases = [case for case in CASES["postgres"] if case.prepare[-1:] == (IDENTITY_IS_FAR,)]
    assert len(cases) == 3
    for case in cases:
        try_cell(bed, case, MigrationStrategy.ONLINE)


@pytest.mark.parametrize("dialect", DATABASES)
def test_every_clause_of_the_table_is_in_the_matrix(dialect: DialectName) -> None:
    assert {case.clause for case in CASES[dialect]} == set(CLAUSES[dialect])
