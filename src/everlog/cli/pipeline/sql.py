"""`everlog pipeline sql`: a query over the tables of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.group import spark_options
from everlog.cli.pipeline.lake import lake_option, spark_beside
from everlog.cli.pipeline.run import asked_for
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.pipeline.session.session import SparkSession


@click.command("sql")
@click.argument("query")
@click.option("--to", metavar="FILE", default="", help="Write the rows to FILE, as .csv or .parquet.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@lake_option
@spark_options
@common_options
@pass_session
def sql_command(
    session: Session, query: str, to: str, force: bool, lake: str | None, master: str, conf: dict[str, str]
) -> None:
    """Answer QUERY, one SELECT in Spark's SQL, from the tables of the lake.

    It reads the tables as the last complete run left them: events, silver.TYPE with _ for dots, gold.VIEW, and those
    in SQL by their names. It changes nothing. Spark is started only for what this process does not compute alike.

    Columns when piped: those of the query.

    \b
    Examples:
      everlog pipeline sql "SELECT type, count(*) AS events FROM events GROUP BY type"
      everlog pipeline sql "SELECT * FROM flow" --to flow.csv
    """
    from everlog.application.lake import open_lake
    from everlog.application.move_log import output_file
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    from everlog.pipeline.sql.published import published_query, require_form, rows_of, write_rows

    path = output_file(session.directory / to, replace=force) if to else None
    if path is not None:
        require_form(path)
    log_id = session.log_id(optional=lake is not None)  # a lake may have been copied elsewhere, without its log
    found = open_lake(session.location, lake, log_id=log_id)

    @contextmanager
    def start(why: str) -> Iterator[SparkSession]:
        if session.out.progress_wanted:
            session.out.note(f"Spark is needed: {why}")
        with spark_beside(session, found, master, conf, app="everlog pipeline sql") as spark:
            yield spark

    rows, _ = rows_of(published_query(found, query), start, asked_for=asked_for(master, conf))
    if path is not None:
        facts = {"file": to, "rows": rows.num_rows, "bytes": write_rows(rows, path)}
        lines = [f"wrote {counted(rows.num_rows, 'row')} to {safe(to)}"]
        session.out.answer(Answer.of_one(to, facts, lines=lines))
        return
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]
    session.out.answer(
        Answer(
            data=plain,
            columns=rows.column_names,
            rows=[tuple("" if value is None else value for value in row.values()) for row in plain],
            facts={"rows": len(plain)},
        )
    )


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: times as text in UTC, bytes in hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
