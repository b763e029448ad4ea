"""Numbers in JSON events keep every digit on their way to a sink: in rows, keys, arrays and objects."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from headgate.formats import canal_json, debezium_json, maxwell_json
from headgate.formats.change import Change
from headgate.formats.decoding import Decoder, UndecodableError
from headgate.formats.reducing import reduce_changes
from headgate.sinks.relational.mysql.catalog import MysqlSinkColumn
from headgate.sinks.relational.mysql.values import column_text as mysql_text
from headgate.sinks.relational.postgresql.values import column_text as postgresql_text
from headgate.sinks.relational.times import NotTextError
from headgate.sources.resend import row_key

DIGITS = "123456789012345678901234.123456789012345678"
"""More than a double has."""

SCHEMA = (
    '{"type":"struct","fields":[{"field":"after","type":"struct","fields":['
    '{"field":"k","type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"18"}},'
    '{"field":"v","type":"array","items":{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal",'
    '"parameters":{"scale":"18"}}}]}]}'
)
ENVELOPE = f'{{"op":"c","after":{{"k":{DIGITS},"v":[{DIGITS},null]}},"source":{{"ts_ms":1}}}}'
CANAL = (
    f'{{"type":"INSERT","database":"d","table":"t","pkNames":["k"],"mysqlType":{{"k":"decimal(65,18)","v":"json"}},'
    f'"data":[{{"k":{DIGITS},"v":[{DIGITS},null]}}]}}'
)
MAXWELL = f'{{"type":"insert","database":"d","table":"t","ts":1,"data":{{"k":{DIGITS},"v":[{DIGITS},null]}}}}'

EVENTS: dict[str, tuple[Callable[[], Decoder], str, str]] = {
    "debezium-json": (debezium_json.DebeziumJsonDecoder, f'{{"k":{DIGITS}}}', ENVELOPE),
    "debezium-json with schema": (
        debezium_json.DebeziumJsonDecoder,
        f'{{"schema":{{"type":"struct","fields":[]}},"payload":{{"k":{DIGITS}}}}}',
        f'{{"schema":{SCHEMA},"payload":{ENVELOPE}}}',
    ),
    "canal-json": (lambda: canal_json.CanalDecoder(tidb=False), "", CANAL),
    "maxwell-json": (maxwell_json.MaxwellDecoder, f'{{"database":"d","table":"t","pk.k":{DIGITS}}}', MAXWELL),
}


def decode(name: str, events: int) -> list[Change]:
    make, key, value = EVENTS[name]
    number = range(events)
    return make().decode_batch([key.encode()] * events, [value.encode()] * events, [0] * events, number, [0] * events)


@pytest.mark.parametrize("events", [1, 3], ids=["one event", "a batch"])
@pytest.mark.parametrize("name", EVENTS)
def test_a_number_keeps_its_digits(name: str, events: int) -> None:
    for change in decode(name, events):
        assert change.row is not None
        said = change.semantics or {}
        for value in (change.row["k"], change.key["k"]):
            assert postgresql_text("numeric(60,18)", said.get("k")).plain(value) == DIGITS
            assert (
                mysql_text(MysqlSinkColumn("decimal(65,18)", "decimal", None, None), said.get("k")).plain(value)
                == DIGITS
            )
            assert postgresql_text("text", said.get("k")).plain(value) == DIGITS
        assert postgresql_text("numeric(60,18)[]", said.get("v")).plain(change.row["v"]) == f'{{"{DIGITS}",NULL}}'
        assert postgresql_text("jsonb", said.get("v")).plain(change.row["v"]) == f"[{DIGITS},null]"
        assert (
            mysql_text(MysqlSinkColumn("json", "json", None, None), said.get("v")).plain(change.row["v"])
            == f"[{DIGITS},null]"
        )


def test_keys_that_one_double_stands_for_are_two_rows() -> None:
    keys = [b'{"k":123456789012.123456}', b'{"k":123456789012.123457}']
    values = [b'{"op":"c","after":%b}' % key for key in (b'{"k":123456789012.123456}', b'{"k":123456789012.123457}')]
    changes = debezium_json.DebeziumJsonDecoder().decode_batch(keys, values, [0, 0], [0, 1], [0, 0])
    assert len(reduce_changes(changes, ["k"]).upserts) == 2
    assert row_key(keys[0]) != row_key(keys[1])


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("1.0E10", "10000000000"),
        ("1E+3", "1000"),
        ("1.5e-7", "0.00000015"),
        ("-0.0", "-0.0"),
        ("1e400", "1e+400"),
        ("1e-400", "1e-400"),
        ("1e999999999", "1e+999999999"),
        ("-1.0E300", repr(-1e300)),
    ],
)
def test_an_exponent_is_written_out_unless_that_takes_many_zeros(number: str, text: str) -> None:
    (change,) = debezium_json.DebeziumJsonDecoder().decode_batch(
        [b'{"id":1}'], [f'{{"op":"c","after":{{"id":1,"v":{number}}}}}'.encode()], [0], [0], [0]
    )
    assert change.row is not None
    for column in (postgresql_text("numeric", None), postgresql_text("text", None), postgresql_text("real", "float")):
        assert column.plain(change.row["v"]) == text


def test_a_point_has_its_digits() -> None:
    point = {"x": Decimal("1.10"), "y": Decimal("-2")}
    assert postgresql_text("point", None).plain(point) == "(1.10,-2)"


def test_an_exponent_that_no_number_has_is_the_events_error() -> None:
    value = b'{"op":"c","after":{"id":1,"v":1e9999999999999999999}}'
    good = b'{"op":"c","after":{"id":1,"v":1}}'
    with pytest.raises(UndecodableError, match="offset 1"):
        debezium_json.DebeziumJsonDecoder().decode_batch([b'{"id":1}'] * 2, [good, value], [0, 0], [0, 1], [0, 0])


@pytest.mark.parametrize("scale", [Decimal("1e999999999"), Decimal(2), "2", None, True])
def test_a_scale_that_is_not_an_integer_is_refused(scale: object) -> None:
    for column in (postgresql_text("numeric", None), postgresql_text("text", "io.debezium.data.VariableScaleDecimal")):
        with pytest.raises(NotTextError, match="not the scale of a decimal"):
            column.plain({"scale": scale, "value": "AQ=="})
