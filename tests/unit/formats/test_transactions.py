"""Ends of transactions: what their records say, and what may be said of a table that is applied up to a tail."""

import json

import pytest

from headgate.formats.change import ChangeError
from headgate.formats.debezium_json import DebeziumJsonDecoder
from headgate.formats.transactions import (
    End,
    TableEvidence,
    TransactionProgress,
    TransactionRun,
    decode_end,
    standing_of,
    transaction_key,
)
from headgate.records.source_tables import Tail

END = {
    "status": "END",
    "id": "779:50564056",
    "event_count": 3,
    "data_collections": [
        {"data_collection": "public.orders", "event_count": 2},
        {"data_collection": "public.my goods", "event_count": 1},
    ],
    "ts_ms": 1795228073964,
}


@pytest.mark.parametrize("wrap", [False, True])
def test_an_end_counts_by_the_names_that_topics_have(wrap: bool) -> None:
    value = json.dumps({"schema": {}, "payload": END} if wrap else END).encode()
    assert decode_end(value) == End("779", 1795228073964, {"public.orders": 2, "public.my_goods": 1})


def test_a_begin_is_no_end() -> None:
    begin = {"status": "BEGIN", "id": "779:1", "event_count": None, "data_collections": None, "ts_ms": 1}
    assert decode_end(json.dumps(begin).encode()) is None


def test_a_transaction_without_changes_ends_too() -> None:
    assert decode_end(json.dumps({**END, "event_count": 0, "data_collections": None}).encode()) == End(
        "779", 1795228073964, {}
    )


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[1]", b'{"op": "c"}', b"\x00\x01", b'{"schema": {}}'])
def test_what_is_no_transaction_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(ChangeError, match="no transaction record"):
        decode_end(value)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("777:50562648", "777"),
        ("0-77-8", "0-77-8"),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:23", "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"),
        ("file=mysql-bin.000003,pos=1573", "file=mysql-bin.000003,pos=1573"),
    ],
)
def test_only_the_lsn_of_a_postgres_id_is_left_out(given: str, key: str) -> None:
    assert transaction_key(given) == key


def change(number: int, transaction: str | None, order: int = 1, **more: object) -> dict[str, object]:
    told = None if transaction is None else {"id": transaction, "total_order": 1, "data_collection_order": order}
    return {"op": "c", "after": {"id": number}, "source": {"ts_ms": 5, **more}, "transaction": told}


def decoded(*values: dict[str, object] | None, together: bool = True) -> list[TransactionRun]:
    decoder = DebeziumJsonDecoder(transactions=True)
    raw = [None if value is None else json.dumps(value).encode() for value in values]
    offsets = list(range(10, 10 + len(raw)))
    parts = [slice(0, len(raw))] if together else [slice(n, n + 1) for n in range(len(raw))]
    for part in parts:
        count = len(raw[part])
        decoder.decode_batch([b'{"id": 1}'] * count, raw[part], [0] * count, offsets[part], [1] * count)
    return decoder.take_runs()


@pytest.mark.parametrize("together", [True, False])
def test_a_decoder_tells_the_transactions_it_has_met(together: bool) -> None:
    runs = decoded(
        change(1, "7:1", 1),
        None,
        change(2, "7:2", 2),
        change(3, None),
        change(4, "8:3", 1),
        change(5, "7:4", 3),
        together=together,
    )
    assert runs == [
        TransactionRun(0, 10, 12, "7", 2),
        TransactionRun(0, 14, 14, "8", 1),
        TransactionRun(0, 15, 15, "7", 3),
    ]


def test_rows_of_a_snapshot_are_told_apart_from_those_of_an_incremental_one() -> None:
    runs = decoded(
        change(1, None, snapshot="first"), change(2, None, snapshot="true"), change(3, None, snapshot="incremental")
    )
    assert runs == [TransactionRun(0, 10, 11, None, 0)]


def test_a_decoder_that_is_not_asked_remembers_nothing() -> None:
    decoder = DebeziumJsonDecoder()
    decoder.decode_batch([b'{"id": 1}'], [json.dumps(change(1, "7:1")).encode()], [0], [1], [1])
    assert decoder.take_runs() == []


@pytest.mark.parametrize(
    ("value", "standing"),
    [
        (change(1, "7:1", 4), TransactionProgress(Tail("7", 4), True)),
        ({"schema": {}, "payload": change(1, "7:1", 4)}, TransactionProgress(Tail("7", 4), True)),
        (change(1, None), TransactionProgress(None, False)),
        (change(1, None, snapshot="true"), TransactionProgress(None, False)),
        (change(1, None, snapshot="last_in_data_collection"), TransactionProgress(None, True)),
        ({"id": 1}, None),
    ],
)
def test_a_change_tells_how_far_its_table_is(value: dict[str, object], standing: TransactionProgress | None) -> None:
    assert standing_of(json.dumps(value).encode()) == standing


def told(evidence: TableEvidence, *ends: tuple[str, int, int]) -> TableEvidence:
    for end in ends:
        evidence.ended(*end)
    return evidence


THREE = (("a", 10, 2), ("b", 20, 1), ("c", 30, 2))


@pytest.mark.parametrize(
    ("tail", "waits_for_ms"),
    [
        (None, 10),
        (Tail("a", 1), 10),
        (Tail("a", 2), 20),
        (Tail("b", 0), 20),
        (Tail("b", 1), 30),
        (Tail("c", 1), 30),
        (Tail("c", 2), None),
        (Tail("of no END yet", 9), 10),
    ],
)
def test_a_table_waits_for_the_first_transaction_that_may_be_missing(
    tail: Tail | None, waits_for_ms: int | None
) -> None:
    before = told(TableEvidence(tail), *THREE)
    assert before.waits_for_ms == waits_for_ms, "the tail is known before the ENDs"
    after = told(TableEvidence(None), *THREE)
    if tail is not None:
        after.reached(tail)
    assert after.waits_for_ms == waits_for_ms, "the ENDs are known before the tail"


def test_a_change_of_a_later_transaction_proves_those_before_it_whatever_their_counts() -> None:
    """A transform dropped a change that END counts: the table's next transaction heals it."""
    evidence = told(TableEvidence(None), ("a", 10, 2), ("b", 20, 1))
    evidence.reached(Tail("a", 1))
    assert evidence.waits_for_ms == 10
    evidence.reached(Tail("b", 1))
    assert evidence.waits_for_ms is None


def test_an_end_that_comes_after_its_changes_and_later_ones() -> None:
    evidence = TableEvidence(None)
    evidence.reached(Tail("b", 1))
    told(evidence, ("a", 10, 2))
    assert evidence.waits_for_ms == 10, "b may stand before a, for all that is known"
    told(evidence, ("b", 20, 1))
    assert evidence.waits_for_ms is None


def test_what_a_connector_sends_again_is_waited_for_again() -> None:
    evidence = told(TableEvidence(None), ("a", 10, 1), ("b", 20, 1))
    evidence.reached(Tail("b", 1))
    assert evidence.waits_for_ms is None
    evidence.reached(Tail("a", 1))
    told(evidence, ("a", 20, 1), ("b", 20, 1), ("c", 30, 1))
    assert evidence.waits_for_ms == 20, "b is to come again: the row is at a's state"
    evidence.reached(Tail("c", 1))
    assert (evidence.waits_for_ms, len(evidence)) == (None, 0)
