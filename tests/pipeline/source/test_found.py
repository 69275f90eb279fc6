"""A session that nobody prepared finds the source: Spark looks for modules whose names begin with `pyspark_`."""

from __future__ import annotations

import importlib
import pkgutil

from everlog.pipeline.source.source import EverlogSource


def test_spark_finds_the_source_under_its_name() -> None:
    """As pyspark.sql.worker.lookup_data_sources does."""
    named = [module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_")]
    found = {name: getattr(importlib.import_module(name), "DefaultSource", None) for name in named}
    assert found["pyspark_everlog"] is EverlogSource
    assert EverlogSource.name() == "everlog"
