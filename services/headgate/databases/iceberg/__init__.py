"""Addresses of Iceberg's SQL catalogs."""
