"""Changes shaped by generated code, compared with a slow and plain reading of the options."""

import hashlib
import random
from pathlib import Path
from typing import Any

import pytest

from headgate.config.columns import ColumnOptions
from headgate.formats import debezium_json
from headgate.formats.change import ABSENT, CONNECTOR, Change, Operation, Row
from headgate.formats.decoding import UndecodableError
from headgate.formats.shaping import SaltUnavailableError, Shaping, read_salts

SALTS = {Path("salt"): b"grain"}
MEANING = {CONNECTOR: "postgresql", "a": "string", "b": "int32", "c": "string", "d": "bytes", "id": "int64"}


def shaping(**columns: Any) -> Shaping:
    return Shaping(ColumnOptions.model_validate(columns), SALTS)


def upsert(row: Row, offset: int = 0, meaning: dict[str, str] | None = None, key: Row | None = None) -> Change:
    return Change(0, offset, Operation.UPSERT, key or {"id": row.get("id")}, row, 7, 8, meaning)


def shaped_row(row: Row, **columns: Any) -> Row | None:
    (change,) = shaping(**columns).shaped([upsert(row)])
    return change.row


def slowly(columns: ColumnOptions, row: Row) -> Row:
    """What the options say, column by column."""
    found: Row = {}
    for column, value in row.items():
        if not columns.goes(column):
            continue
        mask = columns.mask.get(column)
        if mask is None or (mask.needs_text and (value is None or value is ABSENT)):
            shown = value
        elif mask.sha256 is not None:
            shown = hashlib.sha256(b"grain" + str(value).encode()).hexdigest()
        elif mask.keep_last is not None:
            text = str(value)
            shown = "*" * len(text)
            if len(text) > mask.keep_last:
                shown = shown[: -mask.keep_last] + text[-mask.keep_last :]
        else:
            shown = mask.constant
        found[columns.target(column)] = shown
    return found


def drawn_options(dice: random.Random) -> ColumnOptions | None:
    """Some of the columns, some renamed and some masked; None where they do not fit together."""
    names = ["a", "b", "c", "e", "f"]
    masks: list[Any] = [None, {"constant": "x"}, {"constant": False}, {"sha256": "salt"}, {"keep_last": 2}]
    options: dict[str, Any] = {}
    if dice.random() < 0.4:
        options["include"] = ["id", *dice.sample(names, dice.randint(1, 4))]
    elif dice.random() < 0.6:
        options["exclude"] = dice.sample(names, dice.randint(1, 3))
    free = [name for name in names if name in options.get("include", names) and name not in options.get("exclude", ())]
    options["rename"] = {name: dice.choice([*"abcefz", name * 2]) for name in free if dice.random() < 0.4}
    if dice.random() < 0.3:
        options["rename"]["id"] = "number"
    options["mask"] = {name: dice.choice(masks) for name in free if dice.random() < 0.4}
    try:
        return ColumnOptions.model_validate(options)
    except ValueError:
        return None


