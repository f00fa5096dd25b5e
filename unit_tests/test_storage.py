"""Files are whole or absent, loading runs no code, and a user's own files stay where they are."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from elegantrl import storage


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('["total_step", "avgR"]' if name.endswith("recorder.json") else name)


def tree(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


def test_save_and_load(tmp_path):
    state = {"weight": torch.arange(3.0), "step": 7, "names": ["a", "b"]}
    storage.atomic_save(state, tmp_path / "new_folder" / "checkpoint.pth")
    loaded = storage.load(tmp_path / "new_folder" / "checkpoint.pth", "cpu")
    assert loaded["step"] == 7 and loaded["names"] == ["a", "b"] and torch.equal(loaded["weight"], state["weight"])
    assert tree(tmp_path) == {"new_folder/checkpoint.pth"}


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    storage.atomic_save({"step": 1}, tmp_path / "checkpoint.pth")

    def breaks_off(path: str) -> None:
        Path(path).write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        storage.atomic_write(tmp_path / "checkpoint.pth", breaks_off)
    assert storage.load(tmp_path / "checkpoint.pth") == {"step": 1} and tree(tmp_path) == {"checkpoint.pth"}


def test_writers_see_the_right_suffix(tmp_path):
    storage.atomic_write(tmp_path / "recorder.npy", lambda path: np.save(path, np.eye(2)))
    assert np.array_equal(np.load(tmp_path / "recorder.npy"), np.eye(2)) and tree(tmp_path) == {"recorder.npy"}


class Unregistered:
    pass


def test_load_says_what_is_wrong(tmp_path):
    write(tmp_path, "act.pth", "notes.txt")
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.pth does not exist.*: act\.pth$"):
        storage.load(tmp_path / "checkpoint.pth")
    with pytest.raises(ValueError, match=r"act\.pth: it is damaged"):
        storage.load(tmp_path / "act.pth")
    torch.save(Unregistered(), tmp_path / "act.pth")
    with pytest.raises(ValueError, match=r"class \S*Unregistered.*add_safe_globals\(\[Unregistered\]\)"):
        storage.load(tmp_path / "act.pth")


class Dangerous:
    def __reduce__(self):
        return os.mkdir, ("code_was_run",)


def test_load_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Dangerous(), "act.pth")
    with pytest.raises(ValueError):
        storage.load("act.pth")
    assert not Path("code_was_run").exists()


LEFT_BY_A_RUN = (
    *("act.pth", "actor.pth", "cri.pth", "act_target.pth", "cri_target.pth", "act_optimizer.pth", "cri_optimizer.pth"),
    *("checkpoint.pth", "recorder.npy", "recorder.json", "LearningCurve.jpg", "plot_learning_curve.jpg", "actor.pt"),
    *("actor__000000020000.pt", "actor__000000020000_-0123.456.pt", "actor__000000040000_00500.000.pt"),
    *("render_000000020000.gif", "tensorboard/events.out.tfevents.1.host.2.0", ".tmp12_act.pth"),
)
LEFT_BY_A_USER = (
    *("notes.txt", "my_target.pth", "actor__best.pt", "stop", "tensorboard/notes.txt", "best/act.pth", "act.pth.bak"),
    *("data.npy", "previous-paper/act.pth", "curve.jpg"),
)


def test_run_files(tmp_path):
    write(tmp_path, *LEFT_BY_A_RUN, *LEFT_BY_A_USER)
    assert {file.relative_to(tmp_path).as_posix() for file in storage.run_files(tmp_path)} == set(LEFT_BY_A_RUN)


def test_set_aside_moves_a_run_and_nothing_else(tmp_path):
    write(tmp_path, *LEFT_BY_A_RUN, *LEFT_BY_A_USER)
    assert storage.set_aside(tmp_path) == tmp_path / "previous-1"
    assert tree(tmp_path) == {*LEFT_BY_A_USER, *(f"previous-1/{name}" for name in LEFT_BY_A_RUN)}


def test_nothing_is_moved_where_nothing_would_be_overwritten(tmp_path):
    write(tmp_path, *LEFT_BY_A_USER)
    assert storage.set_aside(tmp_path) is None
    assert storage.set_aside(tmp_path / "absent") is None
    assert tree(tmp_path) == {*LEFT_BY_A_USER}


def test_a_run_is_known_by_content(tmp_path):
    for name, content in (
        ("none", None),
        ("text", "mine"),
        ("number", "3"),
        ("other list", '["step"]'),
        ("dictionary", '{"total_step": 1}'),
    ):
        (tmp_path / name).mkdir()
        if content:
            (tmp_path / name / "recorder.json").write_text(content)
        storage.atomic_save({"model": {}, "epoch": 3}, tmp_path / name / "checkpoint.pth")
        assert not storage.is_run(tmp_path / name)
        with pytest.raises(ValueError, match=r"no checkpoint of a run: agent, config.*the keys model, epoch"):
            storage.load_checkpoint(tmp_path / name)
    checkpoint = dict.fromkeys(("config", "agent", "worker", "evaluator", "buffer"))
    storage.atomic_save(checkpoint, tmp_path / "none" / "checkpoint.pth")
    write(tmp_path, "text/recorder.json")
    assert storage.is_run(tmp_path / "none") and storage.is_run(tmp_path / "text")


def test_a_users_files_by_the_names_of_a_run_are_moved_and_never_deleted(tmp_path):
    own = {"act.pth", "checkpoint.pth", "recorder.npy", "previous-1/act.pth", "previous-2/notes.txt", "previous-4"}
    write(tmp_path, *own)
    assert storage.set_aside(tmp_path) == tmp_path / "previous-5"
    for _ in range(5):
        write(tmp_path, "recorder.json", "act.pth")
        storage.set_aside(tmp_path)
    moved = {"previous-5/act.pth", "previous-5/checkpoint.pth", "previous-5/recorder.npy"}
    runs = {f"previous-{number}/{file}" for number in (8, 9, 10) for file in ("recorder.json", "act.pth")}
    assert tree(tmp_path) == {*moved, *runs, "previous-1/act.pth", "previous-2/notes.txt", "previous-4"}


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    write(tmp_path, "file")
    for cwd in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/run")):
        with pytest.raises(ValueError, match=f"cwd='{cwd}' must be a folder that can be written to"):
            storage.check_writable(cwd)
    storage.check_writable(tmp_path / "new" / "folder")
    assert tree(tmp_path) == {"file"} and (tmp_path / "new" / "folder").is_dir()


def test_three_runs_are_kept_and_a_users_files_in_older_ones(tmp_path):
    for run in range(1, 6):
        write(tmp_path, "recorder.json", "act.pth", "tensorboard/events.out.tfevents.1")
        storage.set_aside(tmp_path)
        if run == 1:
            write(tmp_path, "previous-1/notes.txt")
    folders = {path.name for path in tmp_path.iterdir()}
    assert folders == {"previous-1", "previous-3", "previous-4", "previous-5"}
    assert tree(tmp_path / "previous-1") == {"notes.txt"}
    assert tree(tmp_path / "previous-5") == {"recorder.json", "act.pth", "tensorboard/events.out.tfevents.1"}
