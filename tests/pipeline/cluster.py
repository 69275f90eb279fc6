"""A real Spark cluster on the loopback address: a master and some workers, each a process that can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import everlog
from everlog.pipeline.session.java import JAVA_HOME, find_java
from everlog.pipeline.session.session import jvm_options

HOST = "127.0.0.1"
STARTED_WITHIN_S = 240.0


class SparkCluster:
    """A context: `with SparkCluster(folder, workers=2) as cluster: … cluster.master …`."""

    def __init__(self, folder: Path, *, workers: int = 2, memory_mb: int = 1024) -> None:
        self._folder = folder
        self._port = _free_port()
        self._count = workers
        self._memory_mb = memory_mb
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            where = ("--host", HOST, "--port", str(self._port), "--webui-port", "0")
            self._start("master", "org.apache.spark.deploy.master.Master", *where)
            self._wait("master", lambda log: b"New state: ALIVE" in log)
            for number in range(self._count):
                self._start_worker(number)
            for number in range(self._count):
                self._wait(f"worker{number}", lambda log: b"Successfully registered with master" in log)
        except BaseException:
            self.__exit__()
            raise
        return self

    def kill_worker(self, number: int) -> None:
        """As when its machine is switched off: the worker and the executors that it started, at once."""
        process = self._processes[f"worker{number}"]
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _start_worker(self, number: int) -> None:
        work = self._folder / f"work{number}"
        own = ("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", f"{self._memory_mb}m")
        main = "org.apache.spark.deploy.worker.Worker"
        self._start(f"worker{number}", main, *own, "--work-dir", str(work), self.master)

    def _start(self, name: str, main: str, *arguments: str) -> None:
        java = find_java()
        source = str(Path(everlog.__file__).parent.parent)
        environment = {
            **os.environ,
            "JAVA_HOME": str(JAVA_HOME),
            "EVERLOG_JVM": java.path,
            "EVERLOG_JVM_OPTIONS": jvm_options(java),
            "EVERLOG_JVM_LOG": "",
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # they live for a minute
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        program = Path(spark.origin).parent / "bin" / "spark-class"
        with self._log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(program), main, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a group of its own, to be killed as one
            )

    def _wait(self, name: str, ready: Callable[[bytes], bool]) -> None:
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not ready(self._log(name).read_bytes()):
            if self._processes[name].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the {name} did not start:\n" + self._log(name).read_text(errors="replace")[-4000:]
                )
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
