"""The ids of our own environments, and their registration with Gymnasium.

`import monotau` registers them, so this module does not import the environments themselves.
"""

import gymnasium as gym

OWN: dict[str, tuple[str, str]] = {  # a new environment: one class, one line here
    "monotau/DeepSea-v0": (
        "deep_sea:DeepSea",
        "deep exploration: one of 2^size sequences pays (size, stochastic, mapping_seed)",
    ),
    "monotau/Inventory-v0": (
        "inventory:Inventory",
        "order stock under demand, returns of thousands (reward_scale)",
    ),
    "monotau/Coin-v0": ("probes:Coin", "probe: one toss, +1 or -1"),
    "monotau/TwoStepCoin-v0": ("probes:TwoStepCoin", "probe: two tosses in a row"),
    "monotau/TwoShapes-v0": ("probes:TwoShapes", "probe: two actions whose returns are normal and exponential"),
    "monotau/TwoSpreads-v0": ("probes:TwoSpreads", "probe: two actions with the same mean and different spreads"),
    "monotau/LargeReturns-v0": ("returns:LargeReturns", "probe: normal and exponential returns around 2400"),
    "monotau/NegativeReturns-v0": ("returns:NegativeReturns", "probe: normal and exponential returns around -2400"),
    "monotau/HeavyTail-v0": ("returns:HeavyTail", "probe: heavy-tailed returns, Student's t and Pareto"),
    "monotau/LongChain-v0": ("returns:LongChain", "probe: 50 normal rewards in a row"),
    "monotau/TimeLimit-v0": ("probes:TimeLimit", "probe: reward 1 in every step, truncated after 10 steps"),
    "monotau/Chain-v0": ("probes:Chain", "probe: a reward at the right end of a chain of states (length)"),
    "monotau/Gate-v0": ("probes:Gate", "probe: two rooms, one of which allows a single action"),
    "monotau/Grid-v0": ("probes:Grid", "probe: a grid without rewards, to count visits (size, horizon)"),
}


def register_own() -> None:
    """Register our ids with Gymnasium; calling it again has no effect."""
    for env_id, (place, _) in OWN.items():
        if env_id not in gym.registry:
            gym.register(id=env_id, entry_point=f"monotau.envs.{place}")
