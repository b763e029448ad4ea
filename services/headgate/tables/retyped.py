"""Whether a column's values may be others after a change of its type, which no change event shows. Pure; an allow-list.

What a statement computes (``USING``) is in no catalogue. So a type that holds every value of the former one, and shows
it by the same text, counts as a change that computes nothing.
"""

import re
from typing import Final

from headgate.databases.catalogue import Product
from headgate.databases.mysql.types import MysqlType
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql.types import PostgresType
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.tables.widening import TEXT_BYTES, is_wider

__all__ = ["may_have_other_values"]

_POSTGRESQL_SHOWN: Final = frozenset({"smallint", "integer", "bigint", "numeric", "uuid", "character varying"})
_POSTGRESQL_TEXTS: Final = frozenset({"text", "character varying"})
_MYSQL_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_MYSQL_SHOWN: Final = _MYSQL_INTEGERS | {"decimal"}
"""Types whose values become the same text, whatever a session's settings are."""

_STORED: Final = re.compile(r" ?/\*(?:(?!\*/).)*\*/$")
"""``/* mariadb-5.3 */`` behind a time from before an upgrade, ``/*M!100301 COMPRESSED*/`` behind a text."""

_SPELLINGS: Final = {"year(4)": "year", "geomcollection": "geometrycollection"}
"""Of MySQL 5.7 and 8."""

_DECIMAL_CHARACTERS: Final = 67
"""Of MySQL's and MariaDB's longest decimal: 65 digits, a sign and a point."""


def may_have_other_values(product: Product, before: str, now: str) -> bool:
    """Whether a value of a column may be another one after its type was changed. Types as the server writes them."""
    if product is Product.POSTGRESQL:
        return not _postgresql(parse_postgresql(before), parse_postgresql(now))
    return not _mysql(_parsed_mysql(before), _parsed_mysql(now))


def _postgresql(old: PostgresType | None, new: PostgresType | None) -> bool:
    """Whether every value is kept."""
    if old is None or new is None:
        return False
    is_any_text = new.name in _POSTGRESQL_TEXTS and not new.numbers and not new.is_array
    return old == new or is_wider(new, old) or (is_any_text and old.name in _POSTGRESQL_SHOWN and not old.is_array)


def _parsed_mysql(text: str) -> MysqlType | None:
    """What the server writes in a comment, or in one of its versions only, is how values are stored or shown."""
    plain = _STORED.sub("", text)
    return parse_mysql(_SPELLINGS.get(plain, plain))


def _mysql(old: MysqlType | None, new: MysqlType | None) -> bool:
    """Whether every value is kept."""
    if old is None or new is None:
        return False
    if _is_same_integer(old, new) or old == new or is_wider(new, old):
        return True
    is_any_text = new.name in TEXT_BYTES or (new.name == "varchar" and new.numbers[:1] >= (_DECIMAL_CHARACTERS,))
    return is_any_text and old.name in _MYSQL_SHOWN and not old.is_zerofill


def _is_same_integer(old: MysqlType, new: MysqlType) -> bool:
    """Whether only the width differs in which clients show the numbers; MySQL 8 does not write it any more."""
    marks = {(each.name, each.is_unsigned, each.is_zerofill) for each in (old, new)}
    return old.name in _MYSQL_INTEGERS and len(marks) == 1 and not old.is_zerofill
