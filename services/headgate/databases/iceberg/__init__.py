"""Addresses of Iceberg's catalogs."""
