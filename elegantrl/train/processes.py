"""Processes of a run: how they start, what they tell, and how they end. They know nothing of learning."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from types import ModuleType
from typing import Any

import cloudpickle
import torch
import torch.multiprocessing  # teaches the pickler of processes to hand shared tensors on

from ..faults import ProcessFault
from .shared import SharedTensors

CONTEXT = multiprocessing.get_context("spawn")  # of our own: the caller's start method stays
GRACE = 5.0  # seconds that a process has for ending when it was asked to
START_UP = 1800.0  # seconds that it has until its first step: imports, the environment, compiling its kernels
LOOK = 0.2  # seconds between two looks at the heartbeats


class Closing(BaseException):
    """Raised in a child's environment where the run is over."""


# in the parent


class Child:
    """A process that does `job(link, *what, *shared)`; what it is told and has not answered yet is in `todo`.

    name: for messages, such as "Worker 1". what: travels by cloudpickle. shared: travels by the rules of shared memory.
    timeout: seconds without a step of its environment, or an answer, after which a busy child counts as hung. Until its
    first step it has START_UP.
    """

    def __init__(
        self,
        name: str,
        job: Callable[..., None],
        what: Sequence[Any],
        shared: Sequence[Any] = (),
        threads: int = 1,
        timeout: float = float("inf"),
    ):
        self.name, self.shared, self.threads, self.timeout = name, shared, threads, timeout
        self.payload = cloudpickle.dumps((job, tuple(what)))
        self.todo: list[tuple] = []
        self.seed: int | None = None  # of its environments, for messages
        self.process: Any = None

    def start(self, *opening: tuple) -> None:
        """Starts the process. opening: messages before all others."""
        self.board = SharedTensors({"steps": ((), torch.int64), "closing": ((), torch.bool)})
        self.signs = self.board.views()
        self.steps, self.is_ready = 0, False
        self.heard = self.looked = time.monotonic()
        self.pipe, theirs = CONTEXT.Pipe()
        arguments = (theirs, self.board, self.payload, self.shared, self.threads)
        process = CONTEXT.Process(target=live, args=arguments, name=self.name, daemon=True)
        with plain_main(), threads_of_children(self.threads), interrupts_blocked():
            process.start()
            self.process = process  # no sooner: Ctrl-C may have come before
        theirs.close()
        for message in [*opening, *self.todo]:
            self.send(*message)

    def ask(self, *message: Any) -> None:
        """Sends what will be answered."""
        if not self.todo:
            self.heard = time.monotonic()
        self.todo.append(message)
        self.send(*message)

    def send(self, *message: Any) -> None:
        with suppress(OSError):  # that it is dead will be found where its answer is waited for
            self.pipe.send(message)

    def answered(self) -> None:
        self.todo.pop(0)
        self.heard = time.monotonic()

    def messages(self) -> Iterator[tuple]:
        """What it has said since. The last of them is ("lost", why) if it is dead or hangs. Raises ProcessFault."""
        self.forgive()
        dead = not self.process.is_alive()  # asked first: what it said before its end is still to be read
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                kind, *values = self.pipe.recv()
                if kind == "failed":
                    raise self.fault(*values)
                self.is_ready = self.is_ready or kind == "ready"
                yield kind, *values
        why = how_it_ended(self.process.exitcode) if dead else self.hangs()
        if why is not None:
            self.is_ready = False
            yield "lost", why

    def forgive(self) -> None:
        """A time in which nobody looked is no silence: this process was stopped, by Ctrl-Z say, and they with it."""
        gap, self.looked = time.monotonic() - self.looked, time.monotonic()
        if gap > LOOK + GRACE:
            self.heard += gap

    def hangs(self) -> str | None:
        """Why it counts as hung, if it does."""
        steps = int(self.signs["steps"])
        if steps != self.steps or (self.is_ready and not self.todo):
            self.steps, self.heard = steps, time.monotonic()
        limit, name = (self.timeout, "worker_timeout") if steps else (max(self.timeout, START_UP), "start-up")
        if time.monotonic() - self.heard <= limit:
            return None
        return f"gave no sign of life for {limit:g} seconds ({name}) after step {steps}"

    def fault(self, kind: str, message: str, trace: str) -> ProcessFault:
        kinds: list[type[ProcessFault]] = [ProcessFault, *ProcessFault.__subclasses__()]
        faults = {cls.__name__: cls for cls in kinds}
        told = message if kind in faults else f"{kind}: {message}"
        seed = "" if self.seed is None else f" (seed {self.seed})"
        return faults.get(kind, ProcessFault)(f"{self.name}{seed}: {told}\n\nIn that process:\n{trace}")

    def tell_to_close(self) -> None:
        if self.process is not None:
            self.signs["closing"].fill_(True)
            self.send("close")

    def close(self, grace: float = GRACE) -> None:
        """Ends the process. One that is still starting, or lost, is not waited for."""
        if self.process is None:
            return
        self.tell_to_close()
        if self.is_ready:
            self.process.join(grace)
        safely_terminate_process(self.process)
        self.pipe.close()
        self.process.close()
        self.process = None

    def restart(self, *opening: tuple) -> None:
        """Another process in the place of this one, which is told again what this one did not answer."""
        self.close()
        self.start(*opening)


