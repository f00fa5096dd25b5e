"""The agents. `from elegantrl.agents import AgentPPO` gives the class, although a module bears the same name."""

from .AgentA2C import AgentA2C, AgentDiscreteA2C
from .AgentBase import AgentBase, AgentOffPolicy, AgentOnPolicy
from .AgentDDPG import AgentDDPG
from .AgentDQN import (
    AgentD3QN,
    AgentDoubleDQN,
    AgentDQN,
    AgentDuelingDQN,
    AgentEmbedDQN,
    AgentEnsembleDQN,
)
from .AgentPPO import AgentDiscretePPO, AgentPPO
from .AgentREDQ import AgentREDQ
from .AgentSAC import AgentModSAC, AgentSAC
from .AgentTD3 import AgentTD3
from .MAgentMADDPG import AgentMADDPG
from .MAgentMAPPO import AgentMAPPO
from .MAgentMATD3 import AgentMATD3
from .MAgentQMix import AgentQMix
from .MAgentVDN import AgentVDN

__all__ = [
    "AgentBase",
    "AgentOffPolicy",
    "AgentOnPolicy",
    "AgentDQN",
    "AgentDoubleDQN",
    "AgentDuelingDQN",
    "AgentD3QN",
    "AgentEnsembleDQN",
    "AgentEmbedDQN",
    "AgentDDPG",
    "AgentTD3",
    "AgentSAC",
    "AgentModSAC",
    "AgentREDQ",
    "AgentPPO",
    "AgentA2C",
    "AgentDiscretePPO",
    "AgentDiscreteA2C",
    "AgentQMix",
    "AgentVDN",
    "AgentMADDPG",
    "AgentMATD3",
    "AgentMAPPO",
]
