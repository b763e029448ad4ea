"""A feed's YAML: formats, times, and what is refused with its reason."""

import pytest

from headgate.config.feed import FeedSpec, FeedSpecError, parse_feed
from headgate.config.plugs import FORMATS
from headgate.config.times import NotATimeError, parse_ts, show_ts

SINK = "sink: {type: postgresql, dsn: dbname=x}"


def feed(source: str) -> str:
    return f"feed: f\nsource: {{topics: [t], {source}}}\n{SINK}"


def avro(registry: str) -> str:
    return f"format: debezium-avro, registry: {{{registry}}}"


NOON = 1_795_262_400_000 << 18  # 2026-11-21T12:00:00Z


def change_log(source: str) -> str:
    return feed(source).replace("topics: [t], ", "")


def test_a_change_log_instead_of_topics() -> None:
    spec = parse_feed(change_log("change_log: orders, strict_generations: true"))
    assert (spec.source.change_log, spec.source.strict_generations, spec.source.topics) == ("orders", True, ())
    assert parse_feed(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("change_log: orders, topics: [t]", "exactly one of source.topics, source.topic_pattern and source.change_log"),
        ("topics: [u], strict_generations: true", "needs source.change_log"),
        ("change_log: orders, format: ticdc-canal-json, target_ts: 2026-11-21T12:00:00Z", "streams end at switches"),
        ("change_log: orders, transaction_topic: a.t", "the ends of transactions count changes per topic"),
        ("change_log: orders, tables: [s.a]", "source.tables"),
        ("change_log: orders, topic_tables: {t: s.a}", "source.topic_tables"),
    ],
)
def test_what_a_change_log_cannot_have_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError) as caught:
        parse_feed(change_log(source))
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    "given", [NOON, str(NOON), "2026-11-21T12:00:00Z", "2026-11-21T13:00:00+01:00", "2026-11-21 12:00:00.000Z"]
)
def test_a_time_is_a_ts_or_rfc_3339(given: object) -> None:
    assert parse_ts(given) == NOON
    assert show_ts(NOON) == "2026-11-21T12:00:00.000Z"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("noon", "not a valid time"),
        (True, "not a valid time"),
        (1.5, "not a valid time"),
        ("2026-11-21T12:00:00", "no zone"),
        (1_795_262_400, "not a valid ts"),
        (1_795_262_400_000, "not a valid ts"),
        (-1, "not a valid ts"),
        (2**63, "not a valid ts"),
    ],
)
def test_what_is_no_time_is_refused(given: object, complaint: str) -> None:
    with pytest.raises(NotATimeError, match=complaint):
        parse_ts(given)


@pytest.mark.parametrize("written", ["2026-11-21T12:00:00Z", "'2026-11-21T12:00:00Z'", str(NOON)])
def test_a_spec_keeps_the_ts_whatever_was_written(written: str) -> None:
    spec = parse_feed(feed(f"format: ticdc-canal-json, target_ts: {written}"))
    assert spec.source.target_ts == NOON
    assert parse_feed(spec.to_json()) == spec


def test_only_formats_with_evidence_give_resolved_ts() -> None:
    assert [known for known in FORMATS.names() if FORMATS[known].gives_resolved_ts] == ["ticdc-canal-json"]


def test_the_ends_of_transactions_are_evidence_too() -> None:
    spec = parse_feed(feed("transaction_topic: shop.transaction, target_ts: 2026-11-21T12:00:00Z"))
    assert (spec.source.gives_resolved_ts, spec.source.target_ts) == (True, NOON)
    assert parse_feed(spec.to_json()) == spec
    assert not parse_feed(feed("format: debezium-json")).source.gives_resolved_ts


def test_the_transaction_topic_is_no_table() -> None:
    with pytest.raises(FeedSpecError, match="no table"):
        parse_feed(feed("transaction_topic: t.t").replace("topics: [", "topics: [t.t, "))


