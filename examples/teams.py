"""Teams: agents that are paid together. VDN and QMIX on a game that only one of them wins, MADDPG and MAPPO on a line.

A team's environment adds an axis of M agents: state (N, M, S), action (N, M, ...), reward (N,) of the team or (N, M);
`TeamEnv` is the base for your own. A minute; --quick: seconds.
"""

from __future__ import annotations

from elegantrl import Config, train_agent
from elegantrl.agents import AgentMADDPG, AgentMAPPO, AgentQMix, AgentVDN
from elegantrl.envs.teams import Rendezvous, TwoStepGame
from quick import quick


def two_step_game() -> None:
    """The best plan pays 8, a safe one 7: two values that are added (VDN) cannot tell them apart, QMIX's mixer can."""
    for agent_class in (AgentVDN, AgentQMix):
        args = Config(agent_class, TwoStepGame, num_envs=16, break_step=20_000, eval_per_step=4_000)
        args.net_dims, args.learning_rate, args.gamma, args.utd = (64,), 1e-3, 0.99, 0.1
        args.explore_rate = 1.0  # all plans are tried; what is evaluated is the greedy one
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: {run.evaluator.records.rows[-1]['avgR']:.1f} of 8")


def rendezvous() -> None:
    """Three agents on a line are to meet."""
    for agent_class in (AgentMADDPG, AgentMAPPO):
        args = Config(agent_class, Rendezvous, num_envs=32, break_step=60_000, eval_per_step=10_000)
        args.net_dims, args.learning_rate, args.gamma, args.horizon_len = (64, 64), 1e-3, 0.9, 20
        if agent_class is AgentMADDPG:
            args.utd = 0.05
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: {run.evaluator.records.rows[-1]['avgR']:.2f}, above -2 they meet")


def main() -> None:
    two_step_game()
    rendezvous()


if __name__ == "__main__":
    main()
