"""Long operations: a request starts a job and gets its id; the job's state can be asked for until it is forgotten."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from everlog.core.ids import new_id
from everlog.errors import EverlogError, LogClosed, NotFound, TooManyRequests
from everlog.server.routes.answers import defect_problem, problem_for
from everlog.server.routes.route import Answer, Policy, Request, Response, Route
from everlog.wire.problems import Problem

RUNNING_MAX = 2
WAITING_MAX = 20
KEPT_MAX = 100
"""Jobs that have ended and can still be asked for; the oldest are forgotten first."""

_logger = logging.getLogger("everlog.server")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A long operation. `progress` is the position of the log that it has reached."""

    id: str
    operation: str
    status: Literal["waiting", "running", "done", "failed"]
    started_at: datetime
    ended_at: datetime | None = None
    progress: int = 0
    result: Any = None
    problem: Annotated[Problem | None, msgspec.Meta(description="Why it failed.")] = None


class Jobs:
    """The jobs of one log: some run, some wait, and those that ended are kept for a while."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(RUNNING_MAX, thread_name_prefix=f"everlog-{name}-job")
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closing = False

    def start(self, operation: str, work: Callable[[Callable[[int], None]], Any]) -> Job:
        """Run work in a thread; it gets a function to call with the position that it has reached."""
        job = Job(id=str(new_id()), operation=operation, status="waiting", started_at=datetime.now(UTC))
        with self._lock:
            under_way = sum(1 for one in self._jobs.values() if one.ended_at is None)
            if under_way >= RUNNING_MAX + WAITING_MAX:
                raise TooManyRequests(
                    f"{under_way} jobs are under way",
                    why="that is the most at once",
                    hint="try again when one has ended: GET /v1/jobs",
                    retry_after_s=5,
                )
            self._jobs[job.id] = job
            ended = [one.id for one in self._jobs.values() if one.ended_at is not None]
            for old in ended[: max(0, len(ended) - KEPT_MAX)]:
                del self._jobs[old]
        self._pool.submit(self._run, job.id, work)
        return job

    def find(self, name: str) -> Job:
        with self._lock:
            found = self._jobs.get(name)
        if found is None:
            raise NotFound(
                f"there is no job {name[:80]}",
                why=f"it never existed, the server was restarted, or {KEPT_MAX} jobs have ended since",
                hint="GET /v1/jobs",
            )
        return found

    def every(self) -> list[Job]:
        """Return the jobs without their results, the newest first."""
        with self._lock:
            found = list(self._jobs.values())
        return [msgspec.structs.replace(one, result=None) for one in reversed(found)]

    def close(self) -> None:
        """Stop what runs at its next position, and start nothing more."""
        self._closing = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, name: str, work: Callable[[Callable[[int], None]], Any]) -> None:
        def progress(position: int) -> None:
            if self._closing:
                raise LogClosed("the server is stopping", hint="start the job again on the next one")
            self._change(name, progress=position)

        self._change(name, status="running")
        try:
            progress(0)
            result = work(progress)
        except EverlogError as error:
            self._change(name, status="failed", problem=problem_for(error, name), ended_at=datetime.now(UTC))
        except Exception:
            _logger.exception("job %s failed", name)
            self._change(name, status="failed", problem=defect_problem(name), ended_at=datetime.now(UTC))
        else:
            self._change(name, status="done", result=result, ended_at=datetime.now(UTC))

    def _change(self, name: str, **fields: Any) -> None:
        with self._lock:
            if name in self._jobs:
                self._jobs[name] = msgspec.structs.replace(self._jobs[name], **fields)


async def find(request: Request) -> Response:
    return Response(msgspec.json.encode(request.service.jobs.find(request.params["id"])))


async def every(request: Request) -> Response:
    return Response(msgspec.json.encode(request.service.jobs.every()))


_POLICY = Policy(role="read", scope="log")
ROUTES = (
    Route(
        method="GET",
        path="/v1/jobs",
        name="jobs.list",
        about="Return the long operations that were started here, the newest first, without their results.",
        policy=_POLICY,
        call=every,
        answers=(Answer(status=200, about="The jobs.", type=list[Job]),),
        example="/v1/jobs",
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        name="jobs.get",
        about="Return a long operation: how far it is, and its result when it is done.",
        policy=_POLICY,
        call=find,
        answers=(Answer(status=200, about="The job.", type=Job),),
        problems=("not_found",),
        example="/v1/jobs/01M7GNA1VYFX6R4DN7FYV6RCAF",
    ),
)
