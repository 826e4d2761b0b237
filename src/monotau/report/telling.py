"""The state of an evaluation that tells most of what an agent has learned."""

import math
from pathlib import Path

import torch

from monotau.agent import Agent
from monotau.learning.evaluate import Evaluation
from monotau.report.figures import draw_quantile_functions


def draw_most_telling_state(agent: Agent, evaluation: Evaluation, title: str, path: Path) -> None:
    """Draw the distributions in that state of the evaluation in which the actions' means differ most."""
    network = agent.networks.evaluated
    taus = torch.linspace(0.001, 0.999, 500, device=agent.networks.device)
    telling, most = None, -math.inf
    for state in evaluation.states:  # one by one: with thousands of actions, all at once are gigabytes
        curves = network.quantiles(torch.from_numpy(state[None]).to(agent.networks.device), taus)[0] * agent.unit  # A M
        means = curves.mean(dim=-1)
        difference = (means.max() - means.min()).item()
        if telling is None or difference > most:
            telling, most = curves, difference
    assert telling is not None  # noqa: S101  # an evaluation has visited a state
    draw_quantile_functions(
        taus.cpu().numpy(),
        telling.cpu().numpy(),
        telling.mean(dim=-1).cpu().numpy(),
        f"{title}\nthe state, of {len(evaluation.states)} visited, in which the actions differ most",
        path,
    )
