"""The ring gives true pairs only, and prioritised sampling follows its formula."""

from __future__ import annotations

import pytest
import torch

from elegantrl.agents.functional import LinearSchedule
from elegantrl.train import replay_buffer as module
from elegantrl.train.replay_buffer import ReplayBuffer, ReplayBufferMP, SumTree, init_replay_buffer
from elegantrl.trajectory import Record, Trajectory
from unit_tests.tasks import Settings


def counted(start, horizon, num=1, action_dim=0, unmasks=None):
    """Rows whose state is their number, plus 1000 for each further sequence; action and reward are the number too."""
    x = torch.arange(start, start + horizon + 1).float()[:, None] + 1000 * torch.arange(num)
    flags = torch.ones(horizon, num, dtype=torch.bool)
    unmasks = flags if unmasks is None else unmasks
    flags = {"undones": flags, "unmasks": unmasks, "dones": ~flags}
    return Trajectory(x[..., None], actions=x[:-1].long(), rewards=x[:-1], **flags)


FLAGS = ("actions", "rewards", "undones", "unmasks", "dones")


def buffer_of(max_size, num=1, **how):
    return ReplayBuffer(max_size, 1, 2000, -1, num_seqs=num, if_discrete=True, **how)


def pairs(buffer, count=2000):
    batch = buffer.sample(count)
    assert torch.equal(batch.next.states, batch.states + 1)
    assert torch.equal(batch.states[:, 0], batch.rewards) and torch.equal(batch.actions, batch.rewards.long())
    return set(batch.rewards.int().tolist())


@pytest.mark.parametrize("if_use_per", [False, True])
@pytest.mark.parametrize("num", [1, 3])
def test_every_pair_is_true_across_the_seam(num, if_use_per):
    """10 rows a sequence in chunks of 4: all but the newest row are sampled, nothing else."""
    buffer = buffer_of(10 * num, num, if_use_per=if_use_per)
    for start in range(0, 24, 4):
        buffer.update(counted(start, 4, num))
        expected = {i + 1000 * k for k in range(num) for i in range(max(0, start + 4 - 10), start + 3)}
        assert pairs(buffer) == expected
        assert buffer.cur_size == min(start + 4, 10) and buffer.add_size == (start + 4) * num


@pytest.mark.parametrize("if_use_per", [False, True])
@pytest.mark.parametrize("horizon", [10, 25])
def test_a_long_trajectory_leaves_its_last_rows(horizon, if_use_per):
    buffer = buffer_of(10, if_use_per=if_use_per)
    for start in (0, horizon):
        buffer.update(counted(start, horizon))
        assert pairs(buffer) == set(range(start + horizon - 10, start + horizon - 1))


def test_sequences_have_heads_of_their_own():
    buffer = buffer_of(30, 3)
    buffer.update(counted(0, 4, 3))
    second = torch.tensor([1])
    part = counted(4, 9, 3)
    part = Trajectory(**{name: getattr(part, name)[:, 1:2] for name in ("states", *FLAGS)})
    buffer.update(part, columns=second)
    assert pairs(buffer) == {0, 1, 2, 2000, 2001, 2002, *range(1003, 1012)}
    assert buffer.cur_size == 4 and buffer.add_size == 12 + 9


def test_cut_masks_the_newest_row():
    buffer = buffer_of(20, 2, if_use_per=True)
    buffer.update(counted(0, 4, 2))
    buffer.cut(torch.tensor([1]))
    buffer.update(counted(50, 3, 2))
    batch = buffer.sample(500)
    assert 1003.0 not in batch.rewards  # PER has no leaf for it
    assert 3.0 in batch.rewards
    del buffer.draw  # then all have equal chances
    batch = buffer.sample(500)
    assert bool((batch.weight == (batch.rewards != 1003)).all()) and 1003.0 in batch.rewards


