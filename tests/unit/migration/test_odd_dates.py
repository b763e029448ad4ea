"""Who is warned that a zero date would end a change: where the table has dates, and the server lets such in."""

from typing import Any

import pytest

from headgate.migration.strategies.contract import DescribedColumn, DescribedTable
from headgate.migration.strategies.mariadb.odd_dates import warn_of_dates

STRICT = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"


class Server:
    def __init__(self, mode: str) -> None:
        self.mode = mode

    def run(self, _statement: str) -> list[tuple[str]]:
        return [(self.mode,)]


def table(*types: str) -> DescribedTable:
    columns = tuple(DescribedColumn(f"c{n}", kind, True, False, False) for n, kind in enumerate(types))
    return DescribedTable("shop", "items", columns, {}, {}, "", 0, ())


@pytest.mark.parametrize(
    ("mode", "types", "named"),
    [
        (STRICT, ("int", "datetime(6)", "date", "timestamp"), "c1, c2, c3"),
        (f"{STRICT},NO_ZERO_DATE", ("date",), "c0"),
        ("NO_ZERO_DATE,NO_ZERO_IN_DATE", ("date",), "c0"),
        (f"NO_ZERO_DATE,{STRICT},NO_ZERO_IN_DATE", ("date",), ""),
        ("", ("int", "time", "year", "varchar(10)"), ""),
    ],
)
def test_columns_with_dates_are_named(mode: str, types: tuple[str, ...], named: str) -> None:
    server: Any = Server(mode)
    found = warn_of_dates(server, table(*types))
    assert (f"zero date ('0000-00-00') in {named} while" in found) if named else not found
