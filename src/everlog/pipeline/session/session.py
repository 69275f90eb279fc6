"""Start Spark. No other module does.

    open_session()                            this machine, all its cores
    open_session(master="spark://host:7077")  a cluster
    open_session(master="sc://host:15002")    a Spark Connect server

A session is quiet (what the JVM prints goes to a file), listens only on the loopback address when it runs here, has
defaults for a machine with few cores, and knows the source `everlog`. Settings in `conf` override all others.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from everlog.errors import EverlogError, InvalidSettings, SparkFailed, Unavailable
from everlog.files import DiskFiles
from everlog.os_errors import survive_closed_connections
from everlog.pipeline.session.java import JAVA_HOME, Java, find_java
from everlog.pipeline.session.warm_start import WarmStart, warm_start_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

LOCAL = "local[*]"
_MASTER = re.compile(r"local(-cluster)?(\[[\d*]+(,\s*\d+){0,2}\])?|yarn|(spark|k8s|sc)://\S+")
_LOOPBACK = "127.0.0.1"
_LOG_KEPT_NS = 24 * 3600 * 10**9
_PROBE_SECONDS = 3.0
_LEAVING_SECONDS_MAX = 300.0

# Java 25 warns about calls that Spark's libraries have always made.
_OPTIONS = {25: "--sun-misc-unsafe-memory-access=allow --enable-native-access=ALL-UNNAMED"}


def open_session(*, master: str = "", conf: Mapping[str, str] | None = None, app: str = "everlog") -> SparkSession:
    """Return a Spark session: the one that runs in this process, or a new one. `SparkSession.stop` ends it."""
    return _open(master or LOCAL, conf or {}, app, make_warm_start=False)


@contextmanager
def opened_session(
    *,
    master: str = "",
    conf: Mapping[str, str] | None = None,
    app: str = "everlog",
    report: Callable[[str], None] | None = None,
) -> Iterator[SparkSession]:
    """Open a session for the length of a `with`. One that was running before keeps running.

    With `report`, for commands: the first one keeps what makes later starts faster, and reports that.
    """
    require_libraries()
    from pyspark.sql import SparkSession as SparkSession

    running = SparkSession.getActiveSession() is not None
    session = _open(master or LOCAL, conf or {}, app, make_warm_start=report is not None and not running)
    try:
        yield session
    finally:
        if not running:
            _stop(session, report or (lambda text: None))


def _open(master: str, conf: Mapping[str, str], app: str, *, make_warm_start: bool) -> SparkSession:
    require_master(master)
    require_libraries()
    if master.startswith("sc://"):
        return _connected(master, conf, app)
    return _started(master, conf, app, make_warm_start=make_warm_start)


def require_master(master: str) -> None:
    """Refuse what is not a master of Spark, before a JVM is started."""
    if _MASTER.fullmatch(master) is None:
        raise InvalidSettings(
            f"{master!r} is not a master of Spark",
            why="a master is local[N], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT",
            hint="leave it out to use this machine",
        )


def require_libraries() -> None:
    try:
        import deltalake  # noqa: F401
        import duckdb  # noqa: F401
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise Unavailable(
            "the pipeline needs Spark",
            why=str(error),
            hint="pip install 'everlog[spark]', or EVERLOG_EXTRAS=spark ./everlog …",
        ) from error


def session_conf(master: str) -> dict[str, str]:
    """Return the default settings of a session."""
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={(JAVA_HOME / 'log4j2.properties').as_uri()}",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # The Delta log names the files of a table: checksum and success files beside them are of no use.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        **_SQL,
    }
    if _is_local(master):
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = _LOOPBACK
        # The default of 200 makes small jobs three times as slow; a join or fold here has few cores to keep busy.
        found["spark.sql.shuffle.partitions"] = str(max(8, 4 * _cores()))
    return found


# Settings for any session, including one that a server has started.
_SQL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Above this number of paths Spark starts a job to check that they exist; the files of a table do.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


def _started(master: str, conf: Mapping[str, str], app: str, *, make_warm_start: bool) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession as SparkSession

    _require_reachable(master)
    java = find_java()
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in {**session_conf(master), **conf}.items():
        builder = builder.config(name, value)
    log = _JvmLog()
    _survive_the_end_of_java()
    warm = warm_start_of(java)
    driver = ""
    if warm is not None and warm.is_there:
        driver = warm.options_to_use
    elif warm is not None and make_warm_start and SparkContext._gateway is None and warm.may_be_made:
        driver = warm.options_to_make
    try:
        with _environment(java, log.path, driver), _interrupts_as_they_were():
            session = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise _not_started(error, master, log) from error
    except Exception as error:
        if not type(error).__module__.startswith("py4j"):
            raise
        raise _not_started(error, master, log) from error
    if warm is not None and driver == warm.options_to_make:
        _to_be_kept.append(warm)  # only if the JVM was started with these options
    _announce(session)
    return session


def _connected(master: str, conf: Mapping[str, str], app: str) -> SparkSession:
    from pyspark.sql import SparkSession as SparkSession

    _require_reachable(master)
    try:
        session: SparkSession = SparkSession.builder.remote(master).appName(app).getOrCreate()
    except ImportError as error:
        raise Unavailable(
            "Spark Connect needs further libraries", why=str(error), hint="pip install 'pyspark[connect]'"
        ) from error
    for name, value in {**_SQL, **conf}.items():
        session.conf.set(name, value)
    _announce(session)
    return session


def share_environment(session: SparkSession) -> None:
    """Give workers that start from now on what this process knows of a bucket. Over Connect they have their own."""
    if hasattr(session, "_jsparkSession"):
        named = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        session.sparkContext.environment.update(named)


def _announce(session: SparkSession) -> None:
    """Register the source with the session: spark.read.format("everlog")."""
    from everlog.pipeline.source.source import EverlogSource

    session.dataSource.register(EverlogSource)


_to_be_kept: list[WarmStart] = []  # what the JVM of this process will write when it ends


def _stop(session: SparkSession, report: Callable[[str], None]) -> None:
    """End a session; if its JVM writes its start-up file then, wait for it."""
    with warnings.catch_warnings():
        # Ctrl-C ends Java as well, so sometimes nothing is left to stop.
        warnings.filterwarnings("ignore", message="Unable to cleanly shutdown Spark JVM")
        session.stop()
    if not _to_be_kept:
        return
    from pyspark import SparkContext

    warm = _to_be_kept.pop()
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    started = time.monotonic()
    report("keeping what makes later starts faster, once …")
    # The next session of this process starts another JVM.
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process.stdin.close()
    try:
        ended_well = process.wait(_LEAVING_SECONDS_MAX) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        ended_well = False
    kept = warm.keep(ended_well=ended_well)
    report(f"{'kept it' if kept else 'it cannot be kept here'} after {time.monotonic() - started:.1f} s")


def _not_started(error: Exception, master: str, log: _JvmLog) -> EverlogError:
    last = log.last_words() or str(error).partition("\n")[0]
    where = f"; all of it is in {log.path}" if log.path else ""
    return SparkFailed(
        f"Spark did not start with the master {master}",
        why=last + where,
        hint="everlog pipeline check",
    )


def _require_reachable(master: str) -> None:
    """Refuse a master that does not answer. Spark itself would try for a minute."""
    found = re.match(r"(?:spark|sc)://([^:/;,]+):(\d+)", master)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=_PROBE_SECONDS).close()
    except OSError as error:
        raise SparkFailed(
            f"nothing answers at {master}",
            why=error.strerror or str(error),
            hint="start the cluster, or leave the master out to use this machine",
        ) from error


def jvm_options(java: Java) -> str:
    """Return the options that every process of Spark needs with this Java, including those of a cluster."""
    return _OPTIONS.get(java.major, "")


def _is_local(master: str) -> bool:
    return master.startswith("local") or f"//{_LOOPBACK}:" in master or "//localhost:" in master


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _environment(java: Java, log: Path | None, driver: str) -> Iterator[None]:
    """Set what Spark reads from the environment while it starts."""
    source = str(Path(__file__).parents[3])  # the folder that has the package everlog
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = {
        "JAVA_HOME": str(JAVA_HOME),
        "EVERLOG_JVM": java.path,
        "EVERLOG_JVM_OPTIONS": jvm_options(java),
        "EVERLOG_JVM_DRIVER": driver,
        "EVERLOG_JVM_LOG": str(log or ""),
        "PYSPARK_PYTHON": sys.executable,  # workers would take the python3 of PATH, which lacks our libraries
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": _LOOPBACK,  # a host name that does not resolve would stop it
        # Workers import everlog too, from wherever this process has it.
        "PYTHONPATH": os.pathsep.join([source, *filter(None, paths)] if source not in paths else paths),
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _survive_the_end_of_java() -> None:
    """Keep this process alive and quiet if Java ends first.

    Ctrl-C reaches Java too. Then a write to it must not kill this process by SIGPIPE, and py4j must not print a
    traceback.
    """
    survive_closed_connections()
    for name in (None, "py4j.java_gateway", "py4j.clientserver"):
        logger = logging.getLogger(name)
        if _is_no_traceback_of_py4j not in logger.filters:
            logger.addFilter(_is_no_traceback_of_py4j)


def _is_no_traceback_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for a traceback that py4j logs, also by the root logger: it raises the same error."""
    return record.exc_info is None or "py4j" not in Path(record.pathname).parts


