"""When an agent alters a table of the sink: if the feed says so, for what a batch has lacked, and not for ever."""

import json
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask
from headgate.agent.core.span.states import Span, TaskPhase
from headgate.config.feed import parse_feed
from headgate.records.control import Epoch, SpanPlan
from headgate.replication import altered_tables, source_columns
from headgate.replication.altered_tables import AlteredTables
from headgate.replication.source_columns import SOURCE_PAUSE_SECONDS, OpenedColumns
from headgate.replication.span_table import FAILURES_BORNE
from headgate.sinks.contract import Claim, FeedIdentity, SinkUnavailableError
from headgate.sinks.known_columns import ColumnNumbers, KnownColumns, StatementNumbers
from headgate.sources.database import SourceDatabaseError
from headgate.tables.alteration import Alteration
from headgate.tables.evolution import NotAlteredError, ResyncNeededError, StillRefusedError

CLAIM = Claim(FeedIdentity("c", "0-1", "f"), "s.t", "t", Epoch(1, 1), 1, {0: 0})
PLAN = SpanPlan(span="s.t", topic="t", table="s.t", start={0: 0})
TASK = SpanTask(SpanId("f", "s.t"), "0-1", 1, Epoch(1, 1), PLAN, "{}")
FEED = """
feed: f
source: {topics: [t], database: {dsn: dbname=x}}
sink: {type: postgresql, dsn: dbname=y, tables: %s}
on_bad_change: %s
"""


class Sink:
    """Keeps what is known of columns."""

    def __init__(self, kept: KnownColumns = KnownColumns()) -> None:  # noqa: B008 - immutable
        self.kept = kept
        self.columns = {"id": "int", "c": "int"}

    def known_columns(self, _claim: Claim) -> KnownColumns:
        return self.kept

    def change_known_columns(
        self, _claim: Claim, _positions: Any, change: Callable[[KnownColumns], KnownColumns]
    ) -> None:
        self.kept = change(self.kept)

    def check(self, _tables: Any) -> dict[str, Any]:
        return {"s.t": SimpleNamespace(columns=self.columns)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, str]]:
    """What was to be added."""
    found: list[Mapping[str, str]] = []

    def add(_spec: Any, _plan: Any, lacking: Mapping[str, str], _said: Any, _kept: Any, **_: Any) -> tuple[str, ...]:
        found.append(lacking)
        return tuple(lacking)

    def fit(*_: Any) -> Alteration:
        found.append({})
        return Alteration(name="s.t", schema="s", refusals=("Run this",))

    def restore(_spec: Any, _plan: Any, _said: Any, kept: KnownColumns, announce: Any, **_: Any) -> tuple[str, ...]:
        announce(["c"])
        found.append(dict.fromkeys(kept.applied, "restored"))
        return kept.applied

    monkeypatch.setattr(altered_tables, "restore_columns", restore)
    monkeypatch.setattr(source_columns, "source_numbers", lambda *_: None)
    monkeypatch.setattr(altered_tables, "add_columns", add)
    monkeypatch.setattr(altered_tables, "fit_columns", fit)
    return found


REFUSED = ("value_refused", "the value", True)


def run(tables: str, on_bad_change: str = "fail", failures: int = 1, *, is_refused: bool = False) -> str:
    span = Span(TASK, 1, primary=True, phase=TaskPhase.OPENING, since=0.0, failures={0: failures})
    span = replace(span, error=REFUSED) if is_refused else replace(span, lacking={"c": "int32"})
    parts = SimpleNamespace(spec=parse_feed(FEED % (tables, on_bad_change)), sink=Sink())
    return AlteredTables(None).alter(parts, span, CLAIM, {0: 5})  # type: ignore[arg-type]


def test_a_feed_that_evolves_its_tables_adds_what_a_batch_has_lacked(asked: list[Mapping[str, str]]) -> None:
    run("evolve")
    assert asked == [{"c": "int32"}]


