"""Options of single tables: which pattern a table has them from, and what is refused."""

import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.table_options import AmbiguousPatternsError, TablePattern, most_specific

DATABASE = "database: {dsn: 'postgresql://ann@db/shop'}"


def feed(tables: str, source: str = "topic_pattern: 't[.].*'", sink: str = "") -> FeedSpec:
    dsn = "type: postgresql, dsn: dbname=x"
    return parse_feed(f"feed: f\nsource: {{{source}}}\nsink: {{{dsn}{sink}}}\ntables: {{{tables}}}")


@pytest.mark.parametrize(
    ("pattern", "name", "is_matched"),
    [
        ("shop.orders", ("shop", "orders"), True),
        ("shop.orders", ("shop", "orders_2"), False),
        ("shop.*", ("shop", "orders"), True),
        ("shop.*", ("crm", "orders"), False),
        ("*.orders", ("crm", "orders"), True),
        ("*.*_log", ("crm", "a_log"), True),
        ("*", ("shop", "orders"), False),
        ("*", ("orders",), True),
        ("shop.o.*", ("shop", "orders"), False),
        ('"a.b".*', ("a.b", "c"), True),
        ('s."a*"', ("s", "ab"), False),
        ('s."a*"', ("s", "a*"), True),
        ("s.a+b", ("s", "aab"), False),
        ("s.*", ("s", "two\nlines"), True),
    ],
)
def test_a_pattern_matches_part_by_part(pattern: str, name: tuple[str, ...], is_matched: bool) -> None:
    assert TablePattern.parse(pattern).matches(name) is is_matched


@pytest.mark.parametrize(
    ("patterns", "wins"),
    [
        (("shop.*", "shop.orders"), "shop.orders"),
        (("*.*", "shop.*", "shop.ord*"), "shop.ord*"),
        (("shop.*", "*.orders"), "*.orders"),
        (("*.*", "crm.*"), "*.*"),
        (("crm.*",), None),
    ],
)
def test_the_most_specific_pattern_wins(patterns: tuple[str, ...], wins: str | None) -> None:
    for order in (patterns, patterns[::-1]):
        found = most_specific(map(TablePattern.parse, order), ("shop", "orders"))
        assert (found.text if found else None) == wins


def test_equally_specific_patterns_are_refused_only_for_tables_that_both_match() -> None:
    patterns = [TablePattern.parse("shop.o*"), TablePattern.parse("shop.*s")]
    assert most_specific(patterns, ("shop", "items")) == patterns[1]
    with pytest.raises(AmbiguousPatternsError, match=r"'shop\.o\*' and 'shop\.\*s' both match table shop\.orders"):
        most_specific(patterns, ("shop", "orders"))
    with pytest.raises(AmbiguousPatternsError, match="both match"):
        most_specific([TablePattern.parse("s.a"), TablePattern.parse('s."a"')], ("s", "a"))


def test_a_table_has_its_own_options_and_the_feeds_others() -> None:
    spec = feed("s.log: {keyless: append, on_bad_change: quarantine}, 's.*': {foreign_keys: ignore}")
    log, others, neither = spec.for_table("t.s.log"), spec.for_table("t.s.orders"), spec.for_table("t.crm.log")
    assert (log.sink.keyless, log.sink.foreign_keys, log.on_bad_change) == ("append", "enforce", "quarantine")
    assert (others.sink.keyless, others.sink.foreign_keys, others.on_bad_change) == ("refuse", "ignore", "fail")
    assert neither is spec
    assert spec.may_set_aside
    assert parse_feed(spec.to_json()) == spec
    assert log.for_table("t.s.log") == log, "options of a table stay what they are"


