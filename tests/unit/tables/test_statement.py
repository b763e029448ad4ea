"""The statement for a table: what is in it, what is refused, and that nothing of the source gets out of its quotes."""

import pytest

from headgate.databases.catalogue import Product
from headgate.tables.statement import CreateTable, Definition, RefusedTable, table_statement
from unit.tables.definitions import DATABASES, MOOD, mysql_column, mysql_table, postgres_column, postgres_table


def created(found: CreateTable | RefusedTable) -> CreateTable:
    assert isinstance(found, CreateTable), found
    return found


def refused(found: CreateTable | RefusedTable) -> dict[str | None, str]:
    assert isinstance(found, RefusedTable), found
    return {refusal.column: f"{refusal.reason}|{refusal.instead}" for refusal in found.refusals}


ORDERS = postgres_table(
    postgres_column("id", "bigint", is_nullable=False, default="nextval('s'::regclass)"),
    postgres_column("Note", "character varying(20)", default="'it''s \\ new'::character varying"),
    postgres_column("total", "numeric(10,2)", default="'-1.5'::numeric", is_nullable=False),
    postgres_column("mood", "public.mood", base="mood", default="'glad'::public.mood"),
    postgres_column("twice", "bigint", generated="(id * 2)"),
    postgres_column("seen", "timestamp with time zone", default="now()"),
    postgres_column("active", "boolean", default="true"),
    key=("id",),
    table='or"ders',
    comment="all o'rders",
    comments={"Note": "line 1\nline 2", "twice": "gone"},
    enums={"mood": MOOD},
)


def test_postgresql_to_postgresql() -> None:
    found = created(table_statement(ORDERS, Product.POSTGRESQL))
    table, about, note = found.statements
    assert table == (
        'CREATE TABLE IF NOT EXISTS "shop"."or""ders" (\n'
        '  "id" bigint NOT NULL,\n'
        "  \"Note\" character varying(20) DEFAULT E'it''s \\\\ new',\n"
        "  \"total\" numeric(10,2) DEFAULT '-1.5' NOT NULL,\n"
        '  "mood" "public"."mood" DEFAULT \'glad\',\n'
        '  "seen" timestamp with time zone,\n'
        '  "active" boolean DEFAULT true,\n'
        '  PRIMARY KEY ("id")\n)'
    )
    assert about == 'COMMENT ON TABLE "shop"."or""ders" IS \'all o\'\'rders\''
    assert note == 'COMMENT ON COLUMN "shop"."or""ders"."Note" IS \'line 1\nline 2\''
    assert found.needs == (MOOD,)
    assert found.columns["Note"] == "character varying(20)"
    assert "twice" not in found.columns
    assert found.defaults == ("Note", "mood", "seen", "active")
    assert found.notes == (
        "column twice is left out: the source computes it, and the connector writes its values in the snapshot only",
    )


def test_postgresql_to_mariadb() -> None:
    found = created(table_statement(ORDERS, Product.MARIADB))
    exact = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
    (statement,) = found.statements
    assert statement == (
        'CREATE TABLE IF NOT EXISTS `shop`.`or"ders` (\n'
        "  `id` bigint NOT NULL,\n"
        f"  `Note` varchar(20) {exact} NULL DEFAULT 'it\\'s \\\\ new' COMMENT 'line 1\\nline 2',\n"
        "  `total` decimal(10,2) NOT NULL DEFAULT -1.5,\n"
        f"  `mood` varchar(63) {exact} NULL DEFAULT 'glad',\n"
        "  `seen` datetime(6) NULL,\n"
        "  `active` tinyint(1) NULL DEFAULT true,\n"
        "  PRIMARY KEY (`id`)\n) ENGINE=InnoDB COMMENT='all o\\'rders'"
    )
    assert found.needs == ()
    assert "refused at the sink, with an error: NaN in total" in found.notes


ITEMS = mysql_table(
    mysql_column("id", "int(10) unsigned", is_nullable=False),
    mysql_column("name", "varchar(20)", collation="latin1_bin", default="'new'", is_nullable=False),
    mysql_column("at", "timestamp(6)", default="current_timestamp(6)"),
    mysql_column("day", "date", default="'2026-01-02'"),
    mysql_column("zero", "date", default="'0000-00-00'"),
    mysql_column("odd", "varchar(9)", collation="latin1_bin", default=r"'a\\b'"),
    mysql_column("twice", "int(11)", generated="`id` * 2"),
    key=("id", "name"),
    comments={"name": "its `name`"},
)


