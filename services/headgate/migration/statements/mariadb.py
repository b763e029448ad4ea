"""Parses MariaDB's ALTER TABLE, CREATE TABLE and DROP TABLE, with a grammar of the known clauses.

No parser of MariaDB's grammar exists for Python (docs/adr/0079), so this one is written by hand. It accepts only what
it understands completely: a word that it does not know is an error, never skipped.
"""

from itertools import pairwise
from typing import Final, Literal

from headgate.migration.statements.mariadb_definitions import QUERIES, Definitions
from headgate.migration.statements.statement import Statement, StatementError

_PLACES: Final = frozenset({"DIRECTORY", "CONNECTION", "TABLESPACE", "NODEGROUP"})
"""Not in the definition of a partition: they name files and servers."""

_STORAGE: Final = frozenset(
    {
        "ROW_FORMAT", "KEY_BLOCK_SIZE", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID",
        "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES",
    }
)  # fmt: skip
_HINTS: Final = frozenset(
    {
        "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM",
        "TRANSACTIONAL",
    }
)  # fmt: skip
ENGINES: Final = frozenset({"INNODB", "ARIA", "MYISAM", "MEMORY", "HEAP", "ARCHIVE", "CSV", "ROCKSDB"})
"""Storage engines that keep a table's rows on this server. Others take an address from a comment or an option."""

_PARTITIONING: Final = frozenset({"LINEAR", "HASH", "KEY", "RANGE", "LIST", "COLUMNS", "BY", "ALGORITHM", "="})
_MAINTENANCE: Final = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR")


def read_mariadb(text: str) -> Statement:
    """One statement. Raises StatementError."""
    return _Statements(text).statement()