def test_what_a_batch_holds():
    buffer = ReplayBuffer(6, 2, 3, -1)
    flags = torch.tensor([True, False, True, True])[:, None]
    buffer.update((torch.randn(4, 1, 2), torch.ones(4, 1, 3), torch.ones(4, 1), flags, ~flags))
    batch = buffer.sample(100, gamma=0.5)
    assert batch.states.shape == (100, 2) and batch.actions.shape == (100, 3)
    second = batch.index == 1
    assert torch.equal(batch.undones, ~second) and torch.equal(batch.discount, 0.5 * ~second)
    assert torch.equal(batch.weight, second.float())


def test_indices_images_flags_and_masks_keep_their_types():
    args = Settings(state_dtype=torch.uint8)
    buffer = ReplayBuffer(8, (3, 4, 4), 400, -1, if_discrete=True, args=args)
    assert buffer.bytes_per_transition == 3 * 16 + 8 + 4 + 1 + 1
    first = Record(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1, 400, dtype=torch.bool))
    trajectory = Trajectory.allocate(5, first, 400, if_discrete=True)
    trajectory.states += torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1, 1) + 250
    trajectory.actions += 300
    trajectory.action_mask[:, :, 300] = torch.arange(6).view(6, 1) % 2 == 0
    trajectory.unmasks[:] = True
    buffer.update(trajectory)
    batch = buffer.sample(50)
    assert batch.states.dtype == torch.uint8 and bool(((batch.states >= 250) & (batch.states <= 253)).all())
    assert torch.equal(batch.next.states, batch.states + 1) and batch.actions.eq(300).all()
    even = batch.states[:, 0, 0, 0] % 2 == 0
    assert torch.equal(batch.action_mask[:, 300], even) and torch.equal(batch.next.action_mask[:, 300], ~even)
    assert batch.undones.dtype == torch.bool


def test_a_buffer_that_does_not_fit_is_refused_with_the_size_that_would(monkeypatch):
    monkeypatch.setattr(module, "available_memory", lambda device: 14_000)
    ReplayBuffer(900, 1, 1, -1)  # 14 bytes each
    with pytest.raises(MemoryError, match="set buffer_size to 900 or less"):
        ReplayBuffer(901, 1, 1, -1)
    assert module.available_memory(torch.device("cpu")) == 14_000


def test_a_million_stacked_atari_frames_say_what_they_need(monkeypatch):
    """Four frames of 84 x 84 bytes, an action (8), a reward (4), two flags: 28,238 bytes a transition, 26.3 GiB."""
    args = Settings(state_dtype=torch.uint8)
    monkeypatch.setattr(module, "available_memory", lambda device: 16 * 2**30)
    wanted = r"1,000,000 transitions takes 26\.3 GiB \(28,238 bytes each\), 16\.0 GiB are free.*547,555 or less"
    with pytest.raises(MemoryError, match=wanted):
        ReplayBuffer(10**6, (4, 84, 84), 6, -1, if_discrete=True, args=args)
    monkeypatch.setattr(ReplayBuffer, "allocate", lambda self, shape, dtype: torch.zeros(1, *shape, dtype=dtype))
    ReplayBuffer(547_555, (4, 84, 84), 6, -1, if_discrete=True, args=args)
    with pytest.raises(MemoryError):
        ReplayBuffer(547_556, (4, 84, 84), 6, -1, if_discrete=True, args=args)


def test_memory_is_known():
    assert module.available_memory(torch.device("cpu")) > 10**7


def test_small_buffers_say_what_they_need():
    with pytest.raises(ValueError, match="set buffer_size to 20"):
        ReplayBuffer(10, 1, 1, -1, num_seqs=10)
    with pytest.raises(ValueError, match="2 rows"):
        ReplayBuffer(10, 1, 1, -1).sample(1)


@pytest.mark.parametrize("if_use_per", [False, True])
def test_a_saved_buffer_samples_the_same(if_use_per):
    for rows in (6, 25):  # before and after the ring is full
        buffer, again = (buffer_of(20, 2, if_use_per=if_use_per) for _ in range(2))
        buffer.update(counted(0, rows, 2))
        again.update(counted(77, 3, 2))
        buffer.feedback(buffer.sample(8), torch.rand(8))
        again.load_state_dict(buffer.state_dict())
        batches = []
        for one in (buffer, again):
            torch.manual_seed(3)
            one.update(counted(rows, 5, 2))
            batches.append(one.sample(50))
        assert torch.equal(batches[0].rewards, batches[1].rewards) and torch.equal(batches[0].weight, batches[1].weight)


