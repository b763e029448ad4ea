"""Iceberg tables of one catalog, written by pyiceberg (docs/adr/0125). What all lakes share is in sinks/lake.

``exact_table`` a table as it was read · ``catalog`` commits on exactly the metadata that was read ·
``catalog_database`` the database that a SQL catalog is in · ``rest_catalog``, ``rest_session`` a REST catalog, and
requests to it · ``files`` what may be read and written · ``engine`` one version of a table · ``transaction`` its commit
· ``rewriting`` copy-on-write · ``lake`` tables and ledgers of one catalog · ``sink`` the sink itself, which imports
none of pyiceberg until it is used.
"""
