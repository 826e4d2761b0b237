"""The page on extending is true: its head runs as it stands there."""

import re
from pathlib import Path

import pytest
import torch

import monotau
from monotau import Agent
from monotau.networks import HEADS
from tests.support.small_runs import SMALL

PAGE = Path(monotau.__file__).parents[2] / "docs" / "extending.md"


def test_the_head_in_the_documentation_is_complete_and_learns():
    example, use = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    names = {"__name__": "example"}
    exec(example, names)  # noqa: S102
    before = dict(HEADS)
    try:
        exec(use, names)  # noqa: S102
        assert HEADS["logistic"] is names["Logistic"]
        settings = SMALL | {"head": {"kind": "logistic", "hidden": 8}, "dueling": True, "noisy": True}
        agent = Agent("CartPole-v1", "ndqfn-dpe", **settings).learn(200)
    finally:
        HEADS.clear()
        HEADS.update(before)
    line = next(line for line in agent.history if line["loss"] is not None)
    assert line["crossing"] == 0
    curve = agent.quantiles([0.0, 0.1, 0.0, -0.1], torch.linspace(0, 1, 101))
    assert (curve.diff(dim=-1) >= 0).all()
    assert (curve[..., -1] > curve[..., 0]).all()
    assert "logistic" not in HEADS
    with pytest.raises(monotau.ConfigError, match=r"head.kind .logistic. is unknown"):
        Agent("CartPole-v1", "ndqfn", head={"kind": "logistic"})


def test_the_example_is_short():
    example = re.search(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)[1]
    body = [line for line in example.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(body) <= 30
