"""docs/reference/clauses.md: which clauses of a schema change each strategy carries out."""

from collections.abc import Sequence

from headgate.migration.statements.clauses import MARIADB, POSTGRESQL, Clause, Support

_HEAD = """\
# Clauses of schema changes

What a migration's statement may contain, by database. **A clause that is not in these tables is refused**, when the
migration is submitted and by `headgate migration submit --dry-run`, before anything runs. This page is made from the
code by `make docs`. [Schema changes](../migrations.md#statements) explains it.

- *All strategies*: `online`, `pt-osc` and `gh-ost` copy the table, `direct` runs the statement as it is.
- *`direct` only*: the other strategies refuse the statement.
- *Refused*: by every strategy.
"""

_SHOWN = {Support.COPIED: "all strategies", Support.DIRECT: "`direct` only", Support.REFUSED: "refused"}


def page() -> str:
    """The page."""
    parts = [_HEAD]
    for database, clauses in (("MariaDB", MARIADB), ("PostgreSQL", POSTGRESQL)):
        parts += [f"## {database}", "", "| clause | done by | why, or what to do instead |", "|---|---|---|"]
        parts += [*_rows(clauses), ""]
    return "\n".join(parts).rstrip() + "\n"


def _rows(clauses: Sequence[Clause]) -> list[str]:
    return [
        f"| {_code(clause.form)} | {_SHOWN[clause.support]} | {clause.why} |"
        for support in Support
        for clause in clauses
        if clause.support is support
    ]


def _code(form: str) -> str:
    """As code; a bar would end the table's cell."""
    return "`" + form.replace("|", "\\|") + "`"
