"""Every type of docs/types.md has a form, a reader of its own, or a reason why the server cannot misread its texts."""

import re
from pathlib import Path

import pytest

from headgate.sinks.relational.mysql import forms as mysql_forms
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql import forms as postgresql_forms
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.text import Room
from headgate.sinks.relational.times import NotTextError

PAGE = Path(__file__).parents[3] / "docs" / "types.md"

EXACT = {
    "text": "every text is one",
    "json": "a text that is not JSON is refused",
    "jsonb": "a text that is not JSON is refused",
    "bytea": "bytes are read by us, as base64 or as the feed says",
    "bit": "bits are read by us",
    "bit varying": "bits are read by us",
    "uuid": "every text it takes is the same 128 bits",
    "macaddr": "every text it takes is the same six bytes",
    "mood": "a label of an enum is taken letter by letter",
    "int4range": "its bounds are integers, and no words",
    "point": "numbers between brackets",
    **dict.fromkeys(("vector", "halfvec"), "numbers between brackets, and no words"),
    "enum": "labels are compared by us",
    "set": "labels are compared by us",
    "longtext": "every text is one; nothing is longer",
    **dict.fromkeys(("binary", "varbinary", "longblob"), "bytes are read by us"),
}
SAID_IN_FULL = {
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "varchar": "character varying",
    "char": "character",
}


def types_of(column: int) -> set[str]:
    """The types that the page's tables have in a column: 2 for PostgreSQL's, 4 for MySQL's and MariaDB's."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in lines]
    return {row[column].strip("`") for row in cells if len(row) > column + 1}


@pytest.mark.parametrize("declared", sorted(types_of(2)))
def test_a_type_of_postgresql_is_judged(declared: str) -> None:
    kind = re.sub(r"\(.*?\)|\[\]", "", declared)
    full = re.sub(r"^\w+", lambda found: SAID_IN_FULL.get(found[0], found[0]), declared)
    assert kind in EXACT or postgresql_text(full.replace("[]", ""), None).checks_strings, declared


@pytest.mark.parametrize("declared", sorted(types_of(4)))
def test_a_type_of_mysql_is_judged(declared: str) -> None:
    kind = re.split(r"[( ]", declared.replace("boolean", "tinyint(1)"))[0]
    assert kind in EXACT or mysql_text(MysqlSinkColumn(declared, kind, "utf8mb4", None), None).checks_strings, declared


@pytest.mark.parametrize("texts", [["2026-01-01", "now"], ["2026-01-01", None, "now"], ["now"]])
def test_one_bad_text_in_a_column_is_found(texts: list[str | None]) -> None:
    column = postgresql_text("date", None)
    with pytest.raises(NotTextError, match="YYYY-MM-DD"):
        column.fields(texts, set(map(type, texts)))
    good = ["2026-01-01" if text == "now" else text for text in texts]
    assert list(column.fields(good, set(map(type, good)))) == ["\\N" if text is None else text for text in good]


def test_a_long_text_in_a_column_is_found() -> None:
    column = postgresql_text("character varying(3)", None)
    assert list(column.fields(["abc", ""], {str})) == ["abc", ""]
    with pytest.raises(NotTextError, match="value too long: the text has 4 characters, and the column takes 3"):
        column.fields(["abc", "abc "], {str})


def test_bytes_are_counted_where_a_column_has_bytes() -> None:
    room = Room(octets=4)
    room.check("abcd")
    room.check("éé")
    with pytest.raises(NotTextError, match="6 bytes"):
        room.check("ééé")


def test_no_form_matches_across_texts() -> None:
    """A column is searched as one text: no text may be taken for two, nor two for one."""
    forms = [
        *postgresql_forms._FORMS.values(), *postgresql_forms._KEY_FORMS.values(), postgresql_forms.CONTAINER_FORM,
        *mysql_forms._FORMS.values(), *mysql_forms._KEY_FORMS.values(),
    ]  # fmt: skip
    for form in forms:
        for text in ("x", "now", "-", "1\x1f1", "\x1e1"):
            column = f"\x1e\x1f{text}\x1f\x1e"
            taken = [form.takes(part) or part == "\x1e" for part in column.split("\x1f")]
            assert form.takes_all(column) is all(taken), (form, text)


@pytest.mark.parametrize("text", ["0000-00-00", "2026-00-01", "2026-01-00", "0000-01-01"])
def test_a_zero_date_says_so(text: str) -> None:
    mysql = [mysql_text(MysqlSinkColumn(kind, kind, None, None), None) for kind in ("date", "datetime", "timestamp")]
    for column in (postgresql_text("date", None), postgresql_text("timestamp without time zone", None), *mysql):
        with pytest.raises(NotTextError, match="zero date"):
            column.fields([text], {str})
