"""Statements that create a source's tables at a sink, and creating them.

Pure, a table's definition in and text out: ``mapped`` what a mapper answers · ``postgresql_to_postgresql``,
``postgresql_to_mysql``, ``mysql_to_mysql`` and ``mysql_to_postgresql`` the mappers, one per pair of databases ·
``postgresql_to_lake`` and ``mysql_to_lake``, for all lakes · ``lake_tables`` a lake's table ·
``constants`` defaults · ``names`` what each database takes as a name · ``statement`` the CREATE TABLE · ``plan`` the
statements for all tables that a sink lacks.

At databases: ``catalogues`` reads either kind · ``missing`` finds the tables of a feed that its sink lacks ·
``creation`` creates one.
"""
