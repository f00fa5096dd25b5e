"""Files of a run: written whole or not at all, loaded without running code, never confused with the user's own."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

KEPT_RUNS = 3
MARKERS = ("recorder.json", "checkpoint.pth")  # their content tells a run of this library from a user's files
CHECKPOINT = {"config", "agent", "worker", "evaluator"}  # what a checkpoint holds, among others
BEST_ACTOR = re.compile(r"actor__\d{12}_(-?\d+\.\d{3})\.pt")
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


def load_checkpoint(cwd: str | Path) -> dict[str, Any]:
    """What a run of this library wrote to `cwd/checkpoint.pth`. Raises as `load` does, ValueError too if it is not."""
    path = Path(cwd) / "checkpoint.pth"
    found = load(path)
    if not isinstance(found, dict) or not found.keys() >= CHECKPOINT:
        holds = f"the keys {', '.join(map(str, found))}" if isinstance(found, dict) else f"a {type(found).__name__}"
        needed = ", ".join(sorted(CHECKPOINT))
        raise ValueError(
            f"{path} is no checkpoint of a run: {needed} are needed, it holds {holds[:80]}. Use another cwd."
        )
    return found


@contextmanager
def refusing_misfits(source: str, agent: Any) -> Iterator[None]:
    """Loading what another agent saved raises ValueError in one sentence, instead of torch's list of all parameters."""
    try:
        yield
    except (RuntimeError, KeyError) as error:
        raise ValueError(
            f"{source} holds other networks than {type(agent).__name__} has with net_dims {agent.net_dims}, state_dim "
            f"{agent.state_dim} and action_dim {agent.action_dim}: give the agent_class and settings of that run."
        ) from error


def check_writable(cwd: str | Path) -> None:
    """Make the folder `cwd` and try to write there. Raises ValueError if that fails."""
    try:
        Path(cwd).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=cwd).close()
    except OSError as error:
        raise ValueError(
            f"cwd={str(cwd)!r} must be a folder that can be written to ({error}): give another cwd."
        ) from error


def claim(cwd: str | Path) -> ExitStack:
    """Keeps other runs out of a folder until what is returned is closed, or this process has ended.

    ValueError: a run is there. It is a lock of the folder itself: no file is left, and none is needed.
    """
    claimed = ExitStack()
    with suppress(ImportError):  # Windows
        import fcntl

        folder = os.open(cwd, os.O_RDONLY)
        claimed.callback(os.close, folder)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claimed.close()
            raise ValueError(f"another run is writing to cwd={str(cwd)!r}: stop it, or give another cwd") from None
        except OSError:  # a file system without locks
            pass
    return claimed


def is_run(folder: str | Path) -> bool:
    """Whether a run of this library wrote to `folder`: by what is in its recorder.json or its checkpoint.pth."""
    with suppress(OSError, ValueError):
        match json.loads((Path(folder) / "recorder.json").read_text()):
            case ["total_step", *_]:
                return True
    with suppress(OSError, ValueError):
        return bool(load_checkpoint(folder))
    return False


def run_files(cwd: str | Path) -> list[Path]:
    """Files directly in `cwd` (and in its `tensorboard`) that bear a name which a run of this library writes."""
    cwd = Path(cwd)
    candidates = [*cwd.glob("*"), *cwd.glob("tensorboard/*")]
    return sorted(p for p in candidates if RUN_FILE.fullmatch(p.relative_to(cwd).as_posix()) and not p.is_dir())


def best_actor(cwd: str | Path) -> Path:
    """The actor that scored best in a run. FileNotFoundError: none was kept (`if_keep_save`)."""
    scores = {path: float(m[1]) for path in Path(cwd).iterdir() if (m := BEST_ACTOR.fullmatch(path.name))}
    if scores:
        return max(scores, key=scores.__getitem__)
    if (Path(cwd) / "actor.pt").exists():  # if_over_write
        return Path(cwd) / "actor.pt"
    raise FileNotFoundError(f"{cwd} holds no actor__{{step}}_{{return}}.pt: the run kept none, or it is another folder")


def set_aside(cwd: str | Path) -> Path | None:
    """Move the files that a run would overwrite from `cwd` to `cwd/previous-N`, N rising; returns that folder, or None.

    They are an earlier run's, or the user's own under such names. Of folders that hold a run the newest three stay;
    from older ones the library's own files are deleted, and the folder if that left it empty. A file with any other
    name, and a folder without a run, is neither moved nor deleted.
    """
    cwd = Path(cwd)
    files = run_files(cwd)
    if not files:
        return None
    earlier = {int(p.name[9:]): p for p in cwd.glob("previous-*") if p.name[9:].isdecimal()}
    target = cwd / f"previous-{max(earlier, default=0) + 1}"
    for file in sorted(files, key=lambda file: file.name in MARKERS):  # last, so that half a move is not half a run
        moved = target / file.relative_to(cwd)
        moved.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, moved)
    _remove_if_empty(cwd / "tensorboard")
    runs = [target, *(earlier[number] for number in sorted(earlier, reverse=True))]
    for run in [run for run in runs if not run.is_symlink() and is_run(run)][KEPT_RUNS:]:
        for file in run_files(run):
            file.unlink()
        _remove_if_empty(run / "tensorboard")
        _remove_if_empty(run)
    return target


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()


def random_states() -> dict[str, Any]:
    """The states of torch's, CUDA's, NumPy's and Python's generators as tensors and plain data."""
    kind, keys, position, has_gauss, gauss = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss),
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"].cpu())
    for i, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state.cpu(), i)
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Inside, Ctrl-C is not heard: what an impatient second one would cut short is left whole."""
    if threading.current_thread() is not threading.main_thread():  # no other hears it
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