@pytest.mark.parametrize("rows", [6, 25])
def test_a_buffer_saved_without_priorities_gets_the_largest(rows):
    plain, buffer = buffer_of(20, 2), buffer_of(20, 2, if_use_per=True)
    plain.update(counted(0, rows, 2))
    plain.cut()
    plain.update(counted(rows, 3, 2))
    buffer.load_state_dict(plain.state_dict())
    newest = (buffer.head - 1) % 10 * 2 + torch.arange(2)
    expected = plain.columns["unmasks"].double()
    expected[newest] = 0.0
    assert torch.equal(buffer.tree.leaves[:20], expected) and buffer.tree.total == min(rows + 3, 10) * 2 - 4
    assert pairs(buffer) <= pairs(plain)


def test_a_buffer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="2 sequences of 10 rows, this one has 2 of 5"):
        buffer_of(10, 2).load_state_dict(buffer_of(20, 2).state_dict())


def test_older_doors():
    buffer = ReplayBufferMP(-1, 100, 3, 2, buffer_num=4, if_use_per=True)
    assert (buffer.rows, buffer.num_seqs) == (25, 4) and buffer.tree is not None
    args = {"buffer_size": 50, "state_dim": 3, "action_dim": 2, "num_envs": 5, "if_use_per": True, "if_discrete": False}
    buffer = init_replay_buffer(
        Settings(**args, state_dtype=torch.float32, per_alpha=0.9, per_beta=0.7, num_agents=0), -1
    )
    assert (buffer.rows, buffer.tree.alpha, buffer.tree.beta) == (10, 0.9, 0.7)


# --- several steps ---
def slow_look_ahead(buffer, index, gamma, n_step):
    """Reward sum, discount and the row after, walked step by step."""
    c, total, n = buffer.columns, buffer.rows * buffer.num_seqs, buffer.num_seqs
    newest = [int((buffer.head[k] - 1) % buffer.rows) * n + k for k in range(n)]
    reward, weight, row = 0.0, 1.0, index
    while True:
        reward, weight = reward + weight * float(c["rewards"][row]), weight * gamma
        after, undone = (row + n) % total, bool(c["undones"][row])
        n_step -= 1
        ends = not undone or not c["unmasks"][row] or not c["unmasks"][after] or after in newest
        if ends or n_step == 0:
            return reward, weight * undone, after
        row = after


@pytest.mark.parametrize("if_use_per", [False, True])
@pytest.mark.parametrize("n_step", [1, 2, 5, 50])
def test_n_step_returns_equal_a_slow_reference(n_step, if_use_per):
    """Three sequences with ends, time limits (the row after is masked), lone masked rows, and heads of their own."""
    buffer = buffer_of(36, 3, if_use_per=if_use_per)
    for start in range(0, 35, 7):
        rows = counted(start, 7, 3)
        rows.undones, rows.unmasks = torch.rand(7, 3) > 0.15, torch.rand(7, 3) > 0.15
        rows.rewards = torch.randn(7, 3)
        buffer.update(rows)
    part = counted(35, 5, 3)
    part = Trajectory(part.states[:, :1], **{k: getattr(part, k)[:, :1] for k in FLAGS})
    buffer.update(part, columns=torch.tensor([1]))
    buffer.cut(torch.tensor([2]))
    batch = buffer.sample(600, 0.9, n_step=n_step)
    assert len(batch.index.unique()) > 15 and len(batch.discount.unique()) > min(n_step, 5)
    for i, index in enumerate(batch.index.tolist()):
        reward, discount, after = slow_look_ahead(buffer, index, 0.9, n_step)
        assert float(batch.rewards[i]) == pytest.approx(reward, rel=1e-5, abs=1e-5)
        assert float(batch.discount[i]) == pytest.approx(discount, abs=1e-6)
        assert torch.equal(batch.next.states[i], buffer.columns["states"][after])
        assert bool(batch.undones[i]) == (discount > 0)


