"""Descriptions of migrations: which are accepted, and which option a refusal names."""

from typing import Any, get_args

import pytest

from headgate.cli.migration_target import StrategyName
from headgate.migration.core.spec import (
    MigrationSpec,
    MigrationSpecError,
    Registry,
    StrategyRemovedError,
    parse_request,
    parse_spec,
    written,
)
from headgate.records.migration import OFFERED, MigrationStrategy

ONLINE = MigrationStrategy.ONLINE
DIRECT, PT_OSC = MigrationStrategy.DIRECT, MigrationStrategy.PT_OSC
REGISTRY = Registry("https://registry")


def spec(**fields: Any) -> MigrationSpec:
    given = {"statement": "ALTER TABLE t ADD c int", "database": "db", "strategy": ONLINE}
    return MigrationSpec(**given | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"connection": "shop", "database": ""},
        {"connection": "shop"},
        {"password_file": "secret"},
        {"threads_running_max": 1},
        {"lag_seconds_max": 0.0, "replicas": ("r1",)},
        {"prefer_instant": True},
        {"topic": "t", "registry": REGISTRY},
        {"keep_way_back": True},
        {"strategy": DIRECT},
        {"strategy": PT_OSC, "tool_options": ("--max-load=1",)},
    ],
)
def test_what_is_accepted(fields: dict[str, Any]) -> None:
    assert parse_spec(written(spec(**fields))) == spec(**fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"database": ""}, "no database is named"),
        ({"connection": "shop", "password_file": "secret"}, "password file of its own"),
        ({"threads_running_max": 0}, "threads_running_max is at least 1"),
        ({"lag_seconds_max": -0.5}, "lag_seconds_max is not negative"),
        ({"replicas": ("r1",)}, "--max-lag"),
        ({"lag_seconds_max": 1.0, "strategy": DIRECT}, "limits of load and lag are for online$"),
        ({"lag_seconds_max": 1.0, "strategy": PT_OSC}, "this one takes them as --tool-option"),
        ({"tool_options": ("x",)}, "runs no program"),
        ({"prefer_instant": True, "strategy": DIRECT}, "--prefer-instant is for online"),
        ({"topic": "t", "strategy": DIRECT}, "--topic is for online"),
        ({"registry": REGISTRY}, "name the topic with --topic"),
        ({"keep_way_back": True, "strategy": DIRECT}, "--keep-way-back is for strategy online"),
        ({"keep_way_back": True, "prefer_instant": True}, "--keep-way-back is for strategy online"),
    ],
)
def test_a_refusal_names_the_option(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(MigrationSpecError, match=why):
        parse_spec(written(spec(**fields)))


def test_a_strategy_of_earlier_versions_is_in_records_and_not_in_requests() -> None:
    asked = written(spec(strategy=MigrationStrategy.TRIGGERS, threads_running_max=1))
    assert parse_spec(asked).strategy is MigrationStrategy.TRIGGERS
    with pytest.raises(StrategyRemovedError, match=r"strategy triggers was removed in this version\. Use online, or"):
        parse_request(asked)
    reverting = written(spec(strategy=MigrationStrategy.TRIGGERS, reverts="m"))
    assert parse_request(reverting).reverts == "m", "its examination says why it is not reverted"


def test_the_command_line_offers_what_can_be_asked_for() -> None:
    assert get_args(StrategyName) == tuple(strategy.value for strategy in OFFERED)
