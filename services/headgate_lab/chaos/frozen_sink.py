"""``headgate chaos --frozen-sink``: what a sink that stops answering costs a healthy feed on the same agent.

One agent runs a feed with many tables, whose sink freezes (chaos/freezing.py), and a feed with one table in another
database server. Every change of the healthy feed records when it was sent, and its row when it was written.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.console import Console
from rich.table import Table

from headgate.eventlog.connection import KafkaConnection
from headgate.eventlog.topics import create_topics
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.error_codes import SINK_SLOW
from headgate_lab.chaos.freezing import FreezingSink, freezing_sink
from headgate_lab.chaos.targets import SinkType
from headgate_lab.chaos.world import TOPICS_SECONDS_MAX
from headgate_lab.demo.display import Display
from headgate_lab.demo.folder import ClusterAt, scratch_parts
from headgate_lab.demo.report import Figure
from headgate_lab.demo.services import PASSWORD_FILE, Services
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from headgate_lab.embedded.clients import postgres_client
from headgate_lab.embedded.postgres import EmbeddedPostgres
from headgate_lab.parts.commands import run_command
from headgate_lab.parts.processes import ServiceError, stop_all

__all__ = ["FrozenSinkReport", "run_frozen_sink", "show_frozen_sink"]

TABLES: Final = 12
"""Of the frozen sink, each with changes all the time: more than an agent here has cores."""

FROZEN_SECONDS: Final = 90.0
"""Long enough for the agent to find out (40 s) and to try the sink again and again."""

HEALTHY_SECONDS: Final = 20.0
"""Measured before the sink freezes, with the same load."""

PACE_SECONDS: Final = 0.05
"""Between two changes of the healthy feed."""

PAUSE_GOAL_MS: Final = 1_000
WAIT_SECONDS_MAX: Final = 300.0
POLL_SECONDS: Final = 0.2

_FROZEN: Final = tuple(f"frozen{number}" for number in range(TABLES))
_HEALTHY: Final = "healthy"


class FrozenSinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """How late changes of the healthy feed were, in ms, before and while the other sink was frozen.

    ``named_after_seconds``: how long it took until the first table of the frozen sink named the server that it waits
    for; ``said_after_seconds``: until each of them reported that it does not answer. ``missing`` counts changes of both
    feeds that were not at their sinks in the end.
    """

    before_ms: tuple[float, ...]
    during_ms: tuple[float, ...]
    named_after_seconds: float | None
    said_after_seconds: float | None
    missing: int
    left_over: tuple[str, ...] = ()

    def figures(self) -> dict[str, Figure]:
        """By name, in the order in which they are shown."""
        found: dict[str, Figure] = {}
        for name, late in (("before", self.before_ms), ("frozen", self.during_ms)):
            for share, which in ((0.5, "p50"), (1.0, "max")):
                goal = PAUSE_GOAL_MS if (name, which) == ("frozen", "max") else None
                found[f"healthy_{name}_{which}_ms"] = Figure(_share(late, share), "ms", goal=goal, n=len(late))
        if self.named_after_seconds is not None:
            found["frozen_sink_named_s"] = Figure(round(self.named_after_seconds, 1), "s")
        if self.said_after_seconds is not None:
            found["frozen_tables_say_why_s"] = Figure(round(self.said_after_seconds, 1), "s")
        found["changes_missing"] = Figure(self.missing, "changes", goal=0, must=True)
        found["processes_left_over"] = Figure(len(self.left_over), "processes", goal=0, must=True)
        return found

    def holds(self) -> bool:
        """Whether nothing is missing or left over, and the frozen sink's tables reported why. Times are goals."""
        musts = all(figure.value == figure.goal for figure in self.figures().values() if figure.must)
        is_told = self.named_after_seconds is not None and self.said_after_seconds is not None
        return musts and is_told and bool(self.before_ms) and bool(self.during_ms)

    def to_json(self) -> dict[str, Any]:
        """The object that ``-o json`` prints."""
        figures = {
            name: {"value": f.value, "unit": f.unit, "goal": f.goal, "n": f.n} for name, f in self.figures().items()
        }
        return {"chaos": "frozen-sink", "holds": self.holds(), "figures": figures, "findings": list(self.left_over)}