@pytest.mark.parametrize("tables", ["create", "existing"])
def test_other_feeds_wait_for_a_user_who_gets_the_statement(
    asked: list[Mapping[str, str]], tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(altered_tables, "proposed_columns", lambda *_: "Run ALTER TABLE")
    assert (run(tables), asked) == ("Run ALTER TABLE", [])
    assert run(tables, "quarantine", FAILURES_BORNE) == "", "it is set aside"
    monkeypatch.setattr(altered_tables, "proposed_columns", lambda *_: "")
    assert run(tables) == "", "the table has the column by now"


@pytest.mark.parametrize("error", [SourceDatabaseError("no answer"), SinkUnavailableError("no answer")])
def test_a_place_that_cannot_be_asked_for_a_statement_is_asked_once_a_minute(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, proposes = Agent(monkeypatch, AFTER), 0

    def propose(*_: object) -> str:
        nonlocal proposes
        proposes += 1
        raise error

    monkeypatch.setattr(altered_tables, "proposed_columns", propose)
    for _ in range(2):
        assert agent.proposed("dbname=y") == ""
    assert proposes == 1
    agent.proposed("dbname=z")
    assert proposes == 2, "another sink may answer"
    agent.now = SOURCE_PAUSE_SECONDS
    agent.proposed("dbname=y")
    assert proposes == 3


def test_a_place_that_cannot_be_asked_for_a_statement_does_not_hide_replaced_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def propose(*_: object) -> str:
        raise SinkUnavailableError("no answer")

    monkeypatch.setattr(altered_tables, "proposed_columns", propose)
    agent = Agent(monkeypatch, AFTER)
    agent.proposed("dbname=y")
    with pytest.raises(ResyncNeededError):
        agent.claim(Sink(FILLED))


def test_a_change_that_may_be_set_aside_is_not_held_for_ever(asked: list[Mapping[str, str]]) -> None:
    run("evolve", "quarantine", FAILURES_BORNE - 1)
    assert len(asked) == 1
    run("evolve", "quarantine", FAILURES_BORNE)
    assert len(asked) == 1
    run("evolve", "fail", FAILURES_BORNE)
    assert len(asked) == 2


def test_a_value_that_is_refused_is_tried_once_more_and_then_stays_refused(asked: list[Mapping[str, str]]) -> None:
    run("evolve", failures=1, is_refused=True)
    with pytest.raises(StillRefusedError, match=r"^the value\. Run this$") as refused:
        run("evolve", failures=2, is_refused=True)
    assert (refused.value.code, refused.value.retryable) == ("value_refused", False)
    assert asked == [{}, {}]


def test_a_feed_that_does_not_evolve_asks_nobody_about_a_value(asked: list[Mapping[str, str]]) -> None:
    run("create", failures=9, is_refused=True)
    assert asked == []


# --- columns that the source has dropped and added again ---

BEFORE, AFTER = (ColumnNumbers("16384", {"id": 1, "c": number}) for number in (2, 3))
FILLED = KnownColumns(applied=("c", "id"), numbers=BEFORE)


class Agent:
    """Claims a table whose source has numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, numbers: ColumnNumbers, ends: int = 9) -> None:
        self.numbers: ColumnNumbers | Exception = numbers
        self.questions, self.now = 0, 0.0
        self.columns: dict[str, Any] = {}
        monkeypatch.setattr(source_columns, "source_numbers", self._answer)
        monkeypatch.setattr(altered_tables, "check_retention", lambda *_: {0: ends})
        self.altered = AlteredTables(None, lambda: self.now)  # type: ignore[arg-type]

    def _answer(self, *_: Any) -> ColumnNumbers:
        self.questions += 1
        if isinstance(self.numbers, Exception):
            raise self.numbers
        return self.numbers

    def proposed(self, sink: str) -> str:
        """What is proposed for a column that a feed into that sink, which is altered by a user, lacks."""
        feed = parse_feed((FEED % ("create", "fail")).replace("dbname=y", sink))
        span = Span(TASK, 1, primary=True, phase=TaskPhase.OPENING, since=0.0, lacking={"c": "int32"})
        parts = SimpleNamespace(spec=feed, sink=Sink())
        return self.altered.alter(parts, span, CLAIM, {0: 5})  # type: ignore[arg-type]

    def claim(
        self, sink: Sink, copy: str | None = None, position: int = 5, lacking: Mapping[str, str] | None = None
    ) -> str | None:
        """What a copy of the whole table, for that request, waits for."""
        order = None if copy is None else CopyOrder(copy, '{"keys": null}')
        self.span = Span(replace(TASK, copy=order), 1, primary=True, phase=TaskPhase.OPENING, since=0.0)
        self.span = replace(self.span, lacking=lacking or {})
        spec = parse_feed(f"{FEED % ('evolve', 'fail')}\ncolumns: {json.dumps(self.columns)}")
        self.parts: Any = SimpleNamespace(spec=spec, sink=sink)
        self.altered.alter(self.parts, self.span, CLAIM, {0: position})
        return self.altered.why_not_copied(self.span, {0: position})


def test_the_first_claim_keeps_what_identifies_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    Agent(monkeypatch, BEFORE).claim(sink)
    assert sink.kept == KnownColumns(numbers=BEFORE)


def test_columns_are_watched_while_the_table_is_open_and_also_those_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = {**BEFORE.columns, "gone": 77}
    sink, agent = Sink(KnownColumns(numbers=ColumnNumbers(BEFORE.table, gone))), Agent(monkeypatch, BEFORE)
    agent.claim(sink)
    assert agent.altered.opened == {TASK.id: OpenedColumns(ColumnNumbers(BEFORE.table, gone))}
    agent.numbers = SourceDatabaseError("no answer")
    agent.claim(sink)
    assert agent.altered.opened == {}


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize(
    ("columns", "numbers", "why"),
    [
        (
            {"exclude": ["ssn"]},
            {"id": 1, "c": 9},
            r"column c of table s\.t is at the source what was ssn, which columns",
        ),
        ({"mask": {"ssn": None}}, {"id": 1, "c": 9, "ssn": 2}, r"column c .* what was ssn, which is masked. Add c to"),
    ],
)
def test_a_hidden_column_does_not_arrive_under_the_name_of_another_one(
    monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any], numbers: dict[str, int], why: str
) -> None:
    """Neither in a change nor in a copy: two columns have swapped their names, so nothing is lacking."""
    is_masked = "mask" in columns
    met = ColumnNumbers("16", {"id": 1, "c": 2} | ({"ssn": 9} if is_masked else {}), {} if is_masked else {"ssn": 9})
    sink = Sink(KnownColumns(applied=("c", "id")).with_numbers(met))
    agent = Agent(monkeypatch, ColumnNumbers("16", numbers, {} if is_masked else {"ssn": 2}))
    agent.columns = columns
    for copy in (None, "r1"):
        with pytest.raises(NotAlteredError, match=why):
            agent.claim(sink, copy)
    agent.columns = {
        name: [*given, "c"] if name == "exclude" else {**given, "c": None} for name, given in columns.items()
    }
    agent.numbers = ColumnNumbers("16", numbers if is_masked else {"id": 1}, {} if is_masked else {"ssn": 2, "c": 9})
    monkeypatch.setattr(altered_tables, "check_replaced", lambda *_: None)
    agent.claim(sink)


@pytest.mark.usefixtures("asked")
def test_a_column_that_is_not_included_does_not_arrive_under_the_name_of_one_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = Sink(KnownColumns(applied=("c", "id")).with_numbers(ColumnNumbers("16", {"id": 1, "c": 2}, {"ssn": 9})))
    agent = Agent(monkeypatch, ColumnNumbers("16", {"id": 1, "c": 9}, {"ssn": 2}))
    agent.columns = {"include": ["id", "c"]}
    for copy in (None, "r1"):
        with pytest.raises(NotAlteredError, match=r"what was ssn, which columns\.include does not name\. Remove c"):
            agent.claim(sink, copy)
    agent.columns = {"include": ["id"]}
    agent.numbers = ColumnNumbers("16", {"id": 1}, {"c": 9, "ssn": 2})
    agent.claim(sink)


@pytest.mark.usefixtures("asked")
def test_a_column_that_is_included_later_is_what_the_list_means(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(KnownColumns(applied=("c", "id")).with_numbers(ColumnNumbers("16", {"id": 1}, {"ssn": 9})))
    agent = Agent(monkeypatch, ColumnNumbers("16", {"id": 1, "c": 9}))
    agent.columns = {"include": ["id", "c"]}
    agent.claim(sink)


def test_columns_are_not_watched_any_more_once_the_feed_does_not_evolve(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(monkeypatch, BEFORE)
    agent.claim(Sink())
    assert TASK.id in agent.altered.opened
    monkeypatch.setattr(altered_tables, "proposed_columns", lambda *_: "")
    agent.proposed("dbname=y")
    assert agent.altered.opened == {}


@pytest.mark.usefixtures("asked")
def test_a_replaced_column_stops_the_table_until_all_rows_were_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, agent = Sink(FILLED), Agent(monkeypatch, AFTER)
    monkeypatch.setattr(altered_tables, "restore_columns", lambda *_, **__: ())
    for _ in range(2):
        with pytest.raises(ResyncNeededError, match=r"column c of table s\.t was dropped and added again") as stopped:
            agent.claim(sink)
    assert (stopped.value.code, stopped.value.retryable) == ("resync_needed", True)

    assert "the log is applied to where it ended" in str(agent.claim(sink, "r1", position=5))
    assert agent.claim(sink, "r1", position=9) is None
    assert sink.kept == FILLED, "a copy that is not over proves nothing"
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    assert sink.kept == FILLED.with_numbers(AFTER)
    agent.claim(sink)


@pytest.mark.usefixtures("asked")
def test_a_type_that_may_have_changed_values_stops_the_table_until_all_rows_were_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, more, fewer = (replace(BEFORE, types={"c": f"numeric({digits})"}) for digits in ("8,2", "9,3", "8,1"))
    sink, agent = Sink(replace(FILLED, numbers=before)), Agent(monkeypatch, more)
    agent.claim(sink)
    assert sink.kept.numbers is not None
    assert sink.kept.numbers.types == {"c": "numeric(9,3)"}, "it holds every value"
    agent.numbers = fewer
    for _ in range(2):
        with pytest.raises(ResyncNeededError, match=r"\(c is numeric\(8,1\), and was numeric\(9,3\)\)"):
            agent.claim(sink)
    assert "the log is applied to where it ended" in str(agent.claim(sink, "r1", position=5))
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    assert sink.kept.numbers.types == fewer.types
    agent.claim(sink)


def test_statements_are_kept_at_once_and_their_numbers_once_all_rows_were_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(altered_tables, "restore_columns", lambda *_, **__: ())
    sink, agent = Sink(FILLED), Agent(monkeypatch, AFTER)
    read = StatementNumbers("shop", "x", "d.t", 8, AFTER.columns)
    monkeypatch.setattr(agent.altered.source_columns, "at_claim", lambda *_: OpenedColumns(AFTER, read))
    with pytest.raises(ResyncNeededError, match="column c"):
        agent.claim(sink)
    assert sink.kept == FILLED.with_statements(read)
    agent.claim(sink, "r1")
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    assert sink.kept == FILLED.with_statements(read).with_numbers(AFTER)
    assert agent.altered.opened[TASK.id].statements == read
    agent.claim(sink)


def test_what_is_replaced_after_a_copy_stops_the_table_while_its_order_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(altered_tables, "restore_columns", lambda *_, **__: ())
    sink, agent = Sink(FILLED), Agent(monkeypatch, BEFORE)
    agent.claim(sink, "r1")
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    agent.claim(sink, "r1")
    assert TASK.id in agent.altered.opened, "it is watched"
    agent.numbers = AFTER
    with pytest.raises(ResyncNeededError, match="column c"):
        agent.claim(sink, "r1")
    agent.claim(sink, "r2")


def test_a_copy_is_over_once_the_sink_has_kept_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(altered_tables, "restore_columns", lambda *_, **__: ())
    sink, agent = Sink(FILLED), Agent(monkeypatch, AFTER)
    agent.claim(sink, "r1")
    with monkeypatch.context() as silent:
        silent.setattr(sink, "change_known_columns", _refuse)
        with pytest.raises(SinkUnavailableError):
            agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    agent.claim(sink, "r1")
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 9})
    agent.claim(sink)
    assert sink.kept.numbers == AFTER


def _refuse(*_: Any) -> None:
    raise SinkUnavailableError("no answer")


def test_a_copy_of_a_table_without_replaced_columns_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(altered_tables, "restore_columns", lambda *_, **__: ())
    assert Agent(monkeypatch, BEFORE).claim(Sink(FILLED), "r1", position=5) is None


@pytest.mark.parametrize(
    ("kept", "now"),
    [
        (KnownColumns(applied=("id",), numbers=BEFORE), AFTER),
        (FILLED, ColumnNumbers("99999", {"id": 1, "c": 3})),
        (KnownColumns(applied=("c",)), AFTER),
    ],
    ids=["the sink never had it", "another table, as after a restored dump", "nothing is known"],
)
def test_other_numbers_that_prove_nothing_are_kept(
    monkeypatch: pytest.MonkeyPatch, kept: KnownColumns, now: ColumnNumbers
) -> None:
    sink = Sink(kept)
    Agent(monkeypatch, now).claim(sink)
    assert sink.kept.numbers is not None
    assert sink.kept.numbers.columns["c"] == 3


def test_a_source_that_does_not_answer_holds_up_one_claim_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, agent = Sink(FILLED), Agent(monkeypatch, AFTER)
    agent.numbers = SourceDatabaseError("no answer")
    agent.claim(sink)
    agent.claim(sink)
    assert agent.questions == 1
    agent.now, agent.numbers = SOURCE_PAUSE_SECONDS, AFTER
    with pytest.raises(ResyncNeededError):
        agent.claim(sink)


def test_a_copied_table_gets_back_what_was_dropped_at_the_sink(
    asked: list[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Agent(monkeypatch, BEFORE).claim(Sink(FILLED), "r1", lacking={"new": "int32"})
    assert asked == [{"c": "restored", "id": "restored"}, {"new": "int32"}], "and what its changes have got"


@pytest.mark.usefixtures("asked")
def test_a_restored_column_waits_for_its_values_whatever_becomes_of_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, agent = Sink(FILLED), Agent(monkeypatch, BEFORE)
    agent.claim(sink, "r1")
    assert sink.kept.restored == ("c",)
    with pytest.raises(ResyncNeededError, match=r"column c of table s\.t was added again .* not all copied"):
        agent.claim(sink)  # the copy has failed

    agent.claim(sink, "r2")
    agent.altered.copied(agent.parts, agent.span, CLAIM, {0: 5})
    assert sink.kept.restored == ()
    agent.claim(sink)


@pytest.mark.usefixtures("asked")
def test_a_restored_column_that_is_dropped_again_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, agent = Sink(FILLED), Agent(monkeypatch, BEFORE)
    agent.claim(sink, "r1")
    del sink.columns["c"]
    agent.claim(sink)
    assert sink.kept.restored == ()
