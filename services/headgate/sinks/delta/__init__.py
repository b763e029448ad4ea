"""Delta tables below one folder, written by delta-rs (docs/adr/0120).

Two logs fence a table. The table's own log has the positions, which move in the commit of the rows. A *ledger* beside
it has who may write: it is there for tables that do not exist yet or any more, and no reader of the table sees it.

``address`` and ``names`` where things are · ``engine`` the only module that imports delta-rs · ``ledger`` who may write
· ``claims`` the fence · ``values`` one value for one column · ``staging`` rows in tasks · ``committing`` the driver's
commit · ``sink`` the sink itself, which imports none of delta-rs until it is used.
"""
