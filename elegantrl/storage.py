"""Files of a run: written whole or not at all, loaded without running code, never confused with the user's own."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

KEPT_RUNS = 3
MARKERS = ("recorder.json", "checkpoint.pth")  # their presence tells a run of this library from a user's networks
RUN_FILE = re.compile(
    r"(act|actor|cri|checkpoint)\.pth|(act|cri)_(target|optimizer)\.pth"
    r"|actor\.pt|actor__\d{12}(_-?\d+\.\d{3})?\.pt|render_\d{12}\.gif"
    r"|recorder\.(npy|json)|(plot_learning_curve|LearningCurve)\.jpg"
    r"|tensorboard/events\.out\.tfevents\..+"
    r"|\.tmp\d+_.+"  # what a killed process left half-written
)


def atomic_write(path: str | Path, writer: Callable[[str], Any]) -> None:
    """Let `writer(temporary_path)` write a file and rename it to `path`: a reader sees the old file or the new one.

    The temporary name keeps the suffix, by which np.save and image writers choose the format. If `writer` raises,
    nothing changes and the error passes on.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp{os.getpid()}_{path.name}")
    try:
        writer(str(temporary))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_save(obj: Any, path: str | Path) -> None:
    """Write `obj` (a module, a state dict, plain data) with torch.save, whole or not at all."""
    atomic_write(path, lambda temporary: torch.save(obj, temporary))


def load(path: str | Path, device: torch.device | str = "cpu") -> Any:
    """Read what `atomic_save` wrote, onto `device`, without running any code from the file.

    Raises FileNotFoundError (it says what the folder holds instead) or ValueError (an object of an unknown class, or
    a damaged file), with what to do.
    """
    path = Path(path)
    if not path.is_file():
        found = sorted(file.name for file in run_files(path.parent))
        raise FileNotFoundError(f"{path} does not exist; files of a run in that folder: {', '.join(found) or 'none'}")
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        unknown = re.search(r"GLOBAL ([\w.]+)", str(error))
        if unknown:
            advice = (
                f"it holds an object of the class {unknown[1]}, which is not registered. If you trust the file, call "
                f"torch.serialization.add_safe_globals([{unknown[1].rpartition('.')[2]}]) first"
            )
        else:
            advice = f"it is damaged or no file of torch.save ({type(error).__name__}). Remove it, or use another one"
        raise ValueError(f"cannot load {path}: {advice}.") from error


def run_files(cwd: str | Path) -> list[Path]:
    """Files directly in `cwd` (and in its `tensorboard`) that bear a name which a run of this library writes."""
    cwd = Path(cwd)
    candidates = [*cwd.glob("*"), *cwd.glob("tensorboard/*")]
    return sorted(p for p in candidates if RUN_FILE.fullmatch(p.relative_to(cwd).as_posix()) and not p.is_dir())


def set_aside_previous_run(cwd: str | Path) -> Path | None:
    """Move the files of an earlier run from `cwd` to `cwd/previous-N`, N rising; returns that folder, None if no run.

    The newest three such folders stay. From older ones the library's own files are deleted, and the folder if that
    left it empty. A file with any other name is neither moved nor deleted.
    """
    cwd = Path(cwd)
    files = run_files(cwd)
    if not any(file.name in MARKERS for file in files):
        return None
    earlier = {int(p.name[9:]): p for p in cwd.glob("previous-*") if p.name[9:].isdecimal() and p.is_dir()}
    target = cwd / f"previous-{max(earlier, default=0) + 1}"
    for file in sorted(files, key=lambda file: file.name in MARKERS):  # last, so that a killed move is taken up again
        moved = target / file.relative_to(cwd)
        moved.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, moved)
    _remove_if_empty(cwd / "tensorboard")
    for number in sorted(earlier, reverse=True)[KEPT_RUNS - 1 :]:
        for file in run_files(earlier[number]):
            file.unlink()
        _remove_if_empty(earlier[number] / "tensorboard")
        _remove_if_empty(earlier[number])
    return target


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
