"""Errors about rows name places, not contents: they are stored on topics, logged and shown without a login."""

import ast
from pathlib import Path

import psycopg
import pymysql
import pytest
from psycopg import errors

import headgate
from headgate.config.error_values import VALUES_IN_ERRORS, rules
from headgate.databases.mysql import errors as mysql_errors
from headgate.formats.change import Change, Operation
from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.mariadb.sessions import _translating
from headgate.migration.strategies.postgresql.sessions import translating
from headgate.sinks.contract import ValueRefusedError
from headgate.sinks.relational.batches import refused_change
from headgate.sinks.relational.grouping import UnwritableError
from headgate.sinks.relational.postgresql import faults as postgresql

SECRET = "4111-1111"
CHANGE = Change(3, 14, Operation.UPSERT, {"id": SECRET}, {"id": SECRET, "card": SECRET}, None, 0)


_NAMES_OF_VALUES = dict.fromkeys(("text.py", "times.py", "mysql_types.py"), ("text", "number"))
"""What a value is called beside ``value``, by module; elsewhere these words mean other things."""


def _told(column: str) -> str:
    error = UnwritableError(CHANGE, column, "the value is too long")
    return str(
        refused_change(ValueRefusedError, "s.t", "topic", CHANGE, error, column=None, reason=str(error), key=["id"])
    )


@pytest.mark.parametrize("column", ["id", "card"])
def test_a_refusal_names_its_place_and_no_value(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VALUES_IN_ERRORS, raising=False)
    assert _told(column) == f"s.t, column {column}: the value is too long [topic topic, partition 3, offset 14]"
    assert rules() == {}


def test_an_operator_may_have_values_but_never_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VALUES_IN_ERRORS, "true")
    assert SECRET in _told("card")
    assert SECRET not in _told("id")
    assert rules() == {VALUES_IN_ERRORS: "true"}, "workers on other machines are told the same"


@pytest.mark.parametrize("number", sorted(mysql_errors.BAD_VALUES))
def test_mariadbs_words_on_values_are_not_passed_on(number: int) -> None:
    quoting = f"Incorrect value: '{SECRET} for column x at row 1' for column `db`.`t`.`card` at row 7"
    if number in mysql_errors._QUOTES_VALUES:
        assert SECRET not in mysql_errors.without_values(number, quoting)
        assert "column `db`.`t`.`card`" in mysql_errors.without_values(number, quoting)


@pytest.mark.parametrize(
    "kind",
    [errors.UniqueViolation, errors.NotNullViolation, errors.InvalidTextRepresentation, errors.RaiseException,
     errors.CheckViolation, errors.StringDataRightTruncation, errors.InternalError_],
)  # fmt: skip
def test_postgresqls_words_on_values_are_not_passed_on(kind: type[psycopg.Error]) -> None:
    error = kind(f"Failing row contains ({SECRET})")
    for told in (postgresql.words_of(error)[1], str(postgresql.sink_error(error, "merging"))):
        assert SECRET not in told
        assert f"SQLSTATE {error.sqlstate}" in told


@pytest.mark.parametrize("kind", [errors.UniqueViolation, errors.NotNullViolation, errors.RaiseException])
def test_a_schema_change_at_postgresql_passes_no_value_on(kind: type[psycopg.Error]) -> None:
    with pytest.raises(RefusedError) as raised, translating("copying a range"):
        raise kind(f"Failing row contains ({SECRET})")
    assert SECRET not in str(raised.value)
    assert str(raised.value).count(str(kind.sqlstate)) == 1


@pytest.mark.parametrize(
    "statement",
    [f"INSERT INTO items VALUES ({SECRET})", f"UPDATE items SET a = '{SECRET}'", f"SELECT a\nFROM items -- {SECRET}"],
)
def test_a_schema_change_at_mariadb_passes_no_value_on(statement: str) -> None:
    with pytest.raises(RefusedError) as raised, _translating(statement):
        raise pymysql.err.DataError(1366, f"Incorrect integer value: '{SECRET}' for column `d`.`t`.`a` at row 1")
    assert SECRET not in str(raised.value)
    assert "column `d`.`t`.`a`" in str(raised.value)
    assert str(raised.value).count("error 1366") == 1


def test_only_databases_reads_what_a_server_said() -> None:
    """Others take it from ``without_values`` or ``message``."""
    folder = Path(headgate.__file__).parent
    raw = {
        str(module.relative_to(folder))
        for module in folder.glob("**/*.py")
        if module.relative_to(folder).parts[0] != "databases"
        and any(word in module.read_text() for word in ("message_primary", "message_detail", "error.args[1]"))
    }
    assert raw == set()


def test_nothing_but_the_one_place_quotes_a_value() -> None:
    """An error's text that holds ``{value!r}`` or the like would be the next leak."""
    quoting = set()
    folder = Path(headgate.__file__).parent
    for module in (*folder.glob("sinks/relational/**/*.py"), *folder.glob("formats/*.py")):
        for raised in ast.walk(ast.parse(module.read_text())):
            if not isinstance(raised, ast.Raise) or raised.exc is None:
                continue
            for part in ast.walk(raised.exc):
                if not isinstance(part, ast.FormattedValue):
                    continue
                names = {each.id for each in ast.walk(part.value) if isinstance(each, ast.Name)}
                if names & {"value", "days", "raw", *_NAMES_OF_VALUES.get(module.name, ())} and not any(
                    isinstance(each, ast.Call) for each in ast.walk(part.value)
                ):
                    quoting.add(f"{module.relative_to(folder)}:{part.lineno} {ast.unparse(part.value)}")
    assert quoting == set()
