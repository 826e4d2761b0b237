"""Acting by a risk measure, from Python and the command line, in a state where it disagrees with the mean."""

import json
import re

import numpy as np
import pytest
import torch

from monotau.agent import Agent
from monotau.cli import main
from monotau.distributions import Diracs, Risk
from monotau.errors import ConfigError
from monotau.learning.policy import Policy
from monotau.networks import Network
from tests.support.small_runs import SMALL

NARROW, WIDE = 0, 1
"""The two actions of TwoSpreads, whose returns are +-0.1 and +-2."""


def predict(network, observations, fractions, actions=None):
    """Make an agent predict the true returns of TwoSpreads, shifted so that the wide action has the higher mean."""
    values = torch.tensor([[-0.1, 0.1], [-2.0, 2.2]]).expand(len(observations), 2, 2)
    return Diracs(torch.tensor([0.25, 0.75]), values, torch.tensor([0.5, 0.5]))


@pytest.fixture
def agent(monkeypatch):
    monkeypatch.setattr(Network, "predict", predict)
    monkeypatch.setattr(Network, "predict_values", lambda *seen: predict(*seen).mean())
    settings = SMALL | {"evaluation": {"epsilon": 0.0}}
    return Agent("monotau/TwoSpreads-v0", "ndqfn", **settings)


CHOICES = [
    ({}, WIDE),
    ({"risk": "mean"}, WIDE),
    ({"risk": "cvar"}, NARROW),
    ({"risk": "cvar", "alpha": 0.5}, NARROW),
    ({"risk": "cvar", "alpha": 1.0}, WIDE),
    ({"risk": "upper-cvar"}, WIDE),
    ({"risk": "wang"}, NARROW),
    ({"risk": "wang", "eta": -0.01}, WIDE),
    ({"risk": "power"}, NARROW),
    ({"risk": "power", "eta": 1.0}, WIDE),
]
every_choice = pytest.mark.parametrize(("words", "choice"), CHOICES, ids=[str(words) for words, _ in CHOICES])


@every_choice
def test_the_risk_decides_what_is_predicted(words, choice, agent):
    assert agent.predict(0, **words)[0] == choice
    assert agent.predict(np.zeros(3, np.int64), **words)[0].tolist() == [choice] * 3


@every_choice
def test_the_risk_decides_what_is_played(words, choice, agent):
    returns = agent.evaluate(6, **words).returns
    assert np.abs(returns).tolist() == pytest.approx([[0.1, 2.0][choice]] * 6)


def test_predicting_with_one_risk_does_not_affect_later_predictions(agent):
    before = agent.networks.evaluation_policy.risk
    agent.predict(0, risk="cvar")
    agent.evaluate(1, risk="cvar")
    assert agent.networks.evaluation_policy.risk == before == Risk("mean")
    assert agent.predict(0)[0] == WIDE


def test_the_explorer_s_choice_takes_precedence_over_the_risk(agent):
    seen = np.zeros((4, 1), np.int64)
    averse = Risk("cvar")
    assert Policy(agent.networks.learner.online, 2, risk=averse).best(seen, None).tolist() == [NARROW] * 4
    assert (
        Policy(agent.networks.learner.online, 2, agent.networks.explorer, averse).best(seen, None).tolist()
        == [WIDE] * 4
    )


def test_exploring_by_a_risk_is_refused(agent):
    message = "risk is 'cvar', but with deterministic=False the explorer chooses the action: use one of the two."
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        agent.predict(0, deterministic=False, risk="cvar")
    assert agent.predict(0, deterministic=False, risk="mean")[0] in (NARROW, WIDE)


def test_an_unknown_risk_is_refused(agent):
    for use in (lambda **words: agent.predict(0, **words), lambda **words: agent.evaluate(1, **words)):
        with pytest.raises(ConfigError, match=r"^risk 'cvr' is unknown\. Did you mean 'cvar'"):
            use(risk="cvr")
        with pytest.raises(ConfigError, match=r"^risk 'mean' takes no parameter, but alpha is 0\.1: "):
            use(alpha=0.1)
        with pytest.raises(ConfigError, match=r"^risk 'cvar' takes alpha, but eta is -1\.0: "):
            use(risk="cvar", eta=-1.0)


