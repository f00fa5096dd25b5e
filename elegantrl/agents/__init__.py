"""The agents. `from elegantrl.agents import AgentPPO` gives the class, although a module bears the same name."""

from .AgentBase import AgentBase, AgentOffPolicy, AgentOnPolicy
from .AgentDQN import AgentD3QN, AgentDoubleDQN, AgentDQN, AgentDuelingDQN
from .AgentDDPG import AgentDDPG  # isort: skip
from .AgentTD3 import AgentTD3  # isort: skip
from .AgentSAC import AgentModSAC, AgentSAC
from .AgentPPO import AgentDiscretePPO, AgentPPO  # isort: skip
from .AgentA2C import AgentA2C, AgentDiscreteA2C  # isort: skip

__all__ = [
    "AgentBase",
    "AgentOffPolicy",
    "AgentOnPolicy",
    "AgentDQN",
    "AgentDoubleDQN",
    "AgentDuelingDQN",
    "AgentD3QN",
    "AgentDDPG",
    "AgentTD3",
    "AgentSAC",
    "AgentModSAC",
    "AgentPPO",
    "AgentA2C",
    "AgentDiscretePPO",
    "AgentDiscreteA2C",
]
