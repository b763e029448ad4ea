"""Relational databases as sinks: one engine, and a dialect per database.

In the order of a change: ``sink`` the contract · ``progress`` (with sinks/fence.py) who may write, and from where on ·
``contention`` past the sessions in the way · ``writer`` one batch, one transaction · ``staging`` rows into a temporary
table and from there into their own · ``parts`` the slow way when a batch as a whole is refused. ``dialect`` is what a
database provides.
"""
