"""A key or an authority that Spark's Java client cannot open: the table says so, and its rows come no other way."""

import msgspec
import pytest

from support.waiting import eventually

from .conftest import Bed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
]

BROKEN_KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.key": BROKEN_KEY, "ssl.keystore.certificate.chain": CHAIN},
            "keystore",
        ),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
    ids=["key", "authority"],
)
def test_what_the_jvm_cannot_open_is_said_of_the_table_and_nothing_comes_another_way(
    bed: Bed, options: dict[str, str], said: str
) -> None:
    plan, other = bed.table("locked"), bed.table("open")
    for each in (plan, other):
        bed.put(each, {n: {"name": "x", "qty": n} for n in range(10)})
    neighbours = bed.executor()
    executor = bed.executor({"security.protocol": "SSL", **options})
    task, beside = bed.task(plan, 1), msgspec.structs.replace(bed.task(other, 1), feed_id="0-8")
    executor.add_table(task, prepare=False)
    neighbours.add_table(beside, prepare=False)
    lost = {"lane_lost", "lane_not_started"}
    eventually(lambda: executor.status(task.id).error_code in lost, "the table says it")  # type: ignore[union-attr]
    status = executor.status(task.id)
    assert status is not None
    assert said in str(status.error)
    assert str(status.error).count("\n") == 0
    eventually(lambda: len(bed.rows(other)) == 10, "who has no such key goes on")
    assert bed.rows(plan) == {}
    assert status.positions == {0: 0}
