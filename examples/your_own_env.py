"""Your own environment: four attributes, `reset` and `step`. It needs no base class and no registration. A minute.

Actions come in [-1, 1], or with `if_discrete = True` as an index. Gymnasium's spaces may stand for the attributes: with
`action_space = Box(0, 5, (2,))` actions come in those bounds.
"""

from __future__ import annotations

import numpy as np

from elegantrl import Config, load_agent, train_agent
from elegantrl.agents import AgentSAC
from elegantrl.envs import check_env
from quick import quick


class Docking:
    """A boat on a line brakes at the pier: state (position, speed), action thrust, drift by the current of the day."""

    state_dim, action_dim, if_discrete, max_step = 3, 1, False, 60

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)  # each environment owns its randomness
        self.position, self.speed = self.random.uniform(-2, 2), 0.0
        self.current = self.random.uniform(-0.3, 0.3)
        return self.state(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.speed += 0.1 * (float(action[0]) + self.current)
        self.position += 0.1 * self.speed
        reward = -abs(self.position) - 0.1 * abs(self.speed) - 0.01 * float(action[0]) ** 2
        crashed = abs(self.position) > 4  # terminal: it pays no more; the library adds the time limit, max_step
        return self.state(), reward - 50 * crashed, crashed, False, {}

    def state(self) -> np.ndarray:
        return np.array([self.position, self.speed, self.current], np.float32)


def main() -> None:
    check_env(Docking())  # an error that says what is wrong, before a run finds out
    args = Config(AgentSAC, Docking, break_step=10_000, eval_per_step=1_000, net_dims=(64, 64), learning_rate=1e-3)
    train_agent(quick(args), if_single_process=True)

    env, agent = Docking(), load_agent(args.cwd)
    (state, _), track = env.reset(seed=1), []
    for _ in range(env.max_step):
        state, *_ = env.step(agent.select_action(state))
        track.append(f"{env.position:.1f}")
    print("the boat's way to the pier at 0:", *track[::6])


if __name__ == "__main__":
    main()
