"""A task queue for agents with approvals: an agent asks, a person decides, and only then a worker runs the task.

    python agent_queue.py

Nobody approves their own task. A worker that dies is replaced, and its task is delivered again.
"""

from __future__ import annotations

import everlog
from everlog.consumers import Group
from everlog.programs.agents.commands import Approve, Execute, Propose, Reject
from everlog.programs.agents.questions import List


def ask(log: everlog.Log, agent: str, tool: str, key: str, **given: object) -> str:
    """Put a task into the queue, and return its id. An agent that lost the answer asks again with the same key."""
    by = everlog.By(actor=f"agent:{agent}", key=key)
    return everlog.perform(log, Propose(agent_id=agent, tool_name=tool, tool_input=given), by).result.id


def work(log: everlog.Log, worker: str) -> None:
    """Run every task that was approved. All workers share the group; each task goes to one of them."""
    query = everlog.Query(types=frozenset(["agent.command.approved"]))
    with Group(log, "workers", query, partitions=4).member(worker) as member:
        for delivery in member.deliveries(to_end=True):  # without to_end it waits for more
            task = delivery.event.stream.partition("/")[2]
            print(f"{worker} runs {task}")  # the effect comes first, so it must be safe to repeat
            done = everlog.By(actor=f"service:{worker}", key=f"ran-{task}")
            everlog.perform(log, Execute(id=task, exit_code=0), done)
            delivery.ack()


def main() -> None:
    with everlog.open("memory:", actor="system") as log:
        build = ask(log, "builder", "pytest", "ask-1", path="tests")
        assert ask(log, "builder", "pytest", "ask-1", path="tests") == build  # a retry is the same task
        wipe = ask(log, "builder", "rm", "ask-2", path="/")

        try:
            everlog.perform(log, Approve(id=build), everlog.By(actor="agent:builder"))
        except everlog.EverlogError as error:
            print("refused:", error.what)

        everlog.perform(log, Approve(id=build), everlog.By(actor="user:ada"))
        everlog.perform(log, Reject(id=wipe, reason="not on a Friday"), everlog.By(actor="user:ada"))
        work(log, "worker-1")
        for task in everlog.ask(log, List()):
            print(task["tool_name"], task["status"])


if __name__ == "__main__":
    main()
