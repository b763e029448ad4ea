"""A cluster of its own for each test: the command line's fixtures."""

from integration.cli.conftest import log, one_core_spark, serve, settings, shop_file

__all__ = ["log", "one_core_spark", "serve", "settings", "shop_file"]