def test_n_step_returns_by_hand():
    """Rewards 0 1 2 3 4, row 2 ends, gamma 0.5. From 0: 0 + 0.5 + 0.5, no value; from 3: 3, as row 4 is the newest."""
    buffer, rows = buffer_of(10), counted(0, 5)
    rows.undones = torch.tensor([True, True, False, True, True])[:, None]
    buffer.update(rows)
    reward, undone, discount, after = buffer.look_ahead(torch.tensor([0, 1, 3]), 0.5, 3)
    assert reward.tolist() == [1.0, 2.0, 3.0] and discount.tolist() == [0.0, 0.0, 0.5]
    assert undone.tolist() == [False, False, True] and after.tolist() == [3, 3, 4]


# --- prioritised ---
@pytest.mark.parametrize("capacity", [8, 10, 1000, 10**6])
def test_the_root_is_the_sum_of_the_leaves(capacity):
    tree = SumTree(capacity, 0.6, 0.4, torch.device("cpu"))
    size = min(capacity, 5000)
    for _ in range(3):
        index = torch.randint(capacity, (size,))
        tree.update(index, torch.rand(size) * 10)
        leaves = tree.leaves
        assert tree.total.item() == pytest.approx(leaves.sum().item(), rel=1e-12)
        assert torch.equal(tree.sums, tree.blocks.sum(1))
    again = SumTree(capacity, 0.6, 0.4, torch.device("cpu"))
    again.load_state_dict(tree.state_dict())
    assert (
        torch.equal(again.leaves, tree.leaves)
        and torch.equal(again.sums, tree.sums)
        and again.max_priority == tree.max_priority
    )
    drawn, weight = tree.sample(1000)
    assert bool((leaves[drawn] > 0).all()) and weight.max() == 1.0


@pytest.mark.parametrize("num", [1, 3])
def test_sampling_follows_the_priorities(num):
    """After a wrap, with masked and newest rows: p^alpha by chi-square, weights (N P)^-beta over their maximum."""
    buffer = buffer_of(10 * num, num, if_use_per=True)
    unmasks = torch.ones(14, num, dtype=torch.bool)
    unmasks[7, 0] = False
    buffer.update(counted(0, 14, num, unmasks=unmasks))
    td = torch.arange(1.0, 10 * num + 1)
    every = buffer.sample(10 * num)
    every.index = torch.arange(10 * num)
    buffer.feedback(every, -td)
    expected = td**0.6
    batch = buffer.sample(40_000)
    never = ~buffer.columns["unmasks"]
    newest = buffer.columns["rewards"] % 1000 == 13
    expected[never | newest] = 0
    expected /= expected.sum()
    counts = batch.index.bincount(minlength=10 * num).double()
    assert bool((counts[expected == 0] == 0).all()) and int((expected == 0).sum()) == num + 1
    inside = expected > 0
    chi_square = ((counts - 40_000 * expected)[inside].square() / (40_000 * expected)[inside]).sum().item()
    freedom = int(inside.sum()) - 1
    assert chi_square < freedom + 4 * (2 * freedom) ** 0.5
    weights = (expected[batch.index] / expected[inside].min()) ** -0.4
    torch.testing.assert_close(batch.weight, weights.float(), rtol=1e-4, atol=1e-5)
    assert batch.weight.max() == 1


def test_new_rows_have_the_largest_priority_so_far():
    buffer = buffer_of(100, if_use_per=True)
    buffer.update(counted(0, 10))
    batch = buffer.sample(64)
    buffer.feedback(batch, torch.full((2, 64), 100.0))  # of an ensemble: the mean over its members
    buffer.update(counted(10, 10))
    leaves = buffer.tree.leaves
    assert leaves[9:19].tolist() == pytest.approx([100.0**0.6] * 10) and leaves[19] == 0


