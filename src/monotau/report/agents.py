"""Loads the agents of runs for the sections that look at what was learned."""

import os

from monotau.agent import Agent
from monotau.envs import EnvConfig, EnvFactory
from monotau.errors import ConfigError
from monotau.results.read import RunRecord
from monotau.runs.agent_files import is_safe_to_make
from monotau.runs.layout import AGENT, BEST_AGENT
from monotau.runs.manifest import newest_agent


def may_create_env(run: RunRecord) -> bool:
    """Whether the environment of a run can be created without importing code that a file names."""
    return is_safe_to_make(EnvConfig(id=run.settings.get("env.id", run.env), kwargs=run.settings.get("env.kwargs", {})))


def load_agent(run: RunRecord) -> Agent:
    """Load the final agent of a run, or that of its newest checkpoint, together with its environment."""
    place = run.directory / AGENT
    damages: list[str] = []
    if not os.path.isdir(place):
        checkpoint, damages = newest_agent(run.directory)
        place = checkpoint or run.directory / BEST_AGENT
    if not os.path.isdir(place):
        raise ConfigError(f"{run.directory} contains no agent: {damages[0] if damages else 'none was saved yet.'}")
    agent = Agent.load(place)
    if agent.config.env.title != run.env:
        raise ConfigError(f"the agent in {place} was trained on {agent.config.env.title}, but its run on {run.env}.")
    if agent.envs is None:
        if is_safe_to_make(agent.config.env):
            EnvFactory(agent.config.env)  # raises an error that names the missing package
        raise ConfigError(f"the id of the environment {run.env} imports a module: name it with --import.")
    return agent
