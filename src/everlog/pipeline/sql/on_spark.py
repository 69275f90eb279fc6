"""A query computed by Spark: the text as it was written, over views that exist only while it is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from everlog.pipeline.session.failures import own_errors
from everlog.pipeline.sql.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LINE = re.compile(r"\bline (\d+)")
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=]")


@contextmanager
def selected(spark: SparkSession, query: Query) -> Iterator[DataFrame]:
    """Yield the rows of a query. What is wrong with its text is `SqlRefused`, with its line."""
    from pyspark.errors import (
        AnalysisException,
        ArithmeticException,
        ArrayIndexOutOfBoundsException,
        DateTimeException,
        IllegalArgumentException,
        NumberFormatException,
        ParseException,
    )

    views: dict[str, str] = {}
    statement = query.statement
    try:
        for name, given in query.inputs.items():
            views[name] = f"everlog_{uuid4().hex}"
            rows = given.table.read(spark, files=given.files, schema=given.schema)
            if given.after:
                rows = rows.where(f"position > {given.after}")
            rows.createOrReplaceTempView(views[name])
        with own_errors(f"computing {statement.source}"):
            found = spark.sql(statement.with_names(lambda one: views[one.name]))
            for field in found.schema:
                if _FORBIDDEN.search(field.name):
                    raise statement.refused(f"a column cannot be called {field.name}", hint="add AS and a name")
                if field.dataType.typeName() == "void":
                    raise statement.refused(f"the column {field.name} has no type", hint="write CAST(NULL AS …)")
            yield found
    except Exception as error:
        cause = error.__cause__ if error.__cause__ is not None else error
        if not isinstance(
            cause,
            AnalysisException
            | ArithmeticException
            | ArrayIndexOutOfBoundsException
            | DateTimeException
            | IllegalArgumentException
            | NumberFormatException
            | ParseException,
        ):
            raise
        text = str(cause)
        for name, view in views.items():
            text = text.replace(view, name)
        line = _LINE.search(text)
        raise statement.refused(
            "Spark cannot compute it", why=text.strip().partition("\n")[0], line=int(line[1]) if line else 1
        ) from cause
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
