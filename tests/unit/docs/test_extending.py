"""docs/extending.md: a package from outside adds a sink, which passes the contract of sinks, a format, a scheduler."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from headgate.config.feed import FeedSpecError, parse_feed
from headgate.config.plugs import FORMATS, SCHEDULERS, SINKS, PlugError
from headgate.config.settings import SettingsError, load_settings
from headgate.config.sink_spec import SinkSpec
from headgate.coordinator.core.machine import decide
from headgate.coordinator.core.state import digest, evolve, new_state
from headgate.coordinator.schedulers.contract import Division, Move, Scheduler
from headgate.coordinator.schedulers.standard import STANDARD
from headgate.coordinator.shell.service import load_schedulers
from headgate.formats.change import Operation
from headgate.formats.decoding import UndecodableError
from headgate.records.control import Epoch, Positions
from headgate.records.keys import SpanKey
from headgate.replication.feed_parts import FeedParts
from headgate.runtime.machine import Machine
from headgate.sinks.contract import ChangeBatch, Claim, Sink, SinkFencedError, SinkRefusedError
from headgate.sinks.registry import open_sink, same_sink
from integration.sinks.contract import Bench, SinkContract, wait_until_frozen
from scenarios.runner import World

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"

# Frozen with its batch decided on and its file written, at the door to the commit.
HOLDER = """
import os, signal, sys, msgspec
from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.registry import open_sink

link, stops = os.link, iter([True])
def link_once_thawed(*places):
    if next(stops, False):
        os.kill(os.getpid(), signal.SIGSTOP)
    link(*places)
os.link = link_once_thawed
try:
    open_sink(SinkSpec.model_validate_json(sys.argv[1])).writer().apply(
        msgspec.msgpack.decode(bytes.fromhex(sys.argv[2]), type=ChangeBatch))
except SinkError as error:
    print(error.code)
else:
    print("applied")
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The page's package, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("outside")
    page = PAGE.read_text()
    modules = re.findall(r"`(headgate_\w+\.py)`[^`]*(?:`[^`]+`[^`]*)?```python\n(.*?)```", page, re.DOTALL)
    assert len(modules) == page.count("```python")
    for name, code in modules:
        (folder / name).write_text(code)
    info = folder / "headgate_json_lines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: headgate-json-lines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(page.split("```ini\n")[1].split("```")[0])
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    for name, _ in modules:
        sys.modules.pop(name.removesuffix(".py"), None)
    SINKS.forget("json-lines")
    SINKS.forget("staged-lines")
    FORMATS.forget("plain-json")
    SCHEDULERS.forget("by-region")


class JsonLinesBench:
    table = "orders"
    type, scheme = "json-lines", "jsonl"

    def __init__(self, outside: Path, folder: Path) -> None:
        self._outside = outside
        self._folder = folder
        (folder / "orders.key").write_text("id")
        self._spec = SinkSpec(type=self.type, dsn=f"{self.scheme}://{folder}")
        self.sink: Sink = open_sink(self._spec)

    def rows(self) -> dict[int, str | None]:
        rows = self.sink._log.read().tables.get("orders", {}).values()  # type: ignore[attr-defined]
        return {row["id"]: row.get("value") for row in rows}

    def execute(self, statement: str) -> list[tuple]:
        raise NotImplementedError

    def drop(self) -> None:
        (self._folder / "orders.key").unlink()

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        outside = importlib.import_module("headgate_json_lines")
        facts = [
            outside.fact_of(claim, p, epoch or claim.epoch, claim.incarnation, offset, False, claim.topic_id)
            for p, offset in positions.items()
        ]
        self.sink._log.change(lambda _: (None, facts))  # type: ignore[attr-defined]

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        packed = msgspec.msgpack.encode(batch).hex()
        paths = ":".join([str(self._outside), *filter(None, sys.path)])
        command = [sys.executable, "-c", HOLDER, self._spec.model_dump_json(), packed]
        return wait_until_frozen(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": paths})
        )


class TestJsonLines(SinkContract):
    FROZEN_ENDS_AS = SinkFencedError.code  # it holds nothing that anybody would have to take from it

    @staticmethod
    def completes_rows(bench: Bench) -> bool:  # noqa: ARG004
        """It replaces rows as a whole."""
        return False

    @pytest.fixture
    def bench(self, outside: Path, tmp_path: Path) -> JsonLinesBench:
        return JsonLinesBench(outside, tmp_path)

    @pytest.mark.skip(reason="there is no earlier version of this sink")
    def test_a_sink_of_before_source_tables_were_kept_is_taken_on(self) -> None: ...


class StagedLinesBench(JsonLinesBench):
    type, scheme = "staged-lines", "staged-jsonl"


class TestStagedLines(TestJsonLines):
    """The same for a sink that commits on the driver: its writer stages and commits."""

    @pytest.fixture
    def bench(self, outside: Path, tmp_path: Path) -> JsonLinesBench:
        return StagedLinesBench(outside, tmp_path)

    @pytest.mark.skip(reason="there is no earlier version of this sink")
    def test_a_sink_of_before_source_tables_were_kept_is_taken_on(self) -> None: ...


