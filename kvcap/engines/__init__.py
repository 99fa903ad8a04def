"""What serving engines do: which rules each has, and what its policy keeps at a capacity.

:mod:`~kvcap.engines.rules` and :mod:`~kvcap.engines.presets` load nothing heavy;
:data:`~kvcap.engines.policies.POLICIES` is the one list of policies, each of which loads its kernel when
it is simulated. What is here takes arrays and knows no files. :mod:`~kvcap.engines.hybrid` and
:mod:`~kvcap.engines.sglang_hybrid` are the caches of models whose layers keep different things.
"""

from kvcap.engines.policies import POLICIES, Policy
from kvcap.engines.presets import ENGINES, Engine
from kvcap.engines.rules import Rules

__all__ = ["ENGINES", "POLICIES", "Engine", "Policy", "Rules"]
