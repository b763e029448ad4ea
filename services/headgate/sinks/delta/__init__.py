"""Delta tables below one place, written by delta-rs (docs/adr/0120). What all lakes share is in sinks/lake.

``address`` where the place is · ``engine`` the only module that imports delta-rs · ``lake`` tables and ledgers of one
place · ``sink`` the sink itself, which imports none of delta-rs until it is used.
"""