def test_tables_of_one_topic() -> None:
    spec = parse_feed(feed("tables: [s.a, s.b]"))
    assert (spec.source.topics, spec.source.tables) == (("t",), ("s.a", "s.b"))
    assert parse_feed(spec.to_json()) == spec
    with pytest.raises(FeedSpecError, match="exactly one topic"):
        parse_feed(feed("tables: [s.a, s.b]").replace("[t]", "[t, u]"))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("format: debezium-json, target_ts: 2026-11-21T12:00:00Z", "not the time up to which the log is complete"),
        (
            "format: canal-json, target_ts: 2026-11-21T12:00:00Z",
            "format ticdc-canal-json, and format debezium-json with",
        ),
        ("format: ticdc-canal-json, target_ts: tomorrow", "not a valid time"),
        ("start: latest, start_ts: 2026-11-21T12:00:00Z", "only one of source.start and source.start_ts"),
        ("start: latest, start_offsets: {t: {0: 1}}", "only one of source.start_offsets, source.start and"),
        ("start_offsets: {u: {0: 1}}", "every topic in source.topics, and no other"),
        ("start_offsets: {t: {1: 1}}", "for each partition from 0 on"),
        ("start_offsets: {t: {}}", "for each partition from 0 on"),
        ("start_offsets: {t: {0: -1}}", "-1 is not allowed: it must be at least 0"),
        ("start_offsets: {t: {topic_id: x, offset: {0: 1}}}", "start_offsets.t.offset"),
        ("start_offsets: {t: {topic_id: x}}", "start_offsets.t.offsets: it is missing"),
        (
            "format: ticdc-canal-json, start_ts: 2026-11-21T12:00:00Z, target_ts: 2026-11-21T11:00:00Z",
            "later than source.start_ts",
        ),
        ("format: canal-json, transaction_topic: shop.transaction", "needs format debezium-json"),
        ("transaction_topic: transactions", "not of the form <topic.prefix>.transaction"),
        ("transactions_topic: shop.transaction", "did you mean 'transaction_topic'"),
        ("format: xml", "source.format"),
        ("targetts: 1", "did you mean 'target_ts'"),
        ("format: debezium-avro", "needs source.registry.url"),
        ("registry: {url: 'http://r:8081'}", "cannot be used with format debezium-json"),
        ("tables: [s.a, s.b], topic_pattern: x", "exactly one topic"),
        ("tables: [s.a, s.*]", "'s.*' looks like a pattern. Patterns are not supported"),
        ("tables: [s.a, s.b, s.a]", "s.a is listed twice"),
        ("tables: [a]", "'a' is not a valid table name"),
        ("tables: [d.s.a]", "'d.s.a' is not a valid table name"),
        ("tables: [s.a], transaction_topic: shop.transaction", "cannot be used with source.tables"),
        (avro("adress: x"), "unknown option 'adress'"),
        (avro("user: u"), "url"),
        (avro("url: 'ftp://r'"), "is not the URL of a server"),
        (avro("url: 'r:8081'"), "is not the URL of a server"),
        (avro("url: 'http://'"), "is not the URL of a server"),
        (avro("url: 'http://r:99999'"), "is not the URL of a server"),
        (avro("url: 'http://r/?a=b'"), "without a query"),
        (avro("url: 'http://r', user: u"), "both or neither"),
        (avro("url: 'http://r', password_file: /p"), "both or neither"),
        (avro("url: 'http://r', user: 'a:b', password_file: /p"), "colon"),
        (avro("url: 'http://r', ca_file: /ca"), "https"),
        (avro("url: 'http://r', password: gehe1m"), "unknown option 'password'; did you mean 'password_file'"),
    ],
)
def test_what_cannot_be_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError) as caught:
        parse_feed(feed(source))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("url", ["http://ann:gehe1m@r:8081", "https://gehe1m@r"])
def test_a_password_in_the_registrys_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(FeedSpecError, match="Use user and password_file") as caught:
        parse_feed(feed(avro(f"url: '{url}'")))
    assert "gehe1m" not in str(caught.value)