def listen(children: Sequence[Child], timeout: float = LOOK) -> Iterator[tuple[Child, tuple]]:
    """What the children say within `timeout` seconds, as it comes. See `Child.messages`."""
    connection.wait([x for child in children for x in (child.pipe, child.process.sentinel)], timeout)
    for child in children:
        for message in child.messages():
            yield child, message


def why_not_elsewhere(what: Any) -> str | None:
    """Why this process cannot start others that are given `what`; None if it can."""
    if multiprocessing.current_process().daemon:
        return "this one is daemonic and may not start others"
    try:
        cloudpickle.dumps(what)
    except Exception as error:  # whatever a foreign __reduce__ raises
        return f"the environment or the agent cannot travel to another process ({type(error).__name__}: {error})"
    return None


def how_it_ended(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name
    return f"was killed by {name}" + (" (the kernel does so where memory is short)" if name == "SIGKILL" else "")


@contextmanager
def plain_main() -> Iterator[None]:
    """Inside, `__main__` is an empty module: a process that is started now does not run the user's script again.

    Starting one would also settle the caller's start method: that is as before afterwards.
    """
    main, method = sys.modules["__main__"], multiprocessing.get_start_method(allow_none=True)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        multiprocessing.set_start_method(method, force=True)


@contextmanager
def threads_of_children(count: int) -> Iterator[None]:
    """NumPy too has so many threads in a process that is started inside, unless the caller's environment says it."""
    is_said = "OMP_NUM_THREADS" in os.environ
    os.environ.setdefault("OMP_NUM_THREADS", str(count))
    try:
        yield
    finally:
        if not is_said:
            del os.environ["OMP_NUM_THREADS"]


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """A process that is started inside never sees Ctrl-C, not even while it imports: this one tells it to end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it would be started with the first process, and ends the blocking
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def safely_terminate_process(process: Any) -> None:
    """Ends a process by SIGTERM, then by SIGKILL, and waits for its end, so that no zombie is left."""
    for end in (process.terminate, process.kill):
        if process.is_alive():
            end()
            process.join(GRACE)
    process.join()


def check_subprocess(timer: float = 2.0) -> list[Any]:
    """Waits up to `timer` seconds for the processes that this one has started; prints and returns those still alive."""
    end = time.monotonic() + timer
    for process in multiprocessing.active_children():
        process.join(max(0.0, end - time.monotonic()))
    alive = multiprocessing.active_children()
    for process in alive:
        print(f"still running: {process.name} (pid {process.pid})", flush=True)
    return alive


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# in the child


class Link:
    """A child's side: what it is told, what it says, and its signs of life."""

    def __init__(self, pipe: Any, board: SharedTensors):
        self.pipe = pipe
        self.signs = {name: view.numpy() for name, view in board.views().items()}

    def say(self, *message: Any) -> None:
        self.pipe.send(message)

    def __iter__(self) -> Iterator[tuple]:
        """What it is told, until it is told to close."""
        while (message := self.pipe.recv())[0] != "close":
            yield message

    def watch(self, env: Any) -> WatchedSteps:
        return WatchedSteps(env, self.signs)


class WatchedSteps:
    """An environment each of whose steps is a sign of life; it refuses to go on where the run is over."""

    def __init__(self, env: Any, signs: dict[str, Any]):
        self.env, self.signs = env, signs

    def step(self, action: Any) -> Any:
        if self.signs["closing"]:
            raise Closing
        result = self.env.step(action)
        self.signs["steps"] += 1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


def live(pipe: Any, board: SharedTensors, payload: bytes, shared: Sequence[Any], threads: int) -> None:
    """The life of a child: its job, and a word to the parent if that fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # it may have children
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    link = Link(pipe, board)
    try:
        job, what = cloudpickle.loads(payload)
        job(link, *what, *shared)
    except (Closing, EOFError, BrokenPipeError):
        pass  # the run is over, or the parent is dead
    except BaseException as error:
        with suppress(OSError):
            link.say("failed", type(error).__name__, str(error), traceback.format_exc())
        sys.exit(1)


def end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
