"""What ``headgate chaos --migrations`` draws, and when it holds."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg
import pymysql
import pytest

from headgate.migration.statements.clauses import CLAUSES, DialectName, Support
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.records.migration import MigrationStrategy
from headgate_lab.chaos.migration_report import MigrationsReport, Round
from headgate_lab.schema_changes.case import Case
from headgate_lab.schema_changes.cases import CASES, DRAWS_MAX, DrawError, drawn, respelled, together
from headgate_lab.schema_changes.load import ClientHistory
from headgate_lab.schema_changes.refusal import refusal

DIALECTS: tuple[DialectName, ...] = ("mysql", "postgres")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_case_is_read_as_the_clause_that_it_is_for(dialect: DialectName) -> None:
    assert {case.clause for case in CASES[dialect]} == set(CLAUSES[dialect])
    for case in CASES[dialect]:
        if CLAUSES[dialect][case.clause].support is Support.REFUSED:
            with pytest.raises(StatementError):
                parse_statement(case.statement, dialect)
        else:
            read = parse_statement(case.statement, dialect)
            assert case.clause in [step.clause.key for step in read.steps], case.name
            assert read.table in ("items", "wanted")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_drawn_statement_is_read_as_the_case_that_it_is_drawn_from(dialect: DialectName) -> None:
    chance = random.Random(7)  # noqa: S311 - a seed
    strategies = set()
    for _ in range(300):
        case, strategy = drawn(dialect, chance, lambda _: None)
        strategies.add(strategy)
        if CLAUSES[dialect][case.clause].support is Support.REFUSED:
            continue
        read = parse_statement(case.statement, dialect)
        assert case.clause in [step.clause.key for step in read.steps], case.statement
        assert (read.action, read.table) == ("alter", "items")
        if strategy is MigrationStrategy.ONLINE:
            assert read.direct_only() is None, case.statement
    assert strategies == {MigrationStrategy.ONLINE, MigrationStrategy.DIRECT}


COPIED = (Support.COPIED,)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_server_that_does_nothing_ends_the_drawing(dialect: DialectName) -> None:
    tried: list[Case] = []

    def error_of(case: Case) -> str:
        tried.append(case)
        return f"no, not the {len(tried)}th"

    with pytest.raises(DrawError, match=rf"none of {DRAWS_MAX} statements .* The last one: ALTER TABLE items"):
        together(dialect, random.Random(7), COPIED, error_of)  # noqa: S311 - a seed
    assert 0 < len(tried) <= DRAWS_MAX
    with pytest.raises(DrawError):
        drawn(dialect, random.Random(7), error_of)  # noqa: S311 - a seed


def test_an_index_of_words_is_drawn_beside_what_it_keeps_from_being_instant() -> None:
    chance, beside = random.Random(7), set()  # noqa: S311 - a seed
    for _ in range(600):
        case = together("mysql", chance, COPIED, lambda _: None)
        read = parse_statement(case.statement, "mysql")
        found = {step.clause.key for step in read.steps}
        is_tried = "FULLTEXT" in read.plain and not found.isdisjoint({"rename-column", "change-column", "drop-column"})
        assert ("at once" in case.refusal) is is_tried, case.statement
        beside |= found if is_tried else set()
    assert {"add-index", "add-column", "rename-column", "change-column", "drop-column"} <= beside


@pytest.mark.parametrize("dialect", DIALECTS)
def test_publications_are_not_changed_beside_other_clauses(dialect: DialectName) -> None:
    chance = random.Random(7)  # noqa: S311 - a seed
    for _ in range(300):
        case = together(dialect, chance, (*COPIED, Support.DIRECT), lambda _: None)
        assert not any("PUBLICATION" in text for text in case.prepare)


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection unexpectedly"),
        pymysql.OperationalError(2013, "Lost connection to MySQL server during query"),
        pymysql.InterfaceError(0, ""),
    ],
)
def test_a_lost_session_is_not_a_servers_answer(error: psycopg.Error | pymysql.Error) -> None:
    with pytest.raises(type(error)):
        refusal(error)


def test_a_servers_answer_is_its_text() -> None:
    assert refusal(psycopg.errors.UndefinedColumn("no column c")) == "no column c"
    assert "1091" in refusal(pymysql.OperationalError(1091, "Can't DROP INDEX"))


def test_every_seed_has_a_load() -> None:
    for seed in range(200):
        load = ClientHistory(random.Random(seed))  # noqa: S311 - a seed
        load.first()
        assert len([load.batch() for _ in range(3)]) == 3


def test_a_seed_draws_the_same_again() -> None:
    def all_of(seed: int) -> list[Any]:
        chance = random.Random(seed)  # noqa: S311 - a seed
        load = ClientHistory(chance)
        return [
            [drawn(dialect, chance, lambda _: None) for dialect in DIALECTS * 5],
            load.first(),
            load.batch(),
            load.lasting(),
        ]

    assert all_of(5) == all_of(5)
    assert all_of(5) != all_of(6)


def test_strings_are_never_respelled() -> None:
    def last(options: Sequence[Any]) -> Any:
        return options[-1]

    assert "'the shop''s'" in respelled("ALTER TABLE items COMMENT = 'the shop''s'", "mysql", last)


def test_a_finding_of_one_round_decides() -> None:
    good = Round(database="mariadb", strategy="online", statement="ALTER TABLE r1.items FORCE", state="complete")
    report = MigrationsReport(seed=1, rounds=(good,))
    assert report.holds()
    bad = msgspec.structs.replace(good, findings=("rows of items: …",))
    failed = msgspec.structs.replace(report, rounds=(good, bad))
    assert not failed.holds()
    assert failed.to_json()["findings"] == ["mariadb, ALTER TABLE r1.items FORCE: rows of items: …"]
    assert not msgspec.structs.replace(report, rounds=()).holds()
    assert not msgspec.structs.replace(report, left_over=("7 java",)).holds()
