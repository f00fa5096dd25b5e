"""Runs notebooks of examples/ from top to bottom in the real mode and stores their outputs in them.

    python benchmarks/notebooks.py quickstart_Pendulum_v1 tutorial_LunarLanderContinuous_v3

Commit first: a notebook stores the commit that it ran at. Then look at its pictures. No name: all of them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]


def execute(path: Path) -> None:
    """Outputs of one run in an empty folder. What goes to standard error (warnings, progress) is left out."""
    notebook = nbformat.read(path, 4)
    with tempfile.TemporaryDirectory() as folder:
        told = {"timeout": None, "record_timing": False, "coalesce_streams": True}
        NotebookClient(notebook, resources={"metadata": {"path": folder}}, **told).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {  # without the versions of this machine
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="notebooks, without .ipynb")
    told = parser.parse_args()
    os.environ.pop("MPLBACKEND", None)  # figures are shown in the notebook
    os.environ |= {"ELEGANTRL_SOURCE": str(ROOT), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        if not told.names or path.stem in told.names:
            start, before = time.perf_counter(), os.times()
            execute(path)
            cpu = os.times().children_user - before.children_user
            print(f"{path.stem}: {time.perf_counter() - start:.0f} s, {cpu:.0f} s of CPU")


if __name__ == "__main__":
    main()
