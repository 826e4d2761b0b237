"""The agents that runs have left, as far as they may be loaded and their environments made."""

import os

from monotau.agent import Agent
from monotau.envs import EnvConfig, EnvFactory
from monotau.errors import ConfigError
from monotau.report.reading import ReportedRun
from monotau.runs.agent_files import is_harmless
from monotau.runs.manifest import newest_agent


def may_be_made(run: ReportedRun) -> bool:
    """Whether a run's environment is one that may be made because a file names it."""
    return is_harmless(EnvConfig(id=run.settings.get("env.id", run.env), kwargs=run.settings.get("env.kwargs", {})))


def load_agent(run: ReportedRun) -> Agent:
    """Load a run's last agent, of an unfinished run that of its newest checkpoint, with its environment."""
    place = run.directory / "agent"
    damages: list[str] = []
    if not os.path.isdir(place):
        checkpoint, damages = newest_agent(run.directory)
        place = checkpoint or run.directory / "best_agent"
    if not os.path.isdir(place):
        raise ConfigError(
            f"there is no agent in {run.directory}: {damages[0] if damages else 'it has come to none yet.'}"
        )
    agent = Agent.load(place)
    if agent.config.env.title != run.env:
        raise ConfigError(f"the agent in {place} is for {agent.config.env.title}, but its run is of {run.env}.")
    if agent.envs is None:
        if is_harmless(agent.config.env):
            EnvFactory(agent.config.env)  # says which package is missing
        raise ConfigError(f"the environment {run.env} was not given by an id that may be made from a file.")
    return agent