@contextmanager
def _interrupts_as_they_were() -> Iterator[None]:
    """Undo that PySpark handles Ctrl-C.

    Its handler asks the JVM to cancel the jobs, whatever runs at that moment: another call to the JVM, whose
    connection breaks, or a write, which a log protects only from Python's own interrupt. A caller that is interrupted
    ends the session, and its jobs with it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # PySpark does not handle it there either
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # None: it was not set by Python, and cannot be set back
            signal.signal(signal.SIGINT, before)


class _JvmLog:
    """The file with what the JVM prints, one per process; those of dead processes are removed after a day."""

    def __init__(self) -> None:
        self.path: Path | None = None
        files = DiskFiles()
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "everlog" / "spark"
        try:
            for parent in reversed([folder, *folder.parents]):
                if not files.exists(parent):
                    files.make_dir(parent)
            for name in files.names(folder):
                process = name.partition(".")[0]
                if process.isdigit() and not _is_alive(int(process)) and _is_old(files, folder / name):
                    files.unlink(folder / name)
        except (OSError, EverlogError):
            return  # the home folder is read-only: then it is printed
        self.path = folder / f"{os.getpid()}.log"

    def last_words(self) -> str:
        """Return the last few lines: the very last one may only be "Program will exit"."""
        files = DiskFiles()
        if self.path is None or not files.exists(self.path):
            return ""
        lines = files.read_all(self.path).decode(errors="replace").splitlines()
        found = [line.strip() for line in lines if line.strip() and "\tat " not in line]
        return "; ".join(found[-3:])[-400:]


def _is_old(files: DiskFiles, path: Path) -> bool:
    """Return True after a day: an error message may refer to the file until then."""
    stamp = files.stamp(path)
    return stamp is not None and time.time_ns() - stamp.changed_ns > _LOG_KEPT_NS


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
