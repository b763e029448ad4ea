"""Iceberg tables of one SQL catalog, written by pyiceberg (docs/adr/0125). What all lakes share is in sinks/lake.

``catalog_database`` the database that the catalog is in · ``catalog`` commits on exactly the metadata that was read ·
``files`` what may be read and written · ``engine`` one version of a table · ``rewriting`` copy-on-write · ``lake``
tables and ledgers of one catalog · ``sink`` the sink itself, which imports none of pyiceberg until it is used.
"""
