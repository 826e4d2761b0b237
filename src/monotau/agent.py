"""The Python API: `Agent`, which learns to act in one environment, and the `Progress` that hooks receive."""

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.config.imports import import_parts
from monotau.config.plain import to_plain
from monotau.config.presets import DEFAULT_PRESET
from monotau.config.resolve import Resolved, resolve
from monotau.config.schema import KINDS, LOCAL, Config
from monotau.distributions import MEAN, Distribution, Risk
from monotau.envs.make import EnvFactory, EnvSource
from monotau.envs.masks import as_masks
from monotau.envs.stacking import stack_frames
from monotau.errors import ConfigError, EnvironmentFault, StorageFault, brief
from monotau.learning.agent_networks import AgentNetworks, compiles
from monotau.learning.collector import Collector, LocalCollector
from monotau.learning.evaluate import Evaluation, evaluate
from monotau.learning.hooks import asks_to_stop, call_hook, hook_errors_unchanged
from monotau.learning.policy import Policy
from monotau.learning.train import Training
from monotau.networks.devices import one_thread, torch_threads
from monotau.runs.agent_files import EnvSignature, is_safe_to_make, open_agent, write_agent
from monotau.runs.files import to_path
from monotau.runs.memory import plan_memory
from monotau.runs.metrics import Line, Log, best_evaluation
from monotau.runs.progress import Display, console_for
from monotau.seeding import numpy_stream, stream_seed, torch_stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a training after an evaluation, which the hook `on_evaluation` receives.

    Examples:
        >>> from monotau import Agent
        >>> def enough(progress):
        ...     return progress.return_mean >= 5 or progress.step - progress.best_step >= 10_000
        >>> agent = Agent("CartPole-v1", "dqn", steps=200, iteration_steps=50, evaluation={"episodes": 2})
        >>> agent.learn(200, on_evaluation=enough).steps
        50
    """

    step: int
    """Steps so far."""
    steps: int
    """The step at which the training ends."""
    return_mean: float
    """Mean return of this evaluation."""
    return_std: float
    """Standard deviation of the returns of this evaluation."""
    best_return: float
    """Highest mean return of all evaluations so far, this one included."""
    best_step: int
    """The step of that evaluation, the first of several."""
    evaluations: Sequence[Line]
    """The lines of all evaluations so far, as in metrics.jsonl; the last one is this one."""
    seconds: float
    """Duration so far: of this call of `learn`, or of all starts of a run that was resumed."""
    agent: "Agent"
    """The agent in training. It may be evaluated, asked for predictions and saved."""
    directory: Path | None
    """The run directory; None for `Agent.learn`."""

    @classmethod
    def of(cls, agent: "Agent", steps: int, seconds: float, directory: Path | None) -> "Progress":
        """Return the state of an agent that has just been evaluated."""
        lines = [dict(line) for line in agent.history if line.get("policy") == "greedy"]
        best = best_evaluation(lines)
        return cls(
            step=agent.steps,
            steps=steps,
            return_mean=lines[-1]["return_mean"],
            return_std=lines[-1]["return_std"],
            best_return=best["return_mean"],
            best_step=best["step"],
            evaluations=lines,
            seconds=seconds,
            agent=agent,
            directory=directory,
        )


OnEvaluation = Callable[[Progress], bool | np.bool_ | None]
"""Called after each evaluation; True stops the training."""
OnLog = Callable[[Line], object]
"""Called with each new log line."""


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The user's functions that a training calls; they see it and may end it, but do not change what is learned."""

    on_evaluation: OnEvaluation | None = None
    on_log: OnLog | None = None

    def __post_init__(self) -> None:
        for name, hook in vars(self).items():
            if not (hook is None or callable(hook)):
                raise ConfigError(f"{name} is {brief(hook)}, but must be a function.")

    def stops(self, agent: "Agent", steps: int, seconds: float, directory: Path | None = None) -> bool:
        """Whether `on_evaluation` ends the training of an agent that has just been evaluated."""
        if self.on_evaluation is None:
            return False
        return asks_to_stop(call_hook(self.on_evaluation, Progress.of(agent, steps, seconds, directory)))


