"""BIGINT UNSIGNED above 2^63 as a key and as a value: ranges, the feed, and the comparison."""

from contextlib import closing
from pathlib import Path

import pytest

from fixtures.services import database_connect
from headgate.formats.change import Change, Operation
from headgate.migration.strategies.contract import Chunk, RefusedError
from headgate.migration.strategies.online.copying import noted_key, read_key
from integration.migration.played import played

pytestmark = pytest.mark.integration

IDS = (0, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)
TOLD = {
    "": "mariadb",
    "id": "org.apache.kafka.connect.data.Decimal(0)",
    "v": "org.apache.kafka.connect.data.Decimal(0)",
}
"""As connectors say it with bigint.unsigned.handling.mode=precise."""

LARGEST = "AP//////////"
"""2^64 - 1, as such a number is sent."""


@pytest.fixture
def url(mariadb_database: str) -> str:
    with closing(database_connect(mariadb_database)) as session:
        session.cursor().execute("CREATE TABLE items (id bigint unsigned PRIMARY KEY, v bigint unsigned, note int)")
        for number in IDS:
            session.cursor().execute("INSERT INTO items VALUES (%s, %s, 1)", (number, number))
    return mariadb_database


def event(operation: Operation, key: object, value: object = None, **told: str) -> Change:
    row = {"id": key, "v": value, "note": 1} if operation is Operation.UPSERT else None
    return Change(0, 0, operation, {"id": key}, row, None, 0, TOLD | told)


@pytest.mark.parametrize(
    "change", ["ADD extra int NOT NULL DEFAULT 7", "MODIFY v decimal(20,0)", "MODIFY id decimal(20)"]
)
def test_numbers_above_those_with_a_sign(url: str, tmp_path: Path, change: str) -> None:
    with played(url, tmp_path, change) as changed:
        held, bound, bounds = changed.plan.held, None, []
        while (bound := read_key(None if bound is None else noted_key(bound))) or not bounds:
            bound = changed.server.next_bound(held, bound, 1)
            if bound is None:
                break
            bounds.append(bound)
        assert [number for (number,) in bounds] == list(IDS)
        for above, upto in zip([None, *bounds], [*bounds, None], strict=True):
            assert changed.lane.differing(changed.plan, Chunk(above, upto)) == []
        changed.run(f"UPDATE {held.shadow} SET v = 18446744073709551614 WHERE id = 18446744073709551615")
        (key,) = changed.lane.differing(changed.plan, Chunk(bounds[-2], None))
        assert key == (str(2**64 - 1),)
        touched = changed.followed([key])
        changed.run("DELETE FROM items WHERE id = 18446744073709551614", "UPDATE items SET note = 1")
        changed.send(event(Operation.UPSERT, LARGEST, LARGEST), event(Operation.DELETE, "AP/////////+"))
        changed.cut_over(touched)
        assert [int(v) for (v,) in changed.run("SELECT v FROM items ORDER BY id")] == [*IDS[:3], 2**64 - 1]


def test_a_number_that_the_connector_has_wrapped_around(url: str, tmp_path: Path) -> None:
    with played(url, tmp_path, "ADD extra int NOT NULL DEFAULT 7") as changed:
        touched = changed.followed()
        changed.topic.append(event(Operation.UPSERT, -1, 5, id="int64"))
        with pytest.raises(RefusedError, match=r"wrapped around. Set its bigint\.unsigned\.handling\.mode=precise"):
            touched.keys({0: 1}, 1)
