"""What sinks of lake tables share: rows as Arrow, the fence, and the driver's commit (docs/adr/0120, 0125).

Two logs fence a table. The table's own has the positions, which move in the commit of the rows. A *ledger* beside it
has who may write: it is there for tables that do not exist yet or any more, and no reader of the table sees it.

``files`` where tables are: a folder, or ``store``, an object store (``store_errors``, ``store_trials``) · ``tables``
what a kind of tables provides · ``ledger`` who may write · ``binding`` the one ledger of a table · ``claims`` the fence
· ``values`` one value for one column · ``shape`` a table's columns · ``staging`` rows in tasks · ``committing`` the
driver's commit · ``sink`` the sink itself, which imports none of this until it is used.
"""
