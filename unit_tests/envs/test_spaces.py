"""ActionCodec: known answers for every kind of space; cases 1, 2, 3."""

from __future__ import annotations

import io

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from elegantrl.envs import ActionCodec


def decode(space: gym.Space, action: list) -> np.ndarray:
    codec = ActionCodec.from_space(space)
    return codec.decode(np.asarray(action, np.int64 if codec.if_discrete else np.float32))


def test_finite_box_is_reached_at_both_ends_and_clamped_beyond():
    space = Box(np.float32([-3, 0]), np.float32([1, 10]))
    assert decode(space, [[-1, -1], [0, 0], [1, 1], [-7, 7]]).tolist() == [[-3, 0], [-1, 5], [1, 10], [-3, 10]]


def test_uniform_box():
    assert decode(Box(-2, 2, (3,)), [[-1, 0.5, 9]]).tolist() == [[-2, 1, 2]]
    assert decode(Box(np.float32([-1, -2]), np.float32([1, 2])), [[1, 1]]).tolist() == [[1, 2]]
    assert decode(Box(-1, 1, (2,)), [[-0.25, -9]]).tolist() == [[-0.25, -1]]


def test_half_open_and_unbounded_dimensions():
    space = Box(np.float32([2, -np.inf, -np.inf]), np.float32([np.inf, 5, np.inf]))
    assert decode(space, [[-1, -1, -1], [1, 1, 1]]).tolist() == [[2, 3, -1], [4, 5, 1]]
    largest = np.finfo(np.float32).max  # how old spaces wrote infinity
    assert decode(Box(-largest, largest, (1,)), [[0.5]]).tolist() == [[0.5]]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8])
def test_dtype_of_the_space(dtype: type):
    space = Box(0, 10, (1,), dtype)
    actions = decode(space, [[-1.0], [0.16], [1.0]])
    assert actions.dtype == dtype
    assert all(space.contains(action) for action in actions)
    if dtype is not np.float64:
        assert actions.ravel().tolist() == [0, 6, 10]


def test_shapes_of_more_than_one_axis():
    space = Box(-2, 2, (2, 3))
    assert ActionCodec.from_space(space).action_dim == 6
    action = decode(space, [[0, 0.1, 0.2, 0.3, 0.4, 0.5]] * 4)
    assert action.shape == (4, 2, 3)
    assert np.allclose(action[3], [[0, 0.2, 0.4], [0.6, 0.8, 1.0]])
    assert decode(Box(-2, 2, ()), [[0.5], [1]]).tolist() == [1.0, 2.0]


def test_whole_numbers_without_a_bound_and_flags():
    assert decode(Box(0, np.inf, (1,), np.int64), [[-1], [1]]).tolist() == [[0], [2]]
    assert decode(Box(-np.inf, np.inf, (1,), np.int64), [[-1], [0.4], [1]]).tolist() == [[-1], [0], [1]]
    flags = Box(0, 1, (3,), np.bool_)
    assert decode(flags, [[-0.9, 0.1, 1]]).tolist() == [[False, True, True]]


@pytest.mark.parametrize("start", [0, -1])
def test_the_dtype_of_a_discrete_space(start: int):
    space = Discrete(3, start=start, dtype=np.int32)
    actions = decode(space, [0, 1, 2])
    assert actions.tolist() == [start, start + 1, start + 2] and all(space.contains(action) for action in actions)


def test_discrete_start():
    assert decode(Discrete(3, start=-1), [0, 1, 2]).tolist() == [-1, 0, 1]
    assert ActionCodec.from_space(Discrete(3, start=-1)).action_dim == 3


@pytest.mark.parametrize(
    "space", [MultiDiscrete([[3, 4], [2, 5]]), MultiDiscrete([3, 2], start=[-1, 5]), MultiBinary((2, 2))]
)
def test_joint_index_meets_every_action_once(space: gym.Space):
    codec = ActionCodec.from_space(space)
    index = np.arange(codec.action_dim)
    actions = codec.decode(index)
    assert all(space.contains(action) for action in actions)
    assert len({action.tobytes() for action in actions}) == codec.action_dim
    assert (codec.encode(actions) == index).all()


def test_too_many_joint_actions_are_refused():
    with pytest.raises(ValueError, match="65536"):
        ActionCodec.from_space(MultiBinary(70))


def test_unknown_space_is_refused():
    with pytest.raises(ValueError, match="Text"):
        ActionCodec.from_space(gym.spaces.Text(3))


class OldSpace:
    """Attributes as in the old `gym` package."""

    shape: tuple[int, ...] = (2,)
    dtype = np.dtype(np.float32)
    low = np.float32([0, 0])
    high = np.float32([1, 4])
    n = 5
    nvec = np.array([2, 3])


def test_spaces_are_recognised_by_their_class_names():
    box = ActionCodec.from_space(type("Box", (OldSpace,), {})())
    assert box.decode(np.float32([[0, 1]])).tolist() == [[0.5, 4]]
    assert box.to_space() == Box(np.float32([0, 0]), np.float32([1, 4]))
    discrete = type("Discrete", (OldSpace,), {"shape": (), "dtype": np.dtype(np.int64)})()
    assert ActionCodec.from_space(discrete).to_space() == Discrete(5)
    multi = type("MultiDiscrete", (OldSpace,), {"dtype": np.dtype(np.int64)})()
    assert ActionCodec.from_space(multi).to_space() == MultiDiscrete([2, 3])


shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
finite = st.floats(-1e6, 1e6, width=32)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    """Any shape and dtype; bounds finite, half-open, open, or the same from both sides."""
    shape, dtype = draw(shapes), draw(st.sampled_from([np.float32, np.float64, np.int32, np.uint8]))
    size = int(np.prod(shape))
    ends = st.integers(0, 255) if np.dtype(dtype).kind in "iu" else finite
    pairs = [sorted(pair) for pair in draw(st.lists(st.tuples(ends, ends), min_size=size, max_size=size))]
    low, high = (np.array([pair[i] for pair in pairs], dtype).reshape(shape) for i in (0, 1))
    if np.dtype(dtype).kind == "f":
        opened = draw(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=size, max_size=size))
        is_low, is_high = (np.array([pair[i] for pair in opened], bool).reshape(shape) for i in (0, 1))
        low, high = np.where(is_low, -np.inf, low).astype(dtype), np.where(is_high, np.inf, high).astype(dtype)
    return Box(low, high, shape, dtype)


@st.composite
def choices(draw: st.DrawFn) -> gym.Space:
    kind = draw(st.sampled_from(["Discrete", "MultiDiscrete", "MultiBinary"]))
    if kind == "Discrete":
        return Discrete(draw(st.integers(1, 500)), start=draw(st.integers(-300, 300)))
    shape = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple))
    if kind == "MultiBinary":
        return MultiBinary(shape)
    size = int(np.prod(shape))
    nvec = draw(st.lists(st.integers(1, 6), min_size=size, max_size=size))
    start = draw(st.lists(st.integers(-5, 5), min_size=size, max_size=size))
    return MultiDiscrete(np.reshape(nvec, shape), start=np.reshape(start, shape))


@settings(deadline=None)
@given(boxes(), st.data())
def test_any_box(space: Box, data: st.DataObject):
    codec, size = ActionCodec.from_space(space), int(np.prod(space.shape))
    drawn = st.lists(st.floats(-3, 3, width=32), min_size=size, max_size=size)
    policys = np.float32([data.draw(drawn), [-1] * size, [1] * size])
    actions = codec.decode(policys)
    assert actions.shape == (3, *space.shape) and all(space.contains(np.asarray(action)) for action in actions)
    low, high = space.low.astype(float), space.high.astype(float)
    bounded = np.isfinite(low) & np.isfinite(high)
    for action, bound in ((actions[1], low), (actions[2], high)):
        assert (np.abs(action - bound)[bounded] <= 1e-6 * (high - low + np.abs(bound))[bounded]).all()
    tensors = codec.decode_tensor(torch.from_numpy(policys)).numpy()
    assert tensors.dtype == actions.dtype and tensors.shape == actions.shape
    assert all(space.contains(np.asarray(action)) for action in tensors)
    step = 1 if space.dtype.kind in "iu" else 0  # where rounding may go the other way
    assert np.allclose(tensors.astype(float), actions.astype(float), rtol=1e-5, atol=step + 1e-6)
    again = codec.decode(codec.encode(actions))
    assert np.allclose(again.astype(float), actions.astype(float), rtol=1e-5, atol=step + 1e-6 * np.abs(actions).max())
    if space.dtype == np.float64 and bounded.all() and (high - low > 1e-3 * (1 + np.abs(low + high))).all():
        assert np.allclose(codec.encode(actions), np.clip(policys, -1, 1), atol=1e-4)
    assert codec.to_space() == space


@settings(deadline=None)
@given(choices())
def test_any_choice(space: gym.Space):
    codec = ActionCodec.from_space(space)
    index = np.arange(codec.action_dim)
    actions = codec.decode(index)
    assert all(space.contains(action) for action in actions)
    assert len({action.tobytes() for action in actions}) == codec.action_dim
    assert (codec.encode(actions) == index).all()
    tensors = codec.decode_tensor(torch.from_numpy(index)).numpy()
    assert tensors.dtype == actions.dtype and (tensors == actions).all()


@pytest.mark.parametrize(
    "space", [Box(np.float32([-3, 0]), np.float32([1, np.inf])), Discrete(3, start=-1), MultiDiscrete([[3, 4], [2, 5]])]
)
def test_plain_data_survives_a_checkpoint(space: gym.Space):
    codec = ActionCodec.from_space(space)
    file = io.BytesIO()
    torch.save(codec.to_dict(), file)
    file.seek(0)
    loaded = ActionCodec.from_dict(torch.load(file, weights_only=True))
    action = np.arange(3) if codec.if_discrete else np.float32([[0.3, -0.4]])
    assert (loaded.decode(action) == codec.decode(action)).all()
    assert loaded.to_space() == space


def test_plain_codec_changes_nothing():
    assert ActionCodec.plain(2, if_discrete=False).decode(np.float32([[0.5, -0.5]])).tolist() == [[0.5, -0.5]]
    assert ActionCodec.plain(np.int64(4), if_discrete=True).decode(np.array([0, 3])).tolist() == [0, 3]
