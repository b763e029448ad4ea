"""Statements that create a source's tables at a sink.

``mapped`` what a mapper answers · ``postgresql_to_postgresql``, ``postgresql_to_mysql``, ``mysql_to_mysql`` and
``mysql_to_postgresql`` the mappers, one per pair of databases · ``constants`` defaults · ``names`` what each database
takes as a name · ``statement`` the CREATE TABLE. All of it is pure: a table's definition in, text out.
"""