def _share(values: tuple[float, ...], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else 0.0


def show_frozen_sink(console: Console, report: FrozenSinkReport) -> None:
    """The figures as a table, and the verdict."""
    figures = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("figure", "value", "unit", "goal"):
        figures.add_column(column, justify="right" if column in ("value", "goal") else "left", no_wrap=True)
    for name, figure in report.figures().items():
        goal = "" if figure.goal is None else f"{figure.goal:g}" if figure.must else f"≤ {figure.goal:g}"
        figures.add_row(name, f"{figure.value:,}", figure.unit, goal)
    console.print(figures)
    console.print("It holds." if report.holds() else "It does NOT hold.")


def run_frozen_sink(
    display: Display, kind: SinkType, *, keep: bool, frozen_seconds: float = FROZEN_SECONDS
) -> FrozenSinkReport:
    """Start everything, freeze one sink, measure, mend it, compare. Raises ServiceError and what starting raises."""
    left_over: list[str] = []
    with scratch_parts("headgate-frozen-", display.say, left_over, keep=keep) as scratch:
        folder, parts = scratch.folder, scratch.parts
        display.say(f"starting a PostgreSQL, a {kind} to freeze, a broker, two coordinators and an agent")
        server = parts.enter_context(EmbeddedPostgres(folder / "target"))
        healthy_dsn = _make_healthy_database(server)
        freezing = parts.enter_context(freezing_sink(kind, folder, server, _FROZEN))
        kafka = EmbeddedKafka(folder / "kafka", settings=CALM)
        parts.callback(kafka.stop)
        kafka.start()
        _create_topics(kafka.bootstrap)
        create_topics(ClusterAt(kafka.bootstrap))
        services = Services(kafka.bootstrap, 1, folder / "logs")
        parts.callback(lambda: left_over.extend(stop_all(services.all)))
        services.start_coordinators()
        services.start_agents()
        known = {key: value for key, value in conninfo_to_dict(healthy_dsn).items() if key != "password"}
        _create_feed(services, folder, "frozen", _FROZEN, _sink(folder, kind, freezing.dsn, freezing.password))
        postgresql = _sink(folder, SinkType.POSTGRESQL, make_conninfo("", **known), server.password)
        _create_feed(services, folder, _HEALTHY, (_HEALTHY,), postgresql)
        with postgres_client(healthy_dsn) as healthy:
            load = _Load(kafka.bootstrap)
            parts.callback(load.stop)
            load.start()
            _await("every table has changes", services, lambda: _all_have_rows(healthy, freezing))
            display.say(f"measuring for {HEALTHY_SECONDS:g} s")
            began = time.time()
            time.sleep(HEALTHY_SECONDS)
            frozen_at = time.time()
            display.say(f"the sink of {TABLES} tables stops answering, for {frozen_seconds:g} s")
            freezing.freeze()
            named_after, said_after = _await_explained(services, frozen_at + frozen_seconds)
            time.sleep(max(0.0, frozen_at + frozen_seconds - time.time()))
            mended_at = time.time()
            freezing.thaw()
            display.say("it answers again: everything must arrive")
            load.stop()
            _await("everything is applied", services, lambda: not _missing(load, healthy, freezing))
            late = _lateness(load.sent, healthy)
            before = tuple(ms for at, ms in late if began <= at < frozen_at - 1)
            report = FrozenSinkReport(
                before_ms=before,
                during_ms=tuple(ms for at, ms in late if frozen_at <= at < mended_at - 1),
                named_after_seconds=named_after,
                said_after_seconds=said_after,
                missing=_missing(load, healthy, freezing),
            )
            scratch.failed = not report.holds()
    return msgspec.structs.replace(report, left_over=tuple(left_over))


class _Load:
    """Changes of both feeds until it is stopped: ``sent`` is when each of the healthy feed's was sent, by its id."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: dict[int, float] = {}
        self.frozen = 0
        """How many changes each table of the frozen sink was sent."""
        self._producer = KafkaConnection(bootstrap).client(Producer, linger_ms=0, enable_idempotence=True)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frozen-sink-load", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more; all that was sent is at the broker. Idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(scaled_seconds(WAIT_SECONDS_MAX))  # it waits for nothing but its own pace
            self._producer.flush(scaled_seconds(WAIT_SECONDS_MAX))
            self._producer.close()  # or it logs, in librdkafka's own way, that the broker is stopped

    def _run(self) -> None:
        number = 0
        while not self._over.wait(PACE_SECONDS):
            self._send(_HEALTHY, number)
            self.sent[number] = time.time()
            if number % 10 == 0:
                for table in _FROZEN:
                    self._send(table, self.frozen)
                self.frozen += 1
            self._producer.poll(0)
            number += 1

    def _send(self, table: str, number: int) -> None:
        source = {"db": "measure", "schema": "public", "table": table, "ts_ms": time.time_ns() // 1_000_000}
        event = {"op": "c", "before": None, "after": {"id": number}, "source": source}
        self._producer.produce(_topic(table), msgspec.json.encode(event), msgspec.json.encode({"id": number}))


def _topic(table: str) -> str:
    return f"measure.public.{table}"


def _make_healthy_database(server: EmbeddedPostgres) -> str:
    """The address of a database with the table of the healthy feed."""
    with postgres_client(server.dsn()) as connection:
        connection.execute(f"CREATE DATABASE {_HEALTHY}")
    with postgres_client(server.dsn(_HEALTHY)) as connection:
        columns = "id bigint PRIMARY KEY, at timestamptz DEFAULT clock_timestamp()"
        connection.execute(f"CREATE TABLE {_HEALTHY} ({columns})")
    return server.dsn(_HEALTHY)


def _sink(folder: Path, kind: SinkType, dsn: str, password: str) -> Mapping[str, str]:
    """``sink`` of a feed, with its password in a file."""
    file = folder / f"{kind}.{PASSWORD_FILE}"
    file.touch(mode=0o600)
    file.write_text(password, encoding="utf-8")
    table = "public.{table}" if kind is SinkType.POSTGRESQL else "{table}"
    return {"type": str(kind), "dsn": dsn, "password_file": str(file), "table": table}


def _create_topics(bootstrap: str) -> None:
    topics = [NewTopic(_topic(table), 1, 1) for table in (*_FROZEN, _HEALTHY)]
    admin = KafkaConnection(bootstrap).admin  # held until it has answered
    for created in admin.create_topics(topics).values():
        created.result(scaled_seconds(TOPICS_SECONDS_MAX))


def _create_feed(services: Services, folder: Path, name: str, tables: tuple[str, ...], sink: Mapping[str, str]) -> None:
    spec: Mapping[str, Any] = {
        "feed": name,
        "batch_interval_seconds": 0,  # otherwise a batch may rest for a second, which is not a pause
        "source": {"topics": [_topic(table) for table in tables], "format": "debezium-json"},
        "sink": dict(sink),
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    timeout = f"{scaled_seconds(WAIT_SECONDS_MAX):g}"
    answer = run_command(services.settings, "feed", "create", str(file), "-o", "json", "--timeout", timeout)
    if answer.get("status") != "done":
        services.check()
        raise ServiceError(f"headgate feed create failed: {answer}. The logs are in {services.log_folder}")


def _await(what: str, services: Services, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scaled_seconds(WAIT_SECONDS_MAX)
    while not is_so():
        services.check()
        if time.monotonic() > deadline:
            raise ServiceError(f"not within {WAIT_SECONDS_MAX:g} s: {what}. The logs are in {services.log_folder}")
        time.sleep(POLL_SECONDS)


def _await_explained(services: Services, until: float) -> tuple[float | None, float | None]:
    """After how many seconds a table of the frozen sink names it, and all report that it does not answer.

    None for what has not happened by ``until``.
    """
    began, named = time.time(), None
    while time.time() < until:
        services.check()
        answer = str(run_command(services.settings, "table", "list", "frozen", "-o", "json"))
        if named is None and (SINK_SLOW in answer or "sink_unavailable" in answer):
            named = time.time() - began
        if answer.count("sink_unavailable") >= TABLES:
            return named, time.time() - began
        time.sleep(POLL_SECONDS)
    return named, None


def _all_have_rows(healthy: psycopg.Connection[Any], freezing: FreezingSink) -> bool:
    return min(_count(healthy, _HEALTHY), *(freezing.count(table) for table in _FROZEN)) > 0


def _missing(load: _Load, healthy: psycopg.Connection[Any], freezing: FreezingSink) -> int:
    arrived = _count(healthy, _HEALTHY) + sum(freezing.count(table) for table in _FROZEN)
    return len(load.sent) + TABLES * load.frozen - arrived


def _count(connection: psycopg.Connection[Any], table: str) -> int:
    ((count,),) = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))).fetchall()
    return int(count)


def _lateness(sent: Mapping[int, float], healthy: psycopg.Connection[Any]) -> list[tuple[float, float]]:
    """Of each change of the healthy feed: when it was sent (since 1970), and how many ms later it was written."""
    rows = healthy.execute("SELECT id, extract(epoch FROM at) FROM healthy").fetchall()
    return [(sent[number], (float(at) - sent[number]) * 1000) for number, at in rows]