@pytest.fixture
def call(agent, capsys, monkeypatch, tmp_path):
    """Call the program next to the saved agent; return exit code, standard output and standard error."""
    agent.save(tmp_path / "agent")
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = 0
        try:
            main(["evaluate", *words])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return call


PLAYED = [
    ([], {"risk": "mean"}, WIDE),
    (["--risk", "cvar"], {"risk": "cvar", "alpha": 0.1}, NARROW),
    (["--risk", "cvar", "--alpha", "0.25"], {"risk": "cvar", "alpha": 0.25}, NARROW),
    (["--risk=cvar", "--alpha=1"], {"risk": "cvar", "alpha": 1.0}, WIDE),
    (["--risk", "upper-cvar", "--alpha", "0.2"], {"risk": "upper-cvar", "alpha": 0.2}, WIDE),
    (["--risk", "wang"], {"risk": "wang", "eta": -0.75}, NARROW),
    (["--risk", "wang", "--eta", "-1e-3"], {"risk": "wang", "eta": -0.001}, WIDE),
    (["--risk", "power", "--eta", "-2"], {"risk": "power", "eta": -2.0}, NARROW),
]


@pytest.mark.parametrize(("words", "named", "choice"), PLAYED, ids=[" ".join(words) for words, _, _ in PLAYED])
def test_an_evaluation_names_the_risk_it_played_by(words, named, choice, call):
    code, out, err = call("agent", "--episodes", "6", *words)
    assert (code, err) == (0, "")
    line = json.loads(out)
    assert {name: line[name] for name in ("risk", "alpha", "eta") if name in line} == named
    assert max(-line["return_min"], line["return_max"]) == pytest.approx([0.1, 2.0][choice])


REFUSED = [
    (["--risk", "cvr"], "risk 'cvr' is unknown. Did you mean 'cvar'? Allowed: cvar, mean, power, upper-cvar, wang."),
    (["--risk", "cvar", "--alpha", "1.5"], "risk 'cvar' needs alpha in (0, 1], the share of worst returns to average"),
    (["--risk", "cvar", "--eta", "-1"], "risk 'cvar' takes alpha, but eta is -1.0: alpha belongs to cvar and"),
    (["--risk", "wang", "--alpha", "0.1"], "risk 'wang' takes eta, but alpha is 0.1: alpha belongs to cvar and"),
    (["--alpha", "0.1"], "risk 'mean' takes no parameter, but alpha is 0.1: alpha belongs to cvar and"),
    (["--risk", "power", "--eta", "nan"], "risk 'power' needs a finite eta, below 0 to avoid risk and above 0"),
    (
        ["--risk", "wang", "--eta", "low"],
        "error: --eta takes a number, not 'low'. See",
    ),
    (["--risk"], "Missing value for argument '--risk'. Expected 1 values."),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_an_invalid_risk_is_reported_in_one_line(words, message, call):
    """The error comes before the agent is loaded."""
    for directory in ("agent", "nowhere"):
        code, out, err = call(directory, *words)
        assert (code, out) == (2, "")
        assert re.fullmatch(r"error: [^\n]+\n", err), err
        assert message in err


def test_the_help_explains_the_risks(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    text = " ".join(re.sub(r"[─│╭╮╰╯]+|-{5,}", " ", out).split())
    assert "--risk {mean,cvar,upper-cvar,wang,power} Risk measure to maximise: mean, mean of the worst (cvar)" in text
    assert "Share of returns that --risk cvar or upper-cvar averages, in (0, 1]; by default 0.1." in text
    assert "negative avoids risk, positive seeks it; by default -0.75 and -2." in text