@pytest.mark.parametrize(
    "beta, expected", [(0.4, [0.4, 0.7, 1.0]), (LinearSchedule(0.5, 0.9, 0.5), [0.5, 0.9, 0.9])], ids=["number", "own"]
)
def test_beta_rises_over_the_run(beta, expected):
    args = Settings(state_dtype=torch.float32, per_alpha=1.0, per_beta=beta)
    buffer = buffer_of(10, if_use_per=True, args=args)
    buffer.update(counted(0, 3))
    every = buffer.sample(2)
    every.index = torch.tensor([0, 1])
    buffer.feedback(every, torch.tensor([1.0, 4.0]))
    assert buffer.tree.beta == expected[0]
    for progress, value in zip((0.0, 0.5, 1.0), expected, strict=True):
        buffer.anneal(progress)
        batch = buffer.sample(100)
        assert buffer.tree.beta == pytest.approx(value)
        assert batch.weight.min().item() == pytest.approx(4**-value, rel=1e-4)
    buffer_of(10).anneal(0.5)


def test_what_is_masked_or_newest_keeps_its_leaf_of_zero():
    buffer = buffer_of(10, if_use_per=True)
    unmasks = torch.tensor([True, False, True, True])[:, None]
    buffer.update(counted(0, 4, unmasks=unmasks))
    batch = buffer.sample(4)
    batch.index = torch.arange(4)
    buffer.feedback(batch, torch.ones(4))
    assert (buffer.tree.leaves[:4] > 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("size", [float("nan"), float("inf")])
def test_a_difference_that_is_not_finite_leaves_the_tree_whole(size):
    """So that the agent's own error comes, with its advice."""
    buffer = buffer_of(10, if_use_per=True)
    buffer.update(counted(0, 10))
    td = torch.ones(2, 8)
    td[1, 3] = size
    buffer.feedback(buffer.sample(8), td)
    assert bool(torch.isfinite(buffer.tree.total)) and bool(torch.isfinite(buffer.sample(8).weight).all())


@pytest.mark.parametrize("rest", [0.0, 1.0])
def test_rounding_never_ends_in_a_leaf_of_zero(rest, monkeypatch):
    """At either end of a stratum, with priorities of all sizes and most leaves 0."""
    tree = SumTree(9000, 1.0, 1.0, torch.device("cpu"))
    index = torch.randperm(9000)[:50]
    tree.update(index, 10 ** (torch.rand(50) * 12 - 6))
    monkeypatch.setattr(torch, "rand", lambda *size, **how: torch.full(size, rest, dtype=torch.float64))
    assert bool((tree.leaves[tree.sample(512)[0]] > 0).all())


def test_a_repeated_index_keeps_the_sums_right():
    tree = SumTree(4, 1.0, 1.0, torch.device("cpu"))
    tree.update(torch.tensor([1, 1, 2]), torch.tensor([3.0, 5.0, 2.0]))
    assert tree.total == tree.leaves.sum() and tree.leaves[1] in (3.0, 5.0)


def test_feedback_without_priorities_does_nothing():
    buffer = buffer_of(10)
    buffer.update(counted(0, 5))
    buffer.feedback(buffer.sample(4), torch.ones(4))


@pytest.mark.parametrize("draw_bytes", [1, 2**20])
def test_batches_are_samples_however_many_are_drawn_together(monkeypatch, draw_bytes):
    monkeypatch.setattr(module, "DRAW_BYTES", draw_bytes)
    buffer = ReplayBuffer(50, 1, 1, -1)
    states = torch.arange(41.0).view(41, 1, 1)
    trajectory = Trajectory.allocate(40, Record(states[0]), 1, if_discrete=False)
    trajectory.states[:] = states
    trajectory.unmasks[:] = True
    buffer.update(trajectory)
    batches = list(buffer.batches(7, 16, gamma=0.5))
    assert len(batches) == 7 and all(len(batch.weight) == 16 for batch in batches)
    assert len({tuple(batch.index.tolist()) for batch in batches}) == 7
    for batch in batches:
        assert torch.equal(batch.next.states, batch.states + 1)
        assert torch.equal(batch.states[:, 0], batch.index.float())