class Agent:
    """An agent for one Gymnasium environment with discrete actions.

    It learns a return distribution for every action, acts on those distributions, and shows them. All numbers it
    returns are in raw rewards.

    Args:
        env: A Gymnasium id, an environment, or a callable that makes a new environment at each call.
        preset: The algorithm; `monotau list presets` prints them all.
        seed: Seed of every random number the agent draws.
        profile: Settings for a kind of environment: `classic`, `minatar`, `atari` or `atari-fast`. By default the
            observation space decides.
        env_settings: Settings of the section `env`, for example `{"num_envs": 4}`.
        verbose: Show progress while learning, on standard error. By default it is shown in terminals and notebooks.
        **overrides: Any other setting by name, with sections as dictionaries:
            `Agent("CartPole-v1", n_step=1, head={"increment": "softplus"})`. The name of a part alone is enough:
            `Agent("CartPole-v1", head="qr", replay="uniform")`.

    Raises:
        ConfigError: A name or a value is not allowed; the message lists what is.

    Examples:
        >>> from monotau import Agent
        >>> agent = Agent("CartPole-v1", preset="ndqfn-dpe", seed=0)
        >>> agent.actions, agent.config.profile
        (2, 'classic')
        >>> agent.learn(100).steps
        100
    """

    def __init__(
        self,
        env: str | EnvSource,
        preset: str = DEFAULT_PRESET,
        seed: int = 0,
        *,
        profile: str | None = None,
        env_settings: Mapping[str, Any] | None = None,
        verbose: bool | None = None,
        **overrides: Any,
    ) -> None:
        section = dict(env_settings or {})
        resolved = resolve_for(env, preset, overrides | {"seed": seed, "env": section}, profile)
        self._start(resolved.config, resolved.envs, EnvSignature.of(resolved.envs), verbose)
        self._unplanned: Resolved | None = None if "steps" in resolved.given else resolved

    @classmethod
    def of(cls, resolved: Resolved) -> "Agent":
        """Make an agent from resolved settings.

        Args:
            resolved: Settings and environment, as `monotau.config.resolve.resolve` returns them.

        Returns:
            An agent that has learned nothing yet.

        Examples:
            >>> from monotau import Agent
            >>> from monotau.config.resolve import resolve
            >>> Agent.of(resolve("dqn", {"env": {"id": "CartPole-v1"}})).config.preset
            'dqn'
        """
        agent = cls.__new__(cls)
        agent._start(resolved.config, resolved.envs, EnvSignature.of(resolved.envs))
        return agent

    def _start(
        self, config: Config, envs: EnvFactory | None, signature: EnvSignature, verbose: bool | None = None
    ) -> None:
        self.config, self.envs, self._signature = config, envs, signature
        self.spec, self.actions = signature.observation, signature.actions
        self.networks = AgentNetworks(config, self.spec, self.actions)
        self._training: Training | None = None
        self._unplanned = None  # set if the user left the length of training open
        self._acting = numpy_stream(config.seed, "predict"), torch_stream(config.seed, "predict")
        self.verbose = verbose

    def __repr__(self) -> str:
        name, config = self.config.env.id if self.envs is None else self.envs.name, self.config
        learned = f" after {self.steps:,d} steps" if self._training else ""
        return f"Agent({name!r}, {config.preset!r}, seed={config.seed}){learned}"

    @property
    def history(self) -> list[Line]:
        """The metrics logged so far, one dictionary for each line that a run writes to metrics.jsonl.

        Returns:
            A list of lines; empty before `learn`.

        Examples:
            >>> from monotau import Agent
            >>> agent = Agent("CartPole-v1", "dqn", steps=100, log_every_steps=50).learn(100)
            >>> [(line["kind"], line["step"]) for line in agent.history]
            [('train', 50), ('train', 100)]
        """
        return self._training.log.lines if self._training else []

    @property
    def steps(self) -> int:
        """The number of environment steps collected by `learn` so far.

        Examples:
            >>> from monotau import Agent
            >>> agent = Agent("CartPole-v1", "dqn").learn(50)
            >>> agent.learn(50).steps
            100
        """
        return self._training.step if self._training else 0

    @property
    def unit(self) -> float:
        """The raw reward that a network output of 1 stands for.

        The agent measures it from the returns it meets, unless `return_scale` sets it. Every number that this class
        returns is already in raw rewards.

        Examples:
            >>> from monotau import Agent
            >>> Agent("CartPole-v1", "dqn", return_scale=5.0).unit
            5.0
        """
        return self.networks.unit.value

    @hook_errors_unchanged
    def learn(
        self,
        total_steps: int | float | np.integer,
        *,
        evaluated: bool = False,
        force: bool = False,
        ray: str = LOCAL,
        on_evaluation: OnEvaluation | None = None,
        on_log: OnLog | None = None,
    ) -> "Agent":
        """Train for `total_steps` more environment steps.

        Warm-up, epsilon and the learning rate are scheduled for the setting `steps`. If it was not given, the first
        call schedules them for its own `total_steps`; to train in several calls, pass the sum to `Agent`, as in
        `Agent(env, steps=20_000)`.

        Args:
            total_steps: Steps to train for; a multiple of `env.num_envs`.
            evaluated: Evaluate after iterations, as `monotau train` does, and add the results to `history`.
            force: Train even if the run seems to need more RAM than is available.
            ray: Where the processes of `actors` run: `local`, `auto` or `host:port`.
            on_evaluation: Called with a `Progress` after each evaluation, and turns `evaluated` on. It returns True to
                end the training here, and False or None to go on.
            on_log: Called with each new line of `history`, a dictionary.

        Returns:
            The agent itself.

        Raises:
            ConfigError: `total_steps` or the answer of `on_evaluation` is not allowed, or the run needs more RAM than
                is available. What a hook raises passes unchanged.
            EnvironmentFault: The environment raised an exception or returned invalid data.
            Divergence: A loss, gradient or weight became NaN or infinite.

        Examples:
            >>> from monotau import Agent
            >>> agent = Agent("CartPole-v1", "dqn", steps=100, evaluation={"episodes": 2})
            >>> agent.learn(100, evaluated=True).steps
            100
            >>> [line["kind"] for line in agent.history]
            ['eval']
        """
        lanes = self.config.env.num_envs
        if isinstance(total_steps, float) and total_steps.is_integer():  # 1e5 is a common way to write 100,000
            total_steps = int(total_steps)
        if not isinstance(total_steps, int | np.integer) or total_steps < 1 or total_steps % lanes:
            raise ConfigError(
                f"total_steps is {brief(total_steps)}, but must be a positive multiple of env.num_envs ({lanes})."
            )
        total_steps, hooks = int(total_steps), Hooks(on_evaluation=on_evaluation, on_log=on_log)
        if self._training is None:
            if self._unplanned is not None:
                self.config = self._unplanned.override({"steps": total_steps}).config
                self.networks.compiler.on = compiles(self.config, self.networks.device)
            display = Display(console_for(self.verbose))
            plan_memory(Resolved(self.config, self.env_factory()), display.say, force=force, ray=ray)
            self.start_training(Log(), display, ray)
        assert self._training is not None  # noqa: S101  # for the type checker
        training, goal, start = self._training, self._training.step + total_steps, time.perf_counter()
        training.log.on_line, evaluated = on_log, evaluated or on_evaluation is not None
        with training.session(goal):
            while training.iterate(goal):
                if evaluated and training.evaluation_due(goal):
                    training.evaluate()
                    if hooks.stops(self, goal, time.perf_counter() - start):
                        break
        return self

    def start_training(self, log: Log, display: Display, ray: str = LOCAL) -> Training:
        """Start a training of this agent's networks at step 0.

        `learn` and `monotau train` call this; use it to drive the training loop yourself. `steps`, `history` and a
        later `learn` refer to this training.

        Args:
            log: Receives the metrics.
            display: Receives messages and progress.
            ray: Where the processes of `actors` run.

        Returns:
            A training that has collected no steps yet.

        Examples:
            >>> from monotau import Agent
            >>> from monotau.runs.metrics import Log
            >>> from monotau.runs.progress import Display
            >>> training = Agent("CartPole-v1", "dqn").start_training(Log(), Display(None))
            >>> training.step, training.updates
            (0, 0)
        """
        envs = self.env_factory()
        if self.config.actors:
            from monotau.distributed.collector import RayCollector  # not needed without actors

            collector: Collector = RayCollector(self.config, envs, self.networks, display.say, ray)
        else:
            collector = LocalCollector(self.config, envs, self.networks)
        self._training = Training(self.config, envs, self.networks, collector, log, display)
        return self._training

    def evaluate(
        self,
        episodes: int = 20,
        on_episode: Callable[[int], None] = lambda done: None,
        *,
        risk: str = "mean",
        alpha: float | None = None,
        eta: float | None = None,
    ) -> Evaluation:
        """Play whole episodes greedily, with the settings of `config.evaluation`.

        Args:
            episodes: Episodes to play.
            on_episode: Called after each episode with the number of episodes finished.
            risk: Risk measure to act on, as in `predict`.
            alpha: Parameter of `cvar` and `upper-cvar`.
            eta: Parameter of `wang` and `power`.

        Returns:
            Returns and lengths of the episodes, and some of the states visited.

        Examples:
            >>> from monotau import Agent
            >>> played = Agent("CartPole-v1", "dqn").evaluate(episodes=3)
            >>> len(played.returns), played.line()["episodes"]
            (3, 3)
        """
        config, policy, (rng, generator) = self.config, self._greedy(Risk(risk, alpha, eta)), self._acting
        settings = to_plain(config.evaluation, KINDS) | {"episodes": episodes, "steps": 0}
        with torch_threads(config.threads):
            return evaluate(
                self.env_factory(),
                lambda seen, masks: policy.act(seen, config.evaluation.epsilon, rng, generator, masks),
                type(config.evaluation)(**settings),
                stack=config.env.frame_stack,
                seed=stream_seed(int(rng.integers(2**62)), "evaluation environments"),
                on_episode=lambda done, _: on_episode(done),
            )

    @one_thread()
    def predict(
        self,
        observation: Any,
        state: Shaped[np.ndarray, "..."] | None = None,
        episode_start: Any = None,
        deterministic: bool = True,
        *,
        risk: str = "mean",
        alpha: float | None = None,
        eta: float | None = None,
        action_mask: Any = None,
    ) -> tuple[Any, Shaped[np.ndarray, "..."] | None]:
        """Choose an action for one observation, or one for each observation of a batch.

        The signature is that of Stable-Baselines3.

        Args:
            observation: One observation or a batch of them, as single frames or as whole stacks. A batch of Dict or
                Tuple observations is one Dict or Tuple of arrays with a batch axis each.
            state: The frame stack that the previous call returned, if frames are stacked and single frames are given.
            episode_start: True where an episode begins; empties the frame stack.
            deterministic: Act greedily. If False, act as in training, with the exploration bonus and the final epsilon.
            risk: The risk measure of the return to maximise; `monotau.distributions.RISKS` lists them. `cvar` avoids
                risk and `upper-cvar` seeks it; `wang` and `power` do either, by the sign of `eta`.
            alpha: Share of the returns that `cvar` and `upper-cvar` average.
            eta: Strength of `wang` and `power`: negative avoids risk, positive seeks it.
            action_mask: The allowed actions: one value for each action, true or 1 if it is allowed, and for a batch one
                such row for each observation. Without it all actions are allowed.

        Returns:
            The action or actions, and the frame stack to pass as `state` next time (None unless frames are stacked).
            The risk measure applies to this action only: the learned returns assume greedy actions afterwards.

        Examples:
            >>> from monotau import Agent
            >>> agent = Agent("CartPole-v1")
            >>> action, state = agent.predict([0.0, 0.1, 0.0, -0.1], risk="cvar", alpha=0.1)
            >>> int(action) in (0, 1), state
            (True, None)
            >>> actions, _ = agent.predict([[0.0, 0.1, 0.0, -0.1], [0.0, 0.0, 0.1, 0.0]])
            >>> actions.shape
            (2,)
            >>> int(agent.predict([0.0, 0.1, 0.0, -0.1], action_mask=[False, True])[0])
            1
        """
        measure = Risk(risk, alpha, eta)
        stacks, single, state = self._stacks(observation, state, episode_start)
        masks = None if action_mask is None else self._masks(action_mask, () if single else (len(stacks),))
        if deterministic:
            actions = self._greedy(measure).best(stacks, None, masks)
        elif measure != MEAN:
            raise ConfigError(
                f"risk is {risk!r}, but with deterministic=False the explorer chooses the action: use one of the two."
            )
        else:
            actions = self.networks.exploration_policy.act(stacks, self.config.epsilon.end, *self._acting, masks)
        actions = self._signature.native(actions)
        return (actions[0] if single else actions), state

    def distribution(self, observation: Any) -> Distribution:
        """Predict the return distribution of every action.

        Args:
            observation: One observation or a batch of them.

        Returns:
            Distributions `[A]` for one observation and `[B, A]` for a batch.

        Examples:
            >>> from monotau import Agent
            >>> returns = Agent("CartPole-v1").distribution([0.0, 0.1, 0.0, -0.1])
            >>> returns.mean().shape, returns.crossing().tolist()
            (torch.Size([2]), [0.0, 0.0])
            >>> bool((returns.cvar(0.1) <= returns.mean()).all())
            True
        """
        stacks, single, _ = self._stacks(observation)
        view = self.networks.returns(stacks)
        return view.map(lambda tensor: tensor[0]) if single else view

    def quantiles(self, observation: Any, taus: Any) -> Float[Tensor, "..."]:
        """Predict quantiles of the return of every action.

        Args:
            observation: One observation or a batch of them.
            taus: Quantile fractions, from 0 to 1.

        Returns:
            Quantiles `[A, M]` for one observation and `[B, A, M]` for a batch, M the number of fractions.

        Examples:
            >>> from monotau import Agent
            >>> quantiles = Agent("CartPole-v1").quantiles([0.0, 0.1, 0.0, -0.1], [0.05, 0.5, 0.95])
            >>> quantiles.shape, bool((quantiles.diff(dim=-1) >= 0).all())
            (torch.Size([2, 3]), True)
        """
        stacks, single, _ = self._stacks(observation)
        try:
            fractions = torch.as_tensor(taus, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError):  # no numbers
            fractions = torch.tensor(math.nan)
        if fractions.ndim != 1 or not ((fractions >= 0) & (fractions <= 1)).all():
            raise ConfigError(f"taus is {brief(taus)}, but must be a list of fractions from 0 to 1.")
        values = self.networks.quantiles(stacks, fractions)
        return values[0] if single else values

    def plot_distribution(
        self,
        observation: Any,
        ax: "Axes | None" = None,
        *,
        risk: str = "mean",
        alpha: float | None = None,
        eta: float | None = None,
    ) -> "Axes":
        """Plot the quantile functions of the return of every action, their means, and which action is chosen.

        Args:
            observation: One observation.
            ax: Where to plot; by default the axes of a new figure, which `.figure.savefig(path)` saves.
            risk: The risk measure by which the action is chosen, as in `predict`.
            alpha: Parameter of `cvar` and `upper-cvar`.
            eta: Parameter of `wang` and `power`.

        Returns:
            The axes.

        Examples:
            >>> from monotau import Agent
            >>> ax = Agent("CartPole-v1").plot_distribution([0.0, 0.1, 0.0, -0.1], risk="cvar", alpha=0.1)
            >>> len(ax.get_legend().get_texts())
            2
        """
        from monotau.report.plotting import new_figure  # matplotlib takes a second to import
        from monotau.report.quantile_plots import add_action_legend, plot_quantile_functions

        returns, taus = self.distribution(observation), torch.linspace(0.001, 0.999, 500)
        if len(returns.batch_shape) != 1:
            raise ConfigError(
                f"observation is a batch of {returns.batch_shape[0]}, but must be a single one to plot it."
            )
        ax = new_figure(7.0, 4.2)[1][0] if ax is None else ax
        plot_quantile_functions(
            ax,
            taus.numpy(),
            self.quantiles(observation, taus).cpu().numpy(),
            range(self.actions),
            means=returns.mean().cpu().numpy(),
            chosen=int(Risk(risk, alpha, eta).of(returns).argmax()),
            action_start=self._signature.action_start,
        )
        add_action_legend(ax, self.actions)
        return ax

    def bonus(self, observation: Any) -> Float[Tensor, "..."]:
        """Compute the exploration bonus of every action, before it is multiplied by its weight `explorer.c`.

        Args:
            observation: One observation or a batch of them.

        Returns:
            Bonuses `[A]` for one observation and `[B, A]` for a batch.

        Raises:
            ConfigError: The explorer is epsilon-greedy, which has no bonus.

        Examples:
            >>> from monotau import Agent
            >>> bonus = Agent("CartPole-v1", "ndqfn-dpe").bonus([0.0, 0.1, 0.0, -0.1])
            >>> bonus.shape, bool((bonus >= 0).all())
            (torch.Size([2]), True)
        """
        stacks, single, _ = self._stacks(observation)
        bonus = self.networks.bonus(stacks)
        return bonus[0] if single else bonus

    def save(self, directory: str | Path) -> None:
        """Save the networks and the settings, without the replay, as safetensors and JSON.

        Args:
            directory: Where to save; it is created if it does not exist.

        Raises:
            StorageFault: The directory cannot be written.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> from monotau import Agent
            >>> agent = Agent("CartPole-v1", "dqn", seed=1)
            >>> with TemporaryDirectory() as directory:
            ...     agent.save(directory)
            ...     Agent.load(directory).config == agent.config
            True
        """
        place = to_path("directory", directory, "directory")
        try:
            self.write(place)
        except OSError as error:
            raise StorageFault(f"the agent cannot be saved in {directory}: {error}.") from None

    def write(self, directory: Path) -> None:
        """Save as `save` does, but let an `OSError` pass, for callers that report it in their own words.

        Args:
            directory: Where to save.

        Examples:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from monotau import Agent
            >>> with TemporaryDirectory() as directory:
            ...     Agent("CartPole-v1", "dqn").write(Path(directory))
            ...     sorted(path.name for path in Path(directory).iterdir())
            ['agent.json', 'weights.safetensors']
        """
        write_agent(directory, self.config, self._signature, self.networks.state())

    @classmethod
    def load(cls, directory: str | Path, env: str | EnvSource | None = None, *, best: bool = False) -> "Agent":
        """Load the agent of a run, or one that `save` wrote. Nothing in the files is executed or imported.

        If the agent has parts of your own, call `import_parts` first.

        Args:
            directory: A run directory, or one that `save` wrote. If the run has not finished, its newest undamaged
                checkpoint is loaded, with a warning.
            env: The environment, in place of the one named in the files. It is required for learning and evaluating
                if the environment was not given by an id, or by an id such as `module:Env-v0` whose module was not
                passed to `import_parts`; without it such an agent can only predict.
            best: Load the agent as of the best evaluation of the run instead of the last one.

        Returns:
            The agent.

        Raises:
            ConfigError: The files are missing, damaged or of an older format, or the environment does not match.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> from monotau import Agent
            >>> with TemporaryDirectory() as directory:
            ...     Agent("CartPole-v1", "ndqfn").save(directory)
            ...     agent = Agent.load(directory)
            >>> agent.config.preset, agent.actions
            ('ndqfn', 2)
        """
        saved, notes = open_agent(to_path("directory", directory, "directory"), env, best=best)
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return cls._restored(saved.config, saved.envs, saved.signature, saved.state)

    @classmethod
    def _restored(
        cls, config: Config, envs: EnvFactory | None, signature: EnvSignature, state: Mapping[str, Tensor]
    ) -> "Agent":
        agent = cls.__new__(cls)
        agent._start(config, envs, signature)
        agent.networks.load_state(state)
        return agent

    def __deepcopy__(self, memo: dict[int, Any]) -> "Agent":
        """Copy what `save` saves; the copy shares the environment."""
        return self._restored(self.config, self.envs, self._signature, self.networks.state())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` saves and, if it can be pickled, the environment; a copy without it can only predict."""
        weights = {name: tensor.detach().cpu().numpy() for name, tensor in self.networks.state().items()}
        has_env = self.envs is not None and is_picklable(self.envs.source)
        source = self.envs.source if self.envs is not None and has_env else None
        return _unpickled, (self.config, self._signature, weights, has_env, source)

    def export_onnx(
        self, path: str | Path, *, risk: str = "cvar", alpha: float | None = None, eta: float | None = None
    ) -> None:
        """Write what was learned as one ONNX graph, which computes in raw observations and raw rewards.

        Its inputs are `observations`, a batch of them as `predict` takes it (whole stacks if frames are stacked), and
        `taus`, the fractions of the quantiles. Its outputs are `means [B, A]`, `quantiles [B, A, M]` and `risk [B, A]`.
        Needs `pip install 'monotau[export]'`.

        Args:
            path: The file to write, usually `*.onnx`.
            risk: The risk measure of the output `risk`, as in `predict`; ONNX has no operator for `wang`.
            alpha: Parameter of `cvar` and `upper-cvar`.
            eta: Parameter of `power`.

        Raises:
            ConfigError: The risk measure is not allowed, or the extra is not installed.
            StorageFault: The file cannot be written.

        Examples:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from monotau import Agent
            >>> with TemporaryDirectory() as directory:
            ...     Agent("CartPole-v1", "dqn").export_onnx(Path(directory) / "agent.onnx", risk="cvar", alpha=0.25)
            ...     [path.name for path in Path(directory).iterdir()]
            ['agent.onnx']
        """
        self._export("onnx", path, Risk(risk, alpha, eta))

    def export_torch(
        self, path: str | Path, *, risk: str = "cvar", alpha: float | None = None, eta: float | None = None
    ) -> None:
        """Write the graph of `export_onnx` as a program of `torch.export`, which needs torch but not monotau.

        Args:
            path: The file to write, usually `*.pt2`.
            risk: The risk measure of the output `risk`, as in `predict`.
            alpha: Parameter of `cvar` and `upper-cvar`.
            eta: Parameter of `wang` and `power`.

        Raises:
            ConfigError: The risk measure is not allowed.
            StorageFault: The file cannot be written.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> import torch
            >>> from monotau import Agent
            >>> with TemporaryDirectory() as directory:
            ...     Agent("CartPole-v1", "dqn").export_torch(f"{directory}/agent.pt2")
            ...     program = torch.export.load(f"{directory}/agent.pt2").module()
            >>> {name: [*output.shape] for name, output in program(torch.zeros(5, 4), torch.tensor([0.1, 0.9])).items()}
            {'means': [5, 2], 'quantiles': [5, 2, 2], 'risk': [5, 2]}
        """
        self._export("torch", path, Risk(risk, alpha, eta))

    def _export(self, form: Literal["onnx", "torch"], path: str | Path, risk: Risk) -> None:
        from monotau.export import export_agent

        export_agent(to_path("path", path, "file"), form, self.config, self._signature, self.networks.state(), risk)

    def env_factory(self) -> EnvFactory:
        """Return what makes the environments of this agent.

        Returns:
            The factory.

        Raises:
            ConfigError: The agent was loaded without its environment, or an extra that it needs is not installed.

        Examples:
            >>> from monotau import Agent
            >>> Agent("CartPole-v1", "dqn").env_factory().name
            'CartPole-v1'
        """
        if self.envs is None:
            if self._signature.env_by_id and is_safe_to_make(self.config.env):
                EnvFactory(self.config.env)  # raises MissingExtra
            raise ConfigError(
                f"this agent was loaded without its environment ({self.config.env.id}), which cannot be made from the "
                "saved settings alone: pass it to Agent.load(directory, env=...), or name its module with "
                "monotau.import_parts."
            )
        return self.envs

    def _greedy(self, risk: Risk) -> Policy:
        return Policy(self.networks.evaluated, self.actions, risk=risk)

    def _masks(self, given: Any, batch_shape: tuple[int, ...]) -> Bool[np.ndarray, "B A"]:
        """Return the masks of a batch, of one row for a single observation."""
        try:
            masks = as_masks(given, self.actions, self._signature.action_sizes, batch_shape)
            return masks.reshape(-1, self.actions)
        except EnvironmentFault as fault:
            raise ConfigError(str(fault)) from None

    def _stacks(
        self, observation: Any, state: np.ndarray | None = None, episode_start: Any = None
    ) -> tuple[Shaped[np.ndarray, "B S *frame"], bool, np.ndarray | None]:
        return stack_frames(observation, self.spec, self.config.env.frame_stack, state, episode_start)


def is_picklable(source: object) -> bool:
    """Whether an environment or a callable that makes one can be sent to another process."""
    try:
        ForkingPickler.dumps(source)
    except Exception:  # third-party objects may raise anything
        return False
    return True


def _unpickled(
    config: Config, signature: EnvSignature, weights: Mapping[str, np.ndarray], has_env: bool, source: EnvSource | None
) -> Agent:
    """Rebuild a pickled agent, without its environment if that cannot be made in this process."""
    import_parts(*config.imports)  # unpickling the settings has imported them already
    envs = None
    if has_env:
        with suppress(ConfigError):
            envs = EnvFactory(config.env, source)
    return Agent._restored(config, envs, signature, {name: torch.from_numpy(array) for name, array in weights.items()})


def resolve_for(env: str | EnvSource, preset: str, layer: Mapping[str, Any], profile: str | None) -> Resolved:
    """Resolve the settings for an environment given by its id, as an object, or as a callable that makes it."""
    if isinstance(env, str):
        section = dict(layer.get("env", {})) | {"id": env}
        return resolve(preset, dict(layer) | {"env": section}, profile=profile)
    if not (isinstance(env, gym.Env) or callable(env)):
        raise ConfigError(f"env is {brief(env)}, but must be an id, a gymnasium.Env or a callable that makes one.")
    return resolve(preset, layer, profile=profile, source=env)