class _Statements(Definitions):
    """The grammar of statements and clauses."""

    def statement(self) -> Statement:
        reader = self._reader
        match reader.next.word:
            case "ALTER":
                found = self._alter()
            case "CREATE":
                found = self._create()
            case "DROP":
                found = self._drop()
            case word:
                shown = word or "nothing"
                raise StatementError(f"{shown!r}: a migration is an ALTER TABLE, CREATE TABLE or DROP TABLE")
        return found

    def _only_tables(self, verb: str) -> None:
        reader = self._reader
        if reader.takes("TEMPORARY"):
            self._add("temporary")
        if not reader.takes("TABLE"):
            raise StatementError(f"{verb} {reader.next.value}: only tables are migrated. Run other statements yourself")

    def _finished(
        self,
        action: Literal["alter", "create", "drop"],
        table: tuple[str | None, str, int, int],
        *,
        if_exists: bool = False,
        if_not_exists: bool = False,
    ) -> Statement:
        reader = self._reader
        ends = reader.next.start
        if reader.takes(";") and not reader.is_at_end:
            raise StatementError("a migration is one statement. Submit the others as migrations of their own")
        if not reader.is_at_end:
            raise reader.unknown()
        schema, name, start, end = table
        text = reader.text[:ends].rstrip()
        return Statement(
            action=action,
            schema=schema,
            table=name,
            head=text[:start],
            tail=text[end:],
            steps=tuple(self._steps),
            if_exists=if_exists,
            if_not_exists=if_not_exists,
            plain=reader.plain(end).removesuffix(";").rstrip(),
        )

    # --- DROP and CREATE ---

    def _drop(self) -> Statement:
        reader = self._reader
        reader.need("DROP")
        self._only_tables("DROP")
        self._add("drop-table")
        if_exists = reader.takes("IF", "EXISTS")
        table = self._table()
        if reader.sees(","):
            self._add("drop-tables")
        self._check_wait()
        reader.takes_one("RESTRICT", "CASCADE")  # they mean nothing here
        return self._finished("drop", table, if_exists=if_exists)

    def _create(self) -> Statement:
        reader = self._reader
        reader.need("CREATE")
        if reader.takes("OR", "REPLACE"):
            self._add("create-replace")
        self._only_tables("CREATE")
        if_not_exists = reader.takes("IF", "NOT", "EXISTS")
        table = self._table()
        if reader.takes("LIKE") or reader.takes("(", "LIKE"):
            self._add("create-like")
            in_parentheses = reader.text[reader.previous.start - 1 : reader.previous.start] == "("
            self._table()
            if in_parentheses:
                reader.need(")")
            return self._finished("create", table, if_not_exists=if_not_exists)
        self._add("create-table")
        if not reader.sees("("):
            self._check_query()
            raise reader.unknown("expected the columns")
        self._elements()
        while self._option():
            reader.takes(",")
        if reader.sees("PARTITION", "BY"):
            self._partition_by()
        self._check_query()
        return self._finished("create", table, if_not_exists=if_not_exists)

    def _check_query(self) -> None:
        if self._reader.next.word in ("AS", "SELECT", "IGNORE", "REPLACE", "WITH", "(", "VALUES", "TABLE"):
            self._add("create-select")

    def _check_wait(self) -> None:
        if self._reader.next.word in ("WAIT", "NOWAIT"):
            self._add("wait")

    # --- ALTER ---

    def _alter(self) -> Statement:
        reader = self._reader
        reader.need("ALTER")
        if reader.takes("ONLINE"):
            self._add("algorithm")
        if reader.takes("IGNORE"):
            self._add("ignore")
        self._only_tables("ALTER")
        if_exists = reader.takes("IF", "EXISTS")
        table = self._table()
        self._check_wait()
        if reader.is_at_end or reader.sees(";"):
            raise StatementError("ALTER TABLE without a change")
        while True:
            self._clause()
            while self._option():
                pass
            if not reader.takes(","):
                break
        if reader.sees("PARTITION", "BY"):
            self._partition_by()
        elif reader.takes("REMOVE", "PARTITIONING"):
            self._add("remove-partitioning")
        return self._finished("alter", table, if_exists=if_exists)

    def _clause(self) -> None:
        reader = self._reader
        verbs = {
            "ADD": self._added,
            "DROP": self._dropped,
            "MODIFY": self._changed,
            "CHANGE": self._changed,
            "ALTER": self._altered,
            "RENAME": self._renamed,
            "CONVERT": self._converted,
            "ORDER": self._ordered,
            "PARTITION": self._partition_by,
        }
        if (read := verbs.get(reader.next.word)) is not None:
            read()
            return
        match reader.next.word:
            case "FORCE":
                reader.take()
                self._add("force")
            case "ALGORITHM" | "LOCK":
                reader.take()
                reader.takes("=")
                reader.name()
                self._add("algorithm")
            case "REMOVE":
                reader.need("REMOVE", "PARTITIONING")
                self._add("remove-partitioning")
            case _:
                if not self._of_partitions() and not self._option():
                    raise reader.unknown()

    def _of_partitions(self) -> bool:
        """Clauses of single partitions, and of the table's files."""
        reader = self._reader
        word, then = reader.next.word, reader.ahead().word
        match word, then:
            case "COALESCE", "PARTITION":
                reader.take(), reader.take()
                reader.number()
                self._add("coalesce-partition")
            case "REORGANIZE", "PARTITION":
                reader.take(), reader.take()
                if not reader.sees("INTO") and not reader.is_at_end:
                    self._names()
                if reader.takes("INTO"):
                    self._partitions()
                self._add("reorganize-partition")
            case "EXCHANGE", _:
                self._add("exchange-partition")
            case "TRUNCATE", _:
                self._add("truncate-partition")
            case "DISCARD" | "IMPORT", _:
                self._add("tablespace")
            case "DISABLE" | "ENABLE", _:
                self._add("keys-enabled")
            case _ if word in _MAINTENANCE and then == "PARTITION":
                self._add("maintain-partition")
            case _:
                return False
        return True

    def _names(self) -> None:
        self._reader.name()
        while self._reader.takes(","):
            self._reader.name()

    def _if_exists(self) -> bool:
        return self._reader.takes("IF", "EXISTS")

    def _added(self) -> None:
        reader = self._reader
        reader.need("ADD")
        if reader.takes("SYSTEM", "VERSIONING"):
            self._add("versioning")
        elif reader.takes("PARTITION"):
            reader.takes("IF", "NOT", "EXISTS")
            if reader.takes("PARTITIONS"):
                reader.number()
            else:
                self._partitions()
            self._add("add-partition")
        elif reader.sees("("):
            self._elements()
        else:
            self._element(at_place=True)

    def _dropped(self) -> None:
        reader = self._reader
        reader.need("DROP")
        if reader.takes("PRIMARY", "KEY"):
            self._add("drop-primary")
        elif reader.takes("FOREIGN", "KEY"):
            self._if_exists()
            reader.name()
            self._add("drop-foreign")
        elif reader.takes_one("INDEX", "KEY"):
            self._if_exists()
            self._add("drop-index", name=reader.name())
        elif reader.takes("CONSTRAINT"):
            self._if_exists()
            self._add("drop-constraint", name=reader.name())
        elif reader.takes("PARTITION"):
            self._if_exists()
            self._names()
            self._add("drop-partition")
        elif reader.takes("SYSTEM", "VERSIONING"):
            self._add("versioning")
        elif reader.takes("PERIOD", "FOR"):
            reader.name()
            self._add("versioning")
        else:
            reader.takes("COLUMN")
            conditional = self._if_exists()
            self._add("drop-column", reader.name("a column"), is_conditional=conditional)
            reader.takes_one("RESTRICT", "CASCADE")

    def _changed(self) -> None:
        reader = self._reader
        is_change = reader.take().word == "CHANGE"
        reader.takes("COLUMN")
        conditional = self._if_exists()
        column = reader.name("a column")
        name = reader.name("the column's new name") if is_change else column
        self._definition(name)
        place = self._placed()
        key = "change-column" if is_change else "modify-column"
        self._add(key, column, name, place=place, is_conditional=conditional)

    def _altered(self) -> None:
        reader = self._reader
        reader.need("ALTER")
        if reader.takes_one("INDEX", "KEY"):
            self._if_exists()
            reader.name()
            reader.takes("NOT")
            reader.need("IGNORED")
            self._add("ignore-index")
            return
        if reader.sees("CONSTRAINT"):
            raise reader.unknown()
        reader.takes("COLUMN")
        conditional = self._if_exists()
        column = reader.name("a column")
        if not reader.takes("DROP", "DEFAULT"):
            reader.need("SET", "DEFAULT")
            self._value()
        self._add("column-default", column, column, is_conditional=conditional)

    def _renamed(self) -> None:
        reader = self._reader
        reader.need("RENAME")
        if reader.takes_one("INDEX", "KEY"):
            self._if_exists()
            reader.name()
            reader.need("TO")
            reader.name()
            self._add("rename-index")
        elif reader.takes("COLUMN"):
            conditional = self._if_exists()
            column = reader.name("a column")
            reader.need("TO")
            self._add("rename-column", column, reader.name("a column"), is_conditional=conditional)
        else:
            self._add("rename-table")

    def _converted(self) -> None:
        reader = self._reader
        reader.need("CONVERT")
        if not reader.takes("TO"):
            self._add("convert-partition")
        self._charset()
        if reader.takes("COLLATE"):
            self._literal()
        self._add("convert-charset")

    def _ordered(self) -> None:
        reader = self._reader
        reader.need("ORDER", "BY")
        while True:
            reader.name("a column")
            reader.takes_one("ASC", "DESC")
            if not reader.takes(","):
                break
        self._add("order-by")

    # --- options and partitions ---

    def _option(self) -> bool:
        """One option of the table, if one comes next."""
        reader = self._reader
        word = reader.next.word
        if (word in ("DATA", "INDEX") and reader.ahead().word == "DIRECTORY") or word == "CONNECTION":
            self._add("directory")
        if word in ("UNION", "INSERT_METHOD") and reader.ahead().word != "SELECT":
            self._add("union")
        if word == "WITH" and reader.takes("WITH", "SYSTEM", "VERSIONING"):
            self._add("versioning")
        elif word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
            reader.takes("DEFAULT")
            if reader.takes("COLLATE"):
                reader.takes("=")
                self._literal()
            else:
                self._charset()
            self._add("default-charset")
        elif word in ("ENGINE", "COMMENT", "AUTO_INCREMENT") or word in _STORAGE or word in _HINTS:
            reader.take()
            reader.takes("=")
            value = reader.next.value
            self._literal()
            self._add(_option_key(word, value))
        else:
            return False
        return True

    def _partitions(self) -> None:
        """The definitions of partitions, each of which may name its engine."""
        tokens = [token for token in self._reader.group(without=_PLACES | QUERIES) if token.word != "="]
        for token, value in pairwise(tokens):
            if token.word == "ENGINE" and not keeps_rows(value.value):
                self._add("elsewhere-engine")

    def _partition_by(self) -> None:
        reader = self._reader
        reader.need("PARTITION", "BY")
        self._partitioned()
        if reader.takes("PARTITIONS"):
            reader.number()
        if reader.takes("SUBPARTITION", "BY"):
            self._partitioned()
            if reader.takes("SUBPARTITIONS"):
                reader.number()
        if reader.sees("("):
            self._partitions()
        self._add("partition-by")

    def _partitioned(self) -> None:
        reader = self._reader
        if reader.next.word not in _PARTITIONING:
            raise reader.unknown()
        while reader.next.word in _PARTITIONING:
            is_number_next = reader.take().word == "="
            if is_number_next:
                reader.number()
        reader.group(without=QUERIES)


def keeps_rows(engine: str) -> bool:
    """Whether the storage engine keeps a table's rows on this server."""
    return engine.strip("'\"").upper() in ENGINES


def _option_key(word: str, value: str) -> str:
    if word == "ENGINE":
        if not keeps_rows(value):
            return "elsewhere-engine"
        return "engine" if value.strip("'\"").upper() == "INNODB" else "other-engine"
    if word == "AUTO_INCREMENT":
        return "counter"
    if word == "COMMENT":
        return "table-comment"
    return "storage" if word in _STORAGE else "hints"
