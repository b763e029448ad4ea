"""Descriptions of migrations: which are accepted, and which option a refusal names."""

import json
from typing import Any, get_args

import pytest

from headgate.cli.migration_target import StrategyName
from headgate.migration.core.spec import (
    MigrationSpec,
    MigrationSpecError,
    StrategyRemovedError,
    check_named,
    may_lose,
    parse_request,
    parse_spec,
    written,
)
from headgate.records.migration import OFFERED, MigrationStrategy

ONLINE = MigrationStrategy.ONLINE
DIRECT, PT_OSC, GH_OST = MigrationStrategy.DIRECT, MigrationStrategy.PT_OSC, MigrationStrategy.GH_OST
REGISTRY = "avro"


def spec(**fields: Any) -> MigrationSpec:
    given = {"statement": "ALTER TABLE t ADD c int", "database": "db", "strategy": ONLINE}
    return MigrationSpec(**given | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"threads_running_max": 1},
        {"lag_seconds_max": 0.0, "replicas": ("r1",)},
        {"prefer_instant": True},
        {"topic": "t", "registry": REGISTRY},
        {"keep_way_back": True},
        {"must_be_revertible": True},
        {"strategy": DIRECT},
        {"strategy": PT_OSC, "tool_options": ("--max-load=1",)},
        {"strategy": PT_OSC, "chunk_rows": 5},
        {"strategy": GH_OST, "postpone_completion": True},
        {"strategy": GH_OST, "in_order_completion": True, "context": "c"},
        {"cutover_threshold_seconds": 1.0},
        {"cutover_threshold_seconds": 30.0},
        {"context": "c", "singleton_context": True, "in_order_completion": True},
        {"context": "c", "strategy": DIRECT},
        {"retain_artifacts_seconds": 0.0},
        {"feed_lags_max": {"f": 0.0}},
        {"declarative": True},
        {"reverts": "m"},
        {"force_cutover_after_seconds": 1.0, "postpone_completion": True},
    ],
)
def test_what_is_accepted(fields: dict[str, Any]) -> None:
    assert parse_request(written(spec(**fields))) == spec(**fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"database": ""}, "--database '' is not the name of a connection"),
        ({"lag_seconds_max": 1.0, "replicas": ("mysql://r1",)}, "--replica 'mysql://r1' is not the name"),
        ({"topic": "t", "registry": "https://registry"}, "--registry 'https://registry' is not the name"),
        ({"threads_running_max": 0}, "--max-threads-running must be at least 1, got 0"),
        ({"lag_seconds_max": -0.5}, "--max-lag must not be negative, got -0.5"),
        ({"replicas": ("r1",)}, "--max-lag"),
        ({"lag_seconds_max": 1.0, "strategy": DIRECT}, "limits of load and lag are for online$"),
        ({"lag_seconds_max": 1.0, "strategy": PT_OSC}, "this one takes them as --tool-option"),
        ({"tool_options": ("x",)}, "runs no program"),
        ({"prefer_instant": True, "strategy": DIRECT}, "--prefer-instant is for online"),
        ({"topic": "t", "strategy": DIRECT}, "--topic is for online"),
        ({"chunk_rows": 5}, "--chunk-rows is for pt-osc and gh-ost"),
        ({"chunk_rows": 5, "strategy": DIRECT}, "--chunk-rows is for pt-osc and gh-ost"),
        ({"registry": REGISTRY}, "name the topic with --topic"),
        ({"keep_way_back": True, "strategy": DIRECT}, "--keep-revertible is for strategy online"),
        ({"keep_way_back": True, "prefer_instant": True}, "--keep-revertible is for strategy online"),
        ({"cutover_threshold_seconds": 0.5}, "cutover_threshold_seconds is 0.5: give 1 to 30"),
        ({"cutover_threshold_seconds": 31.0}, "cutover_threshold_seconds is 31: give 1 to 30"),
        ({"singleton_context": True}, "singleton_context compares contexts"),
        ({"in_order_completion": True}, "in_order_completion is an order within a context"),
        ({"retain_artifacts_seconds": -1.0}, "retain_artifacts_seconds cannot be negative"),
        ({"chunk_rows": 0}, "chunk_rows must be at least 1"),
        ({"feed_lags_max": {"f": 1.0, "g": -1.0}}, "--max-feed-lag must not be negative"),
        ({"feed_lags_max": {"f": 1.0}, "strategy": DIRECT}, "limits of load and lag are for online$"),
        ({"threads_running_max": 1, "strategy": DIRECT}, "limits of load and lag are for online$"),
        ({"declarative": True, "reverts": "m"}, "--declarative describes a table, and a revert does not"),
        ({"force_cutover_after_seconds": 1.0, "strategy": PT_OSC}, "--force-cutover-after is not for it"),
        ({"force_cutover_after_seconds": 1.0, "strategy": GH_OST}, "--force-cutover-after is not for it"),
        ({"postpone_completion": True, "strategy": PT_OSC}, "its completion cannot be postponed"),
        ({"in_order_completion": True, "context": "c", "strategy": PT_OSC}, "cannot be postponed, nor ordered"),
    ],
)
def test_a_refusal_names_the_option(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(MigrationSpecError, match=why):
        parse_request(written(spec(**fields)))


def test_a_strategy_of_earlier_versions_is_in_records_and_not_in_requests() -> None:
    asked = written(spec(strategy=MigrationStrategy.TRIGGERS, threads_running_max=1))
    assert parse_spec(asked).strategy is MigrationStrategy.TRIGGERS
    with pytest.raises(StrategyRemovedError, match=r"strategy triggers was removed in this version\. Use online, or"):
        parse_request(asked)
    reverting = written(spec(strategy=MigrationStrategy.TRIGGERS, reverts="m"))
    assert parse_request(reverting).reverts == "m", "its examination says why it is not reverted"


def test_the_command_line_offers_what_can_be_asked_for() -> None:
    assert get_args(StrategyName) == tuple(strategy.value for strategy in OFFERED)


@pytest.mark.parametrize(
    "place",
    [
        {"database": "mysql://app@evil/shop", "password_file": "/etc/shadow"},
        {"database": "postgresql://app@evil/shop?sslkey=/root/key"},
        {"database": "host=evil dbname=shop"},
        {"database": "/run/sock"},
        {"connection": "shop"},
        {"connection": "shop", "database": "mysql://app@db:3306/shop"},
    ],
)
def test_a_request_brings_no_address_and_no_file(place: dict[str, str]) -> None:
    text = json.dumps({"statement": "ALTER TABLE t ADD c int", "strategy": "online", **place})
    with pytest.raises(MigrationSpecError, match=r"(--database takes|is not) the name of a connection"):
        parse_request(text)


@pytest.mark.parametrize("option", ["dsn", "ssl_key", "host"])
def test_an_unknown_option_is_refused(option: str) -> None:
    text = json.dumps({"statement": "DROP TABLE t", "strategy": "direct", "database": "shop", option: "x"})
    with pytest.raises(MigrationSpecError, match=option):
        parse_request(text)


def test_the_record_of_an_earlier_version_is_read_and_its_database_is_not_guessed() -> None:
    old = {
        "statement": "ALTER TABLE t ADD c int",
        "strategy": "online",
        "context": "c",
        "database": "mysql://app@db:3306/shop",
        "password_file": "/run/secrets/shop",
        "registry": {"url": "https://registry"},
        "replicas": ["mysql://app@r1"],
    }
    found = parse_spec(json.dumps(old))
    assert (found.statement, found.context, found.database, found.registry) == (old["statement"], "c", "", None)
    with pytest.raises(MigrationSpecError, match="Submit it again with --database and the name of a connection"):
        check_named(found)
    named = parse_spec(json.dumps(old | {"connection": "shop"}))
    assert named.database == "shop", "that one was named"
    check_named(named)
    check_named(spec())


def test_fields_that_nothing_reads_any_more_are_ignored_in_old_records() -> None:
    old = {"statement": "DROP TABLE t", "strategy": "direct", "copy_workers": 4}
    assert parse_spec(json.dumps(old | {"database": "shop"})) == parse_spec(
        '{"statement": "DROP TABLE t", "strategy": "direct", "database": "shop"}'
    )
    by_address = parse_spec(json.dumps(old | {"database": "mysql://u@h/d"}))
    assert (by_address.statement, by_address.database) == ("DROP TABLE t", "")
    with pytest.raises(MigrationSpecError, match="unknown field `worker`"):
        parse_spec(json.dumps(old | {"database": "shop", "worker": 4}))


def test_a_request_names_the_columns_whose_values_may_be_lost() -> None:
    spec = {"statement": "ALTER TABLE t MODIFY c int", "database": "shop", "strategy": "direct", "allow_lossy": True}
    assert parse_spec(json.dumps(spec)).allow_lossy is True, "a record of an earlier version"
    with pytest.raises(MigrationSpecError, match="--allow-lossy COLUMN"):
        parse_request(json.dumps(spec))
    assert parse_request(json.dumps({**spec, "allow_lossy": ["c"]})).allow_lossy == ("c",)


@pytest.mark.parametrize(
    ("allowed", "is_accepted"), [(("c",), True), (("a", "c"), True), (("a",), False), ((), False), (True, True)]
)
def test_values_are_lost_of_the_columns_that_were_named(allowed: Any, is_accepted: bool) -> None:
    assert may_lose(allowed, "c") is is_accepted


@pytest.mark.parametrize("text", [None, "", "[1]", '"shop"', "{", '{"database": 1}', '{"database": "\\ud800"}'])
def test_what_is_no_description_is_refused(text: str | None) -> None:
    with pytest.raises(MigrationSpecError):
        parse_request(text)
