"""What must be read to follow an algorithm from run.py and config.py to its gradient step: files and lines.

    python benchmarks/reading_cost.py

A short training run is traced. Every function of elegantrl/ that it calls counts with all its lines, and every class on
the way with its docstring and attributes. Left out is what lies beside that way: environments and the watch over them,
evaluation, console, pictures, saving, loading, the end of a run, and the checks of settings' values. The whole length
of each file is beside it, and their sum in the head: what a reader scrolls through.
"""

from __future__ import annotations

import ast
import contextlib
import io
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import elegantrl
from elegantrl import Config, agents, train_agent

ROOT = Path(elegantrl.__file__).parent
BESIDE = ("envs/", "storage.py", "compat.py", "device.py", "train/evaluator.py", "train/console.py", "train/plots.py")
BESIDE += ("train/recorder.py", "train/checks.py", "warn.py", "__init__.py", "train/__init__.py", "agents/__init__.py")
SAVING = ("state_dict", "load_state_dict", "save_or_load_agent", "checkpoint", "to_dict", "parts")
ENDING = ("collect", "end", "close", "close_parts", "part", "say_how_it_ended")


def functions_called(agent_class: type, env: str) -> dict[Path, set[int]]:
    """The first lines of the functions that a run of this agent calls, by file."""
    called: dict[Path, set[int]] = defaultdict(set)

    def note(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT)) and code.co_name not in SAVING + ENDING:
            called[Path(code.co_filename)].add(code.co_firstlineno)

    settings = {"break_step": 1200, "eval_per_step": 10_000, "eval_times": 1, "horizon_len": 100, "net_dims": (16,)}
    with tempfile.TemporaryDirectory() as cwd, contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(note)
        try:
            train_agent(Config(agent_class, env, cwd=cwd, **settings), if_single_process=True)
        finally:
            sys.setprofile(None)
    return {path: lines for path, lines in called.items() if not str(path.relative_to(ROOT)).startswith(BESIDE)}


def lines_of(path: Path, called: set[int]) -> set[int]:
    """The lines of the called functions, and of the heads of the classes that they belong to."""
    lines: set[int] = set()

    def first(node: Any) -> int:
        return min([node.lineno, *(d.lineno for d in node.decorator_list)])

    def visit(node: ast.AST) -> bool:
        found = False
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                if first(child) in called:
                    lines.update(range(first(child), child.end_lineno + 1))
                    found = True
            elif isinstance(child, ast.ClassDef) and visit(child):
                found = True
                inside = {
                    n for f in child.body if isinstance(f, ast.FunctionDef) for n in range(first(f), f.end_lineno + 1)
                }
                lines.update(set(range(first(child), child.end_lineno + 1)) - inside)
        return found

    visit(ast.parse(path.read_text()))
    return lines


def reading_cost(agent_class: type, env: str) -> dict[str, int]:
    """Lines to read in each file."""
    called = functions_called(agent_class, env)
    cost = {str(path.relative_to(ROOT)): len(lines_of(path, lines)) for path, lines in called.items()}
    return {name: lines for name, lines in sorted(cost.items()) if lines}


def main() -> None:
    for agent_class, env in ((agents.AgentSAC, "Pendulum-v1"), (agents.AgentPPO, "CartPole-v1")):
        cost = reading_cost(agent_class, env)
        whole = {name: len((ROOT / name).read_text().splitlines()) for name in cost}
        print(f"{agent_class.__name__}: {len(cost)} files, {sum(cost.values())} of {sum(whole.values())} lines")
        for name, lines in cost.items():
            print(f"  {lines:5} of {whole[name]:5}  {name}")


if __name__ == "__main__":
    main()
