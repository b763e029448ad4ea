"""What ``headgate chaos --migrations`` draws, and when it holds."""

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from headgate.migration.statements.clauses import CLAUSES, DialectName, Support
from headgate.migration.statements.reading import parse_statement
from headgate.migration.statements.statement import StatementError
from headgate.records.migration import MigrationStrategy
from headgate_lab.chaos.migration_report import MigrationsReport, Round
from headgate_lab.schema_changes.cases import CASES, drawn, respelled
from headgate_lab.schema_changes.load import Load

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
        case, strategy = drawn(dialect, chance, lambda _: True)
        strategies.add(strategy)
        if CLAUSES[dialect][case.clause].support is Support.REFUSED:
            continue
        read = parse_statement(case.statement, dialect)
        assert case.clause in [step.clause.key for step in read.steps], case.statement
        assert (read.action, read.table) == ("alter", "items")
        if strategy is MigrationStrategy.ONLINE:
            assert read.direct_only() is None, case.statement
    assert strategies == {MigrationStrategy.ONLINE, MigrationStrategy.DIRECT}


def test_every_seed_has_a_load() -> None:
    for seed in range(200):
        load = Load(random.Random(seed))  # noqa: S311 - a seed
        load.first()
        assert len([load.batch() for _ in range(3)]) == 3


def test_a_seed_draws_the_same_again() -> None:
    def all_of(seed: int) -> list[Any]:
        chance = random.Random(seed)  # noqa: S311 - a seed
        load = Load(chance)
        return [
            [drawn(dialect, chance, lambda _: True) for dialect in DIALECTS * 5],
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