def test_a_table_is_named_as_the_feed_names_it() -> None:
    renamed = feed(
        "'Odd.Order Lines': {keyless: append}",
        "topics: [t.s.Order_Lines], topic_tables: {t.s.Order_Lines: 'Odd.Order Lines'}",
    )
    assert renamed.for_table("t.s.Order_Lines").sink.keyless == "append"
    several = feed("s.b: {keyless: append}", "topics: [t], tables: [s.a, s.b]")
    assert [several.for_table("t", name).sink.keyless for name in ("s.a", "s.b")] == ["refuse", "append"]
    assert feed("orders: {keyless: append}").for_table("orders").sink.keyless == "append"


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ("s.a: {keyles: append}", "unknown option 'keyles'; did you mean 'keyless'?"),
        ("s.a: {dsn: x}", "unknown option 'dsn'"),
        ("s.a: {keyless: maybe}", "'maybe' is unknown; choose from refuse, append"),
        ("s.a: append", "write its options below it"),
        ("s..a: {keyless: append}", "'s..a' is not a valid name"),
        ("s.a: {types: {n: text}}", "tables.s.a.types is for tables that Headgate creates"),
        ("s.a: {unique_keys: create}", "tables.s.a.unique_keys is for tables that Headgate creates"),
        ("s.a: {quarantine_per_hour_max: 0}", "it must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(tables: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError) as refused:
        feed(tables)
    assert complaint in str(refused.value)


def test_types_of_a_tables_columns() -> None:
    source = f"topics: [t.s.a], {DATABASE}"
    assert feed("s.a: {types: {n: text}}", source).tables["s.a"].types == {"n": "text"}
    with pytest.raises(FeedSpecError, match="n has no type"):
        feed("s.a: {types: {n: ' '}}", source)


def test_equally_specific_patterns_name_the_way_out() -> None:
    with pytest.raises(FeedSpecError, match="Add an entry with the table's own name"):
        feed("'s.o*': {keyless: append}, 's.*s': {keyless: refuse}").for_table("t.s.orders")


INTO = "into: {table: public.orders, discriminator: {tenant: '1'}}"


def test_a_table_of_several_sources_has_a_discriminator() -> None:
    spec = feed(f'"tenant_1.orders": {{{INTO}}}')
    into = spec.tables["tenant_1.orders"].into
    assert into is not None
    assert (into.table, into.column, into.value) == ("public.orders", "tenant", "1")
    assert parse_feed(spec.to_json()) == spec
    number = parse_feed(feed('"tenant_1.orders": {into: {table: a.b, discriminator: {tenant: -7}}}').to_json())
    into = number.tables["tenant_1.orders"].into
    assert into is not None
    assert (into.value, into.is_integer) == ("-7", True)


@pytest.mark.parametrize(
    ("entry", "sink", "complaint"),
    [
        ("into: {table: a.b}", "", r"into\.discriminator"),
        ("into: {discriminator: {tenant: '1'}}", "", r"into\.table"),
        ("into: {table: a.b, discriminator: {tenant: '1'}, colum: x}", "", r"unknown option|colum"),
        ("into: {table: a.b, discriminator: {}}", "", "exactly one column"),
        ("into: {table: a.b, discriminator: {a: '1', b: '2'}}", "", r"exactly one column .* \(got 2\)"),
        ("into: {table: a.b, discriminator: {tenant: 1.5}}", "", r"Put it in quotes: \{tenant: '1\.5'\}"),
        ("into: {table: a.b, discriminator: {tenant: yes}}", "", "neither a text nor an integer"),
        (f"into: {{table: a.b, discriminator: {{tenant: {10**15}}}}}", "", "has more than 15 digits"),
        ("into: {table: a.b, discriminator: {'a b': x}}", "", "'a b' cannot name the column"),
        (f"{INTO}, table: a.c", "", "names the target table, and so does `table`"),
        (f"{INTO}, keyless: append", "", "contradicts keyless: append"),
        (INTO, ", keyless: append", "contradicts keyless: append"),
        (f"{INTO}, columns: {{set: {{tenant: \"'x'\"}}}}", "", r"so does columns\.set"),
        (f"{INTO}, columns: {{rename: {{a: tenant}}}}", "", r"so does columns\.rename"),
    ],
)
def test_a_discriminator_that_cannot_be_is_refused(entry: str, sink: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError, match=complaint):
        feed(f'"tenant_1.orders": {{{entry}}}', sink=sink)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("010", "8"),
        ("007", "7"),
        ("0x1F", "31"),
        ("0b11", "3"),
        ("1_000", "1000"),
        ("1:30", "90"),
        ("+7", "7"),
        ("-0", "0"),
        ("08", "the text '08'"),
        ("-08", "the text '-08'"),
        ("!!int '07'", "7"),
    ],
)
def test_an_integer_has_one_spelling_where_it_is_a_discriminator(written: str, read: str) -> None:
    entry = f"into: {{table: a.b, discriminator: {{tenant: {written}}}}}"
    with pytest.raises(FeedSpecError, match=r"tables\.t\.orders\.into\.discriminator\.tenant: YAML reads") as refused:
        feed(f"t.orders: {{{entry}}}")
    assert f" as {read}. Write an integer with its digits only" in str(refused.value)
    quoted = written.removeprefix("!!int ").strip("'")
    assert f"put it in quotes: '{quoted}'" in str(refused.value)


def test_other_spellings_are_taken_in_quotes_and_in_other_options() -> None:
    entry = "into: {table: a.b, discriminator: {tenant: '07'}}, quarantine_per_hour_max: 010"
    options = feed(f"t.orders: {{{entry}}}").tables["t.orders"]
    assert options.into is not None
    assert (options.into.value, options.quarantine_per_hour_max) == ("07", 8)
    several = feed(f"t.a: &one {{{INTO}}}, t.b: {{<<: *one}}").tables
    assert several["t.a"] == several["t.b"]


def test_several_sources_are_not_written_to_a_table_that_evolves() -> None:
    with pytest.raises(FeedSpecError, match=r"cannot be used with sink\.tables: evolve"):
        feed(
            f'"tenant_1.orders": {{{INTO}}}',
            source="topic_pattern: 't[.].*', database: {dsn: 'postgresql://u@h/d'}",
            sink=", tables: evolve",
        )


@pytest.mark.parametrize("type_", ["delta", "iceberg", "kafka"])
def test_only_databases_keep_the_rows_of_several_sources_apart(type_: str) -> None:
    text = (
        f"feed: f\nsource: {{topic_pattern: 't[.].*'}}\nsink: {{type: {type_}, dsn: 'x'}}\n"
        f"tables: {{'a.b': {{{INTO}}}}}"
    )
    with pytest.raises(FeedSpecError, match=rf"cannot be used with sinks of type {type_}\. .* postgresql"):
        parse_feed(text)
