"""Spark finds the source `everlog` here, in any session: it imports modules whose names begin with `pyspark_`."""

from everlog.pipeline.source.source import EverlogSource as DefaultSource

__all__ = ["DefaultSource"]