def _feed(**sink: object) -> str:
    return json.dumps({"feed": "f", "source": {"topics": ["t"]}, "sink": {"type": "json-lines", **sink}})


def test_a_feed_names_it_like_one_of_ours(outside: Path) -> None:
    spec = parse_feed(_feed(dsn="jsonl:///var/lib/../tables"))
    assert same_sink(spec.sink).dsn == "jsonl:///var/tables"
    assert SINKS.names() == ("postgresql", "mysql", "kafka", "delta", "iceberg", "json-lines", "staged-lines")
    with pytest.raises(SinkRefusedError, match="jsonl:///folder"):
        open_sink(SinkSpec(type="json-lines", dsn="/x"))


def test_options_that_it_does_not_take_are_refused_when_the_feed_is_read(outside: Path) -> None:
    with pytest.raises(FeedSpecError, match=r"sink\.keyless cannot be used with sinks of type json-lines.*Remove it"):
        parse_feed(_feed(dsn="jsonl:///x", keyless="append"))


def test_without_the_package_the_type_is_unknown() -> None:
    with pytest.raises(FeedSpecError, match=r"'json-line' is unknown; .*hoose from postgresql, mysql"):
        parse_feed(_feed(dsn="jsonl:///x", type="json-line"))


def test_a_format_from_outside_decodes_into_a_sink_from_outside(outside: Path, tmp_path: Path) -> None:
    spec = _feed(dsn=f"jsonl://{tmp_path}").replace('["t"]', '["t"], "format": "plain-json"')
    parts = FeedParts(spec)
    decoder = parts.decoder("t")
    values = [b'{"key": {"id": 1}, "row": {"id": 1, "value": "a"}}', b'{"key": {"id": 2}, "row": null}']
    put, gone = decoder.decode_batch([None] * 2, values, [0, 0], [5, 6], [9, 9])
    assert (put.operation, put.row, gone.operation, gone.offset) == (
        Operation.UPSERT,
        {"id": 1, "value": "a"},
        Operation.DELETE,
        6,
    )
    with pytest.raises(UndecodableError, match="offset 7: the event has no key"):
        decoder.decode_batch([None], [b"{}"], [0], [7], [9])
    assert type(parts.sink).__name__ == "JsonLinesSink"
    parts.close()
    with pytest.raises(FeedSpecError, match=r"source.transaction_topic needs format debezium-json"):
        parse_feed(spec.replace('"plain-json"', '"plain-json", "transaction_topic": "a.transaction"'))


def _placed(schedulers: tuple[Scheduler, ...]) -> dict[tuple[str, str], str]:
    """(feed, table) → agent, of two feeds of two tables and two agents."""
    world = World(Machine(new_state, evolve, partial(decide, schedulers=schedulers), digest))
    for line in (
        "owner start o1",
        "agent join eu-1",
        "agent join us-1",
        "request create r1 eu-shop tables=t1,t2",
        "request create r2 us-shop tables=t3,t4",
    ):
        world.run(line)
    state = world.state()
    return {(key.feed, key.span): record.primary.agent for key, record in state.spans.items() if record.primary}


def test_a_scheduler_from_outside_is_asked_in_its_turn(outside: Path) -> None:
    names = load_settings({"schedulers": "by-region, basic,drain"}).schedulers.split(",")
    placed = _placed(load_schedulers(names))
    assert placed == {
        ("eu-shop", "t1"): "eu-1",
        ("eu-shop", "t2"): "eu-1",
        ("us-shop", "t3"): "us-1",
        ("us-shop", "t4"): "us-1",
    }
    assert _placed(STANDARD) != placed, "basic alone spreads them"


def test_what_a_scheduler_proposes_wrongly_is_passed_over() -> None:
    nobody = ("nobody", "s1")
    wrong = Scheduler(
        name="wrong",
        summary="everything to a session that is not there, and every table into parts",
        propose=lambda view: (
            *(Move(key, nobody) for key in view.needy()),
            Move(SpanKey("gone", "t1"), next(iter(view.targets()), nobody)),
            Division("gone", "t1", 2),
        ),
    )
    assert len(_placed((wrong, *STANDARD))) == 4, "the others are asked all the same"


def test_a_scheduler_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'speed' is not a scheduler. Choose from basic"):
        load_settings({"schedulers": "basic,speed"})
    with pytest.raises(SettingsError, match="names a scheduler twice"):
        load_settings({"schedulers": "basic,basic"})
    with pytest.raises(PlugError, match="scheduler 'speed' does not exist"):
        load_schedulers(["speed"])


def test_the_standard_schedulers_are_those_that_have_a_line() -> None:
    assert load_schedulers(load_settings().schedulers.split(",")) == STANDARD