@pytest.mark.parametrize("seed", range(20))
def test_the_generated_code_does_what_the_options_say(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - no secret
    compared = refused = 0
    for _ in range(300):
        columns = drawn_options(dice)
        if columns is None:
            continue
        there = ["id", *(name for name in "abcef" if dice.random() < 0.8)]
        row: Row = {name: dice.choice(["", "a", "long text", None, ABSENT]) for name in there} | {
            "id": dice.randint(1, 9)
        }
        change = upsert(dict(row), 3)
        clash = columns.clash(row)
        if clash is not None:
            with pytest.raises(UndecodableError, match=r"both become .* at the sink"):
                Shaping(columns, SALTS).shaped([change])
            refused += 1
            continue
        named = set(columns.include or row)
        if not named <= row.keys() and row.keys() - named:
            with pytest.raises(UndecodableError, match=r"does not have column .*, which columns\.include names"):
                Shaping(columns, SALTS).shaped([change])
            continue
        (found,) = Shaping(columns, SALTS).shaped([change])
        assert found.row == slowly(columns, row), columns
        assert found.key == {columns.target("id"): row["id"]}
        assert (found.offset, found.operation, found.source_ms, found.append_ms) == (3, Operation.UPSERT, 7, 8)
        compared += 1
    assert compared > 50
    assert refused > 0


def test_a_hash_is_that_of_salt_and_text_whatever_type_the_text_had() -> None:
    wanted = hashlib.sha256(b"grain42").hexdigest()
    assert shaped_row({"id": 1, "a": "42", "b": 42}, mask={"a": {"sha256": "salt"}, "b": {"sha256": "salt"}}) == {
        "id": 1,
        "a": wanted,
        "b": wanted,
    }


@pytest.mark.parametrize(("text", "shown"), [("0123456789", "******6789"), ("6789", "****"), ("é", "*"), ("", "")])
def test_of_a_text_that_is_not_longer_nothing_is_kept(text: str, shown: str) -> None:
    assert shaped_row({"id": 1, "a": text}, mask={"a": {"keep_last": 4}}) == {"id": 1, "a": shown}


def test_a_value_that_the_event_leaves_out_stays_left_out_unless_nothing_of_it_is_needed() -> None:
    row: Row = dict.fromkeys("abcd", ABSENT)
    masks = {"a": None, "b": {"constant": 1}, "c": {"sha256": "salt"}, "d": {"keep_last": 1}}
    assert shaped_row(row, mask=masks) == {"a": None, "b": 1, "c": ABSENT, "d": ABSENT}


def test_deletes_and_truncates_have_their_keys_renamed_only() -> None:
    shaped = shaping(include=["id", "a"], rename={"id": "number"}, mask={"a": None})
    gone = Change(0, 1, Operation.DELETE, {"id": 4}, None, None, 0, None)
    wiped = Change(0, 2, Operation.TRUNCATE, {}, None, None, 0, None)
    assert [(each.key, each.row) for each in shaped.shaped([gone, wiped])] == [({"number": 4}, None), ({}, None)]


def test_what_columns_mean_follows_them_and_is_one_dictionary_for_all_rows_of_a_schema() -> None:
    shaped = shaping(
        exclude=["d"],
        rename={"a": "x", "b": "y"},
        mask={"a": {"sha256": "salt"}, "c": None},
    )
    changes = shaped.shaped([upsert({"id": n, "a": "t", "b": n}, n, MEANING) for n in range(3)])
    told = {CONNECTOR: "postgresql", "x": "string", "y": "int32", "c": "string", "id": "int64"}
    assert changes[0].semantics == told
    assert len({id(change.semantics) for change in changes}) == 1
    assert shaping(exclude=["a"]).shaped([upsert({"a": 1})])[0].semantics is None


@pytest.mark.parametrize(
    ("mask", "value", "meaning", "why"),
    [
        (
            {"sha256": "salt"},
            b"raw",
            None,
            "column a has a value of type bytes, and mask sha256 takes texts and integers",
        ),
        ({"sha256": "salt"}, True, None, "a value of type bool"),
        ({"sha256": "salt"}, 19876, "io.debezium.time.Date", "values of type io.debezium.time.Date"),
        ({"keep_last": 2}, 12345, None, "a value of type int, and mask keep_last takes texts only"),
        ({"keep_last": 2}, 12345, "int32", "values of type int32"),
    ],
)
def test_a_value_that_has_other_texts_elsewhere_is_refused_and_not_quoted(
    mask: dict[str, object], value: object, meaning: str | None, why: str
) -> None:
    told = None if meaning is None else {"a": meaning}
    good = upsert({"id": 1, "a": None}, 1)
    with pytest.raises(UndecodableError, match=why) as caught:
        shaping(mask={"a": mask}).shaped([good, upsert({"id": 2, "a": value}, 2, told)])
    assert (caught.value.offset, [each.offset for each in caught.value.decoded]) == (2, [1])
    assert str(value) not in str(caught.value).replace("offset 2", "")


def test_of_an_event_with_several_changes_none_is_applied_if_one_is_refused() -> None:
    changes = [upsert({"id": 1, "a": "x"}, 4), upsert({"id": 2, "a": "x"}, 5), upsert({"id": 3, "a": 1}, 5)]
    with pytest.raises(UndecodableError) as caught:
        shaping(mask={"a": {"keep_last": 1}}).shaped(changes)
    assert [each.key for each in caught.value.decoded] == [{"id": 1}]


@pytest.mark.parametrize(
    "columns",
    [
        {"exclude": ["id"]},
        {"include": ["a"]},
        {"mask": {"id": {"sha256": "salt"}}},
        {"include": ["id"], "mask": {"id": None}},
    ],
)
def test_a_key_that_would_not_arrive_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(UndecodableError, match="column id is part of the key"):
        shaping(**columns).shaped([upsert({"id": 1, "a": "x"})])


@pytest.mark.parametrize("columns", [{"mask": {"mail": {"keep_last": 2}}}, {"exclude": ["mail"]}])
def test_a_column_that_is_hidden_under_another_spelling_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(UndecodableError, match=r"has column Mail, and columns\.(mask|exclude) names mail"):
        shaping(**columns).shaped([upsert({"id": 1, "Mail": "a@b"})])
    for row in ({"id": 1}, {"id": 1, "mail": "a@b"}, {"id": 1, "mail": "a@b", "Mail": "c@d"}):
        kept = shaping(**columns).shaped([upsert(dict(row))])[0].row or {}
        assert kept.get("mail") in (None, "*@b")
        assert kept.get("Mail") == row.get("Mail"), "a source that has both tells them apart"


@pytest.mark.parametrize("mask", [{"constant": 5}, {"sha256": "salt"}, {"keep_last": 2}, None])
def test_a_mask_means_nothing_where_the_events_schema_lacks_its_column(mask: Any) -> None:
    """A mask of the whole feed is for tables that lack its column, too, and for one that loses it later."""
    shaped = shaping(mask={"e": mask})
    with_column, without = MEANING | {"e": "string"}, dict(MEANING)
    changes = shaped.shaped(
        [upsert({"id": 1, "e": "t"}, 0, with_column), upsert({"id": 2}, 1, without), upsert({"id": 3}, 2)]
    )
    assert [("e" in (each.row or {}), "e" in (each.semantics or {})) for each in changes[:2]] == [
        (True, True),
        (False, False),
    ]
    assert ("e" in (changes[2].semantics or {})) is (mask is not None), "an event without a schema may have it"


def test_what_was_decoded_before_a_broken_event_is_shaped_too() -> None:
    good = b'{"op": "c", "after": {"id": 1, "a": "secret"}}'
    decoder = debezium_json.DebeziumJsonDecoder()
    with pytest.raises(UndecodableError) as caught:
        shaping(mask={"a": None}).decoded(
            decoder.decode_batch, [b'{"id": 1}', b'{"id": 2}'], [good, b"{"], [0, 0], [0, 1], [0, 0]
        )
    assert [each.row for each in caught.value.decoded] == [{"id": 1, "a": None}]


def test_rows_that_no_change_brought_are_shaped_alike() -> None:
    shaped = shaping(include=["id", "a"], rename={"id": "n"}, mask={"a": {"keep_last": 1}})
    meaning = {CONNECTOR: "postgresql"}
    assert shaped.row({"id": "7", "a": "xyz", "b": "c"}, meaning) == {"n": "7", "a": "**z"}
    assert shaped.meaning(meaning) == {CONNECTOR: "postgresql", "a": "string"}


def test_names_of_columns_are_never_code() -> None:
    odd = 'x"]; raise SystemExit #\n{'
    assert shaped_row({"id": 1, odd: 2}, rename={odd: "'"}, mask={odd: {"constant": "\\"}}) == {"id": 1, "'": "\\"}


def test_a_salt_comes_from_the_folder_for_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SECRETS_DIR", str(tmp_path))
    columns = ColumnOptions.model_validate({"mask": {"a": {"sha256": "salt"}}})
    with pytest.raises(SaltUnavailableError, match=r"mask\.sha256: cannot read salt: No such file"):
        read_salts(columns)
    file = tmp_path / "salt"
    file.write_text("\n")
    with pytest.raises(SaltUnavailableError, match="salt is empty"):
        read_salts(columns)
    file.write_bytes(b"\xff")
    with pytest.raises(SaltUnavailableError, match="salt is not UTF-8"):
        read_salts(columns)
    file.write_text("grain\n")
    assert read_salts(columns) == SALTS
    outside = ColumnOptions.model_validate({"mask": {"a": {"sha256": "/etc/passwd"}}})
    with pytest.raises(SaltUnavailableError, match="is not in"):
        read_salts(outside)


def filtered(where: str, changes: list[Change], **columns: Any) -> list[tuple[int, Operation, Row, Row | None]]:
    done = Shaping(ColumnOptions.model_validate(columns), SALTS, where).shaped(changes)
    return [(each.offset, each.operation, each.key, each.row) for each in done]


def test_a_row_that_the_filter_leaves_out_becomes_a_delete_of_its_key() -> None:
    gone = Change(0, 2, Operation.DELETE, {"id": 3}, None, None, 0, MEANING)
    wiped = Change(0, 3, Operation.TRUNCATE, {}, None, None, 0, MEANING)
    changes = [upsert({"id": 1, "a": "x"}, 0, MEANING), upsert({"id": 2, "a": "y"}, 1, MEANING), gone, wiped]
    assert filtered("a = 'x'", changes, exclude=["a"], rename={"id": "number"}) == [
        (0, Operation.UPSERT, {"number": 1}, {"number": 1}),
        (1, Operation.DELETE, {"number": 2}, None),
        (2, Operation.DELETE, {"number": 3}, None),
        (3, Operation.TRUNCATE, {}, None),
    ]


def test_without_other_options_changes_stay_the_objects_that_they_were() -> None:
    kept = upsert({"id": 1, "a": "x"}, 0, MEANING)
    assert Shaping(ColumnOptions(), SALTS, "a = 'x'").shaped([kept])[0] is kept


def test_a_row_without_key_that_the_filter_leaves_out_is_dropped() -> None:
    rows = [Change(0, n, Operation.UPSERT, {}, {"a": a}, None, 0, None) for n, a in enumerate("xyx")]
    assert [each[0] for each in filtered("a = 'x'", rows)] == [0, 2]


def test_what_the_filter_cannot_decide_ends_the_changes_there_without_its_event() -> None:
    rows = [upsert({"id": 1, "a": "x"}), upsert({"id": 2, "a": "x"}, 1), upsert({"id": 3, "a": 5}, 1)]
    with pytest.raises(UndecodableError, match=r"partition 0, offset 1: where: = needs values of one type") as stopped:
        Shaping(ColumnOptions(), SALTS, "a = 'x'").shaped(rows)
    assert [change.offset for change in stopped.value.decoded] == [0]


def test_a_schema_that_changes_is_read_again() -> None:
    other = MEANING | {"a": "int32"}
    rows = [upsert({"id": 1, "a": "5"}, 0, MEANING), upsert({"id": 2, "a": 5}, 1, other)]
    assert [each[1] for each in filtered("CAST(a AS BIGINT) = 5", rows)] == [Operation.UPSERT] * 2