def test_a_registry_stands_on_the_log_as_it_was_given() -> None:
    given = "url: 'https://r.example:8081/registry', user: ann, password_file: /run/p, ca_file: /etc/ca.pem"
    spec = parse_feed(feed(avro(given)))
    assert parse_feed(spec.to_json()) == spec
    assert spec.source.registry is not None
    assert (spec.source.registry.user, str(spec.source.registry.ca_file)) == ("ann", "/etc/ca.pem")


def test_a_password_over_plain_http_is_refused_unless_allowed() -> None:
    def parsed(registry: str) -> FeedSpec:
        return parse_feed(
            f"feed: x\nsource: {{topics: [a.b], {avro(registry)}}}\nsink: {{type: postgresql, dsn: host=x}}"
        )

    plain = "url: 'http://r', user: u, password_file: p"
    with pytest.raises(FeedSpecError, match="allow_plain_http: true"):
        parsed(plain)
    assert parsed(f"{plain}, allow_plain_http: true").source.registry is not None
    assert parsed(plain.replace("http:", "https:")).source.registry is not None
    with pytest.raises(FeedSpecError, match="Remove it"):
        parsed("url: 'http://r', allow_plain_http: true")


DATABASE = "database: {dsn: 'postgresql://ann@db/shop'}"


@pytest.mark.parametrize(
    ("source", "sink", "creates"),
    [
        ("", "", False),
        ("", ", tables: existing", False),
        (DATABASE, "", True),
        (DATABASE, ", tables: create", True),
        (DATABASE, ", tables: existing", False),
        (DATABASE, ", tables: evolve", True),
    ],
)
def test_tables_are_created_only_for_feeds_that_name_their_source(source: str, sink: str, creates: bool) -> None:
    spec = parse_feed(feed(source).replace("dbname=x", f"dbname=x{sink}"))
    assert spec.creates_tables is creates
    assert parse_feed(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("source", "sink", "complaint"),
    [
        ("database: {}", "", "give either source.database.dsn or source.database.connection"),
        ("database: {dsn: a, connection: b}", "", "give either source.database.dsn or source.database.connection"),
        ("database: {connection: b, password_file: c}", "", "has a password file of its own"),
        ("database: {dns: a}", "", "unknown option 'dns'; did you mean 'dsn'?"),
        ("format: maxwell-json", ", tables: create", "Name the database that the changes come from in source.database"),
        ("tables: [a.b]", ", tables: create", "which these events cannot have"),
        ("", ", tables: create, unique_keys: create", "events do not contain a table's unique keys"),
        ("", ", types: {a.b.c: text}", "sink.types is for tables that Headgate creates"),
        (DATABASE, ", tables: existing, types: {a.b.c: text}", "sink.types is for tables that Headgate creates"),
        ("", ", unique_keys: create", "sink.unique_keys is for tables that Headgate creates"),
        (DATABASE, ", unique_keys: maybe", "sink.unique_keys: 'maybe' is unknown; choose from omit, create"),
        (DATABASE, ", types: {a.b.c: ' '}", "a.b.c has no type"),
        (DATABASE, ", types: {c: text}", "does not name a column of a table"),
        (DATABASE, ", types: {a..c: text}", "is not a valid name"),
        ("", ", rounding: up", "sink.rounding: 'up' is unknown; choose from refuse, allow"),
        ("", ", tables: evolve", "sink.tables: evolve needs the tables' definitions. Name the database"),
        (DATABASE, ", tables: alter", "sink.tables: 'alter' is unknown; choose from create, existing, evolve"),
    ],
)
def test_tables_that_cannot_be_created_are_refused(source: str, sink: str, complaint: str) -> None:
    with pytest.raises(FeedSpecError) as refused:
        parse_feed(feed(source).replace("dbname=x", f"dbname=x{sink}"))
    assert complaint in str(refused.value)
