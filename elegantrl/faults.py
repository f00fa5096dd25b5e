"""What stops a run beside errors in its own code. A leaf: everything may import it."""

from __future__ import annotations


class ProcessFault(RuntimeError):
    """A process of the run failed; the message says which one and why, with its traceback if there is one."""


class EnvironmentFault(ProcessFault):
    """The environment raised, or returned what is no number; the message says where."""
