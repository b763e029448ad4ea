"""Options that shape columns: what they mean, and what is refused."""

import json

import pytest

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.feed_differences import differences


def feed(columns: str, tables: str = "{}") -> FeedSpec:
    return parse_feed(
        "feed: f\nsource: {topics: [t.public.a, t.public.b]}\nsink: {type: postgresql, dsn: dbname=x}\n"
        f"columns: {columns}\ntables: {tables}"
    )


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("{include: []}", r"columns\.include: the list is empty"),
        ("{exclude: []}", r"columns\.exclude: the list is empty"),
        ("{exclude: [a, a]}", "it names a more than once"),
        ("{include: ['']}", "cannot be empty"),
        ("{rename: {a: ''}}", "cannot be empty"),
        ("{include: [a, b], exclude: [b]}", r"include and exclude cannot be used together \(both name b\)"),
        ("{include: [a], exclude: [b]}", "include and exclude cannot be used together. Remove one"),
        ("{rename: {a: c, b: c}}", "columns a and b both become c at the sink"),
        ("{include: [a, b], rename: {a: b}}", "columns a and b both become b at the sink"),
        ("{rename: {a: b}, mask: {b: null}}", "columns a and b both become b at the sink"),
        ("{exclude: [a], mask: {a: null}}", "mask names a, which does not go to the sink"),
        ("{include: [a], rename: {b: c}}", "rename names b, which does not go to the sink"),
        ("{mask: {a: hash}}", r"columns\.mask\.a: 'hash' is not a mask. Write null, \{constant: …\}"),
        ("{mask: {a: {sha265: salt}}}", "unknown option 'sha265'; did you mean 'sha256'"),
        ("{mask: {a: {}}}", "a mask has exactly one form"),
        ("{mask: {a: {constant: x, keep_last: 2}}}", "a mask has exactly one form"),
        ("{mask: {a: {constant: null}}}", "a mask has exactly one form"),
        ("{mask: {a: {keep_last: 0}}}", "at least 1"),
        ("{mask: {a: {keep_last: 65}}}", "at most 64"),
        ("{mask: {a: {constant: 1.5}}}", "1.5 is not allowed"),
        ("{hide: [a]}", "unknown option 'hide'"),
    ],
)
def test_what_cannot_be_meant_is_refused(columns: str, why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        feed(columns)


def test_a_tables_own_columns_stand_in_the_place_of_the_feeds() -> None:
    spec = feed("{exclude: [secret]}", "{public.b: {columns: {rename: {x: y}}}, public.c: {columns: {}}}")
    assert spec.for_table("t.public.a").columns == ColumnOptions(exclude=("secret",))
    assert spec.for_table("t.public.b").columns == ColumnOptions(rename={"x": "y"})
    assert spec.for_table("t.public.c").columns == ColumnOptions()
    assert parse_feed(spec.to_json()) == spec


def test_an_update_shows_every_form_of_mask() -> None:
    before = feed("{mask: {b: {constant: 0}}}")
    after = feed("{mask: {a: null, b: {constant: false}, c: {sha256: salt}, d: {keep_last: 4}}}")
    assert parse_feed(after.to_json()) == after
    changed = {each.option: each.after for each in differences(before, after) if each.after is not None}
    assert changed == {
        "columns.mask.a.null": True,
        "columns.mask.b.constant": False,
        "columns.mask.c.null": False,
        "columns.mask.c.sha256": "salt",
        "columns.mask.d.null": False,
        "columns.mask.d.keep_last": 4,
    }


def test_an_update_shows_that_a_table_has_its_columns_as_they_are() -> None:
    before = feed("{exclude: [x]}", "{public.b: {on_bad_change: fail}}")
    after = feed("{exclude: [x]}", "{public.b: {on_bad_change: fail, columns: {}}}")
    assert [(each.option, each.before, each.after) for each in differences(before, after)] == [
        ("tables.public.b.columns", None, {})
    ]
    last = feed("{exclude: [x]}", "{public.b: {on_bad_change: fail, columns: {exclude: [y]}}}")
    assert [each.option for each in differences(after, last)] == ["tables.public.b.columns.exclude"]


def test_columns_may_swap_their_names() -> None:
    columns = ColumnOptions(rename={"a": "b", "b": "a"})
    assert [columns.target(name) for name in "abc"] == ["b", "a", "c"]
    assert [columns.source(name) for name in "abc"] == ["b", "a", "c"]
    assert columns.clash(["a", "b", "c"]) is None


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (ColumnOptions(exclude=("id",)), "id is part of the key and is excluded"),
        (ColumnOptions(include=("a",)), "id is part of the key and is not included"),
        (ColumnOptions.model_validate({"mask": {"id": None}}), "id is part of the key and is masked"),
        (ColumnOptions(rename={"id": "number"}), None),
    ],
)
def test_a_key_column_goes_to_the_sink_as_it_is(columns: ColumnOptions, why: str | None) -> None:
    found = columns.hidden_key(["id"])
    assert (found is None) if why is None else why in str(found)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"set": {"a": "first ||"}}, r"set\.a: .*cannot be parsed at character"),
        ({"set": {"a": "fulname(x)"}}, r"'FULNAME\(x\)' is not allowed in an expression\. Allowed: .*SPLIT_PART"),
        ({"set": {"a": "LEFT(x)"}}, "an operand is missing"),
        ({"set": {"a": "'eu"}}, "cannot be parsed. Check its quotes"),
        (
            {"set": {"a": 1}},
            r"set\.a: .*1 is not an expression\. Put the expression in quotes, and a text in quotes wit",
        ),
        ({"set": {"a": None}}, "None is not an expression"),
        ({"set": {"a": ""}}, "the expression is empty"),
        ({"set": {"": "x"}}, "a column's name cannot be empty"),
        ({"set": {"a": "now()"}}, "'CURRENT_TIMESTAMP' is not allowed"),
        ({"set": {"a": "b"}, "rename": {"c": "a"}}, "set and rename both make a column a"),
        ({"set": {"a": "a || b"}, "mask": {"a": None}}, "set and mask both replace a"),
        (
            {"set": {"a": "'eu'"}, "include": ["id", "a"]},
            "set makes a column a, and the source's table has a column of",
        ),
        ({"sett": {"a": "b"}}, "did you mean 'set'"),
    ],
)
def test_what_cannot_be_computed_is_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(FeedSpecError, match=why):
        feed(json.dumps(given))


def test_a_replaced_column_hides_what_the_source_has() -> None:
    assert ColumnOptions.model_validate({"set": {"a": "LOWER(a)"}}).hides
    added = ColumnOptions.model_validate({"set": {"b": "LOWER(a)"}})
    assert (added.hides, added.shapes) == (False, True)
    assert ColumnOptions.model_validate({"set": {"id": "id + 1"}}).hidden_key(["id"]) == (
        "column id is part of the key and is computed. Rows are found by their key at the sink, so key columns must go "
        "there as they are"
    )