def test_mariadb_to_mariadb() -> None:
    found = created(table_statement(ITEMS, Product.MARIADB))
    latin = "CHARACTER SET latin1 COLLATE latin1_bin"
    (statement,) = found.statements
    assert statement == (
        "CREATE TABLE IF NOT EXISTS `shop`.`t` (\n"
        "  `id` int(10) unsigned NOT NULL,\n"
        f"  `name` varchar(20) {latin} NOT NULL DEFAULT 'new' COMMENT 'its `name`',\n"
        "  `at` timestamp(6) NULL,\n"
        "  `day` date NULL DEFAULT '2026-01-02',\n"
        "  `zero` date NULL,\n"
        f"  `odd` varchar(9) {latin} NULL,\n"
        "  `twice` int(11) NULL,\n"
        "  PRIMARY KEY (`id`, `name`)\n) ENGINE=InnoDB"
    )
    computed, at, day = found.notes
    assert computed == "computed at the source, and ordinary here: twice"
    assert at == "changed by the connector, without an error: 0000-00-00 00:00:00 in at"
    assert day.startswith("changed by the connector, without an error: zero dates")
    assert day.endswith("in day, zero")
    assert [*found.altered.values()] == [["at"], ["day", "zero"]]


def test_mariadb_to_postgresql() -> None:
    table, note = created(table_statement(ITEMS, Product.POSTGRESQL)).statements
    assert '"id" bigint NOT NULL' in table
    assert "\"name\" character varying(20) DEFAULT 'new' NOT NULL" in table
    assert '"at" timestamp(6) with time zone,' in table
    assert "\"day\" date DEFAULT '2026-01-02'" in table
    assert '"zero" date,' in table
    assert 'PRIMARY KEY ("id", "name")' in table
    assert note == 'COMMENT ON COLUMN "shop"."t"."name" IS \'its `name`\''


@pytest.mark.parametrize("default", ["CURRENT_TIMESTAMP", "uuid()", "abc"])
def test_a_default_of_mysql_that_may_be_a_function_is_left_out(default: str) -> None:
    table = mysql_table(mysql_column("c", "varchar(40)", default=default), product=Product.MYSQL)
    (statement,) = created(table_statement(table, Product.POSTGRESQL)).statements
    assert "DEFAULT" not in statement


@pytest.mark.parametrize(
    "default",
    [
        "'a'::text || 'b'::text", "('now'::text)::date", "'a'::text) DEFAULT pg_sleep(9", "lower('A'::text)", "'a'",
        "'a'::text, x int DEFAULT 'b'::text", "CURRENT_USER", "-(1)", "1; DROP TABLE t", "'x'::evil(drop)",
    ],
)  # fmt: skip
def test_what_is_not_a_constant_of_postgresql_is_left_out(default: str) -> None:
    (statement,) = created(
        table_statement(postgres_table(postgres_column("c", "text", default=default)), Product.POSTGRESQL)
    ).statements
    assert "DEFAULT" not in statement


def test_a_default_that_is_longer_than_its_column_is_left_out() -> None:
    """PostgreSQL takes it, and refuses the rows. MySQL refuses the table."""
    default = "'{}'::character varying".format("🚪" * 3)
    table = postgres_table(
        postgres_column("a", "character varying(3)", default=default),
        postgres_column("b", "character varying(2)", default=default),
    )
    (statement,) = created(table_statement(table, Product.MARIADB)).statements
    assert statement.count("DEFAULT '🚪🚪🚪'") == statement.count("DEFAULT") == 1


def test_a_column_that_cannot_be_mapped_names_its_option() -> None:
    table = postgres_table(
        postgres_column("id", "text", is_nullable=False), postgres_column("a", "numeric"),
        postgres_column("b", "shop.pair"), postgres_column("c", "integer"), key=("id",),
    )  # fmt: skip
    assert refused(table_statement(table, Product.MARIADB)) == {
        "id": "a longtext cannot be in a primary key|varchar(255)",
        "a": "a numeric without a precision has up to 147455 digits|decimal(65,30)",
        "b": "shop.pair is not a type that Headgate can create|longtext",
    }
    chosen = {"id": "varchar(255)", "a": "decimal(65, 30)", "b": "longtext"}
    (statement,) = created(table_statement(table, Product.MARIADB, chosen)).statements
    assert "`id` varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL" in statement
    assert "`a` decimal(65,30) NULL" in statement


