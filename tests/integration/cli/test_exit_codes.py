"""What does not exist ends every command alike: each one that takes a name is called with one that nobody has."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import NewTopic

from headgate.app.exit_codes import ExitCode
from headgate.config.settings import Settings
from headgate.eventlog.kafka import KafkaLog
from integration.cli.conftest import Service, headgate, make_topics
from support.commands import commands
from support.waiting import eventually

pytestmark = pytest.mark.integration

NAMES = {"feed", "table", "agent", "topic", "place", "places"}
"""Arguments that say which thing is meant."""

NEW_NAMES = ("feed init",)
"""Commands that are given the name of what they write."""

MORE = {
    "table at": ("--ts", "2026-01-01T00:00:00Z"),
    "verify": ("--source-dsn", "host=127.0.0.1", "--repair"),
    "table split": ("--parts", "2"),
    "table resync": ("--key", "1"),
}

WELL_FORMED = {"feed skip": {"places": "no-topic/0/0"}}
"""Names that are checked before anybody is asked."""


def calls() -> list[tuple[str, ...]]:
    """Command lines with names that nobody has, one for each command that takes a name."""
    found = []
    for path, command in commands():
        names = [one.name for one in command.params if one.param_type_name == "argument" and one.name in NAMES]
        spelled = WELL_FORMED.get(path, {})
        if names and path not in NEW_NAMES:
            agreed = ("--yes",) if any("--yes" in each.opts for each in command.params) else ()
            given = (spelled.get(name, f"no-{name}") for name in names)
            found.append((*path.split(), *MORE.get(path, ()), *agreed, *given))
    return found


def test_every_command_with_a_name_is_walked_over() -> None:
    paths = {" ".join(call[:2]) for call in calls()}
    assert {"feed pause", "feed rebalance", "table move", "table list", "agent drain", "deadletter list"} <= paths
    assert len(paths) > 15, "why and verify, too"


@pytest.fixture
def owned(log: KafkaLog, serve: Callable[..., Service]) -> None:
    coordinator = serve("owner", "coordinator")
    eventually(lambda: coordinator.get("/readyz")[0] == 200, "the owner is ready")


@pytest.mark.usefixtures("owned")
def test_what_does_not_exist_is_43_everywhere() -> None:
    results = {call: headgate(*call) for call in calls()}
    assert {" ".join(call): result.exit_code for call, result in results.items()} == {
        " ".join(call): ExitCode.NOT_FOUND for call in results
    }
    assert all("no-" in result.stderr for result in results.values())


@pytest.mark.usefixtures("owned")
def test_tables_and_agents_of_a_feed_that_is_there(shop_file: Path) -> None:
    assert headgate("feed", "create", str(shop_file)).exit_code == ExitCode.DONE
    for call in (
        ("table", "move", "shop", "nosuch", "a1"),
        ("table", "move", "shop", "public.orders", "nosuch"),
        ("table", "split", "shop", "nosuch", "--parts", "2"),
        ("table", "merge", "shop", "nosuch"),
    ):
        result = headgate(*call)
        assert (result.exit_code, "'nosuch'" in result.stderr) == (ExitCode.NOT_FOUND, True), (call, result.stderr)


@pytest.mark.usefixtures("owned")
@pytest.mark.parametrize("option", [(), ("--dry-run",)], ids=["asked", "rehearsed"])
def test_a_refused_feed_ends_with_the_code_of_its_cause(
    option: tuple[str, ...], settings: Settings, log: KafkaLog, shop_file: Path, tmp_path: Path
) -> None:
    spec = yaml.safe_load(shop_file.read_text(encoding="utf-8"))

    def created(**changed: object) -> int:
        file = tmp_path / "changed.yaml"
        given = {
            "feed": "other",
            **{part: {**spec[part], **(changed.get(part) or {})} for part in ("source", "sink")},  # type: ignore[dict-item]
        }
        file.write_text(yaml.safe_dump(given), encoding="utf-8")
        return headgate("feed", "create", str(file), *option).exit_code

    keyless = f"{settings.cluster}-shop.src.keyless"
    make_topics(log, NewTopic(keyless, 1, 1))
    assert created(source={"topics": [f"{settings.cluster}-nosuch"]}) == ExitCode.SOURCE
    assert created(sink={"table": "public.nosuch_{table}"}) == ExitCode.SINK_REFUSED
    assert created(sink={"dsn": spec["sink"]["dsn"] + " port=1"}) == ExitCode.SINK_UNAVAILABLE
    assert created(sink={"tables": "x"}) == ExitCode.FEED_SPEC
    update = headgate("feed", "update", str(shop_file), *option)
    assert update.exit_code == ExitCode.NOT_FOUND, update.stderr
    assert json.loads(headgate("feed", "list", "-o", "json").stdout) == []
