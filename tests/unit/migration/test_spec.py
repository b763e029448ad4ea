"""Descriptions of migrations: which are accepted, and which option a refusal names."""

from typing import Any

import pytest

from headgate.migration.core.spec import MigrationSpec, MigrationSpecError, Registry, parse_spec, written
from headgate.records.migration import MigrationStrategy

ONLINE, TRIGGERS = MigrationStrategy.ONLINE, MigrationStrategy.TRIGGERS
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
        {"threads_running_max": 1, "strategy": TRIGGERS},
        {"lag_seconds_max": 0.0, "replicas": ("r1",)},
        {"prefer_instant": True},
        {"prefer_instant": True, "strategy": TRIGGERS},
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
        ({"lag_seconds_max": 1.0, "strategy": DIRECT}, "limits of load and lag are for online and triggers$"),
        ({"lag_seconds_max": 1.0, "strategy": PT_OSC}, "this one takes them as --tool-option"),
        ({"tool_options": ("x",)}, "runs no program"),
        ({"prefer_instant": True, "strategy": DIRECT}, "--prefer-instant is for online and triggers"),
        ({"topic": "t", "strategy": TRIGGERS}, "--topic is for online"),
        ({"registry": REGISTRY}, "name the topic with --topic"),
        ({"keep_way_back": True, "strategy": TRIGGERS}, "--keep-way-back is for strategy online"),
        ({"keep_way_back": True, "prefer_instant": True}, "--keep-way-back is for strategy online"),
    ],
)
def test_a_refusal_names_the_option(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(MigrationSpecError, match=why):
        parse_spec(written(spec(**fields)))