def test_a_chosen_type_is_read_by_the_same_list() -> None:
    table = postgres_table(postgres_column("c", "integer"))
    assert refused(table_statement(table, Product.POSTGRESQL, {"c": "int); DROP TABLE t", "d": "int"})) == {
        "c": "'int); DROP TABLE t' is not a type that Headgate can create|",
        "d": "the table does not have this column|",
    }


@pytest.mark.parametrize(
    ("name", "sink", "says"),
    [
        ("ä" * 32, Product.POSTGRESQL, "64 bytes"),
        ("a" * 65, Product.MARIADB, "65 characters"),
        ("ctid", Product.POSTGRESQL, "of its own"),
        ("a ", Product.MARIADB, "ends with a space"),
        ("a🚪", Product.MYSQL, "basic plane"),
        ("a\n\\! sh", Product.POSTGRESQL, "control character"),
        ("a\u2028b", Product.MARIADB, "control character"),
    ],
)
def test_a_name_that_the_sink_cannot_have_is_refused(name: str, sink: Product, says: str) -> None:
    table = postgres_table(postgres_column(name, "integer"), postgres_column("b", "integer"))
    assert says in refused(table_statement(table, sink))[name]


def test_names_of_tables_are_checked_too() -> None:
    table = postgres_table(postgres_column("a", "integer"), table="x\ny")
    assert "control character" in refused(table_statement(table, Product.POSTGRESQL))[None]


def test_columns_that_differ_by_case_alone_do_not_fit_into_mysql() -> None:
    table = postgres_table(postgres_column("a", "integer"), postgres_column("A", "integer"))
    assert set(refused(table_statement(table, Product.MARIADB))) == {"a", "A"}
    created(table_statement(table, Product.POSTGRESQL))


def test_keys_that_an_index_cannot_hold_are_refused() -> None:
    long = postgres_table(
        postgres_column("a", "character varying(700)"), postgres_column("b", "character varying(700)"), key=("a", "b")
    )
    assert "5600 bytes" in refused(table_statement(long, Product.MARIADB))[None]
    prefixed = mysql_table(mysql_column("a", "text", collation="latin1_bin"), key=("a",), prefixed=("a",))
    assert "beginnings" in refused(table_statement(prefixed, Product.POSTGRESQL))[None]


EVIL = "x`\"'; DROP TABLE t; -- \\"


@pytest.mark.parametrize("sink", DATABASES)
def test_nothing_gets_out_of_its_quotes(sink: Product) -> None:
    """What is left of a statement without its quoted parts is the same for a harmless table."""
    harmless, evil = ([_whole(table, sink) for table in _named(word)] for word in ("x", EVIL))
    for one, other in zip(harmless, evil, strict=True):
        assert _outside(one, sink) == _outside(other, sink)


def _whole(table: Definition, sink: Product) -> str:
    return "".join(created(table_statement(table, sink)).statements)


def _named(word: str) -> tuple[Definition, ...]:
    """Tables in which every name and text is that word."""
    default = "'{}'::text".format(word.replace("'", "''"))
    return (
        postgres_table(
            postgres_column(word, "character varying(99)", default=default), postgres_column("m", "public.mood"),
            key=(word,), table=word, comment=word, comments={word: word}, enums={"m": MOOD},
        ),
        mysql_table(
            mysql_column(word, "varchar(9)", collation="latin1_bin"), mysql_column("e", "enum('x')"), key=(word,),
            comment=word, comments={word: word},
        ),
    )  # fmt: skip


def _outside(statement: str, sink: Product) -> str:
    """The statement without what is in quotes, read letter by letter as the server does."""
    kept: list[str] = []
    inside, position = "", 0
    while position < len(statement):
        letter = statement[position]
        escapes = inside == "'" and (sink is not Product.POSTGRESQL or kept[-1:] == ["E"])
        if inside and letter == "\\" and escapes:
            position += 1
        elif inside and letter == inside:
            if statement[position + 1 : position + 2] == inside:
                position += 1
            else:
                inside = ""
        elif not inside:
            if letter in ("'", '"' if sink is Product.POSTGRESQL else "`"):
                inside = letter
            else:
                kept.append(letter)
        position += 1
    assert not inside
    return "".join(kept).replace("E", "").replace(" ", "")
