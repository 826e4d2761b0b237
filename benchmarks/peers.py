"""Compares speed with other libraries, as ratios of interleaved rounds in one run; writes JSON and prints a table.

Parts, each a flag; without flags all of them run:

- `--cartpole`: steps per second on CartPole with an update of 32 transitions every 2 steps, one core, beside the QR-DQN
  of SB3-contrib.
- `--solve`: seconds of training until an evaluation on CartPole reaches 475, beside the same with the settings of RL
  Zoo.
- `--atari`: updates per second at Atari's sizes (84x84 stacks of 4, batch 32, 18 actions, fp32), beside the IQN of PFRL
  and of Tianshou with 64 and 64 fractions.
- `--products`: floating-point operations per second of an update beside those of its largest matrix product alone.
- `--emulator`: frames per second of the Atari emulator without learning.

The other libraries are installed by `pip install '.[atari,peers]'`, best into an environment of their own, because they
pin other versions than `constraints.txt`. A library that is not installed is left out with a word. Run nothing else on
the machine. Results are added to the file part by part.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.update import ACTIONS, BATCH, filled_ring, updater
from monotau import Agent
from monotau.explorers import Dpe, EpsilonGreedy
from monotau.networks.devices import torch_threads
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.layers import product
from monotau.replay import Ring

GOAL = 475.0
"""Return at which CartPole counts as solved."""
FRACTIONS = 64
GAMES = (1, 8, 16)
GAME = "pong"
FRAME_SKIP = 4
WARMUP_STEPS = 1_000
EVERY_STEPS = 2
ZOO_QUANTILES = 10

Row = dict[str, Any]
Job = Callable[[], object]


class Sizes(NamedTuple):
    """How much work each part does."""

    rounds: int
    steps: int
    """Steps per round on CartPole, and of the emulator."""
    seeds: int
    limit_steps: int
    """Steps after which a run that has not reached the goal is given up."""
    evaluate_every_steps: int
    episodes: int
    stored_steps: int


def missing(*packages: str) -> bool:
    """Whether a package is not installed, which is said."""
    for package in packages:
        if find_spec(package) is None:
            print(f"{package} is not installed: left out (pip install '.[atari,peers]').")
            return True
    return False


def interleaved(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Return the median seconds of each job; every round runs each job once, and the first round warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(rounds + 1):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def ratios(rates: dict[str, float], peers: Sequence[str]) -> list[Row]:
    """Return a row for each job with its rate, and the ratio of ours to the fastest of the peers."""
    best = max((rates[peer] for peer in peers if peer in rates), default=None)
    return [
        {"name": name, "per_second": rate, "ratio": None if best is None or name in peers else rate / best}
        for name, rate in rates.items()
    ]


def cartpole(sizes: Sizes) -> list[Row]:
    """Steps per second with an update of 32 transitions every 2 steps, after the warm-up."""
    settings: dict[str, Any] = {
        "steps": 10**6,
        "update": {"batch_size": BATCH, "every_steps": EVERY_STEPS},
        "replay": {"warmup_steps": WARMUP_STEPS},
        "epsilon": {"end": 0.05, "decay_steps": 0},
        "iteration_steps": sizes.steps,
    }
    jobs: dict[str, Job] = {}
    for preset in ("ndqfn", "ndqfn-dpe", "qr-dqn", "dqn"):
        agent = Agent("CartPole-v1", preset, 0, **settings).learn(WARMUP_STEPS)
        jobs[preset] = partial(agent.learn, sizes.steps)
    peers = {"SB3 QR-DQN, 200 quantiles": 200, "SB3 QR-DQN, 10 quantiles": ZOO_QUANTILES}  # its default, RL Zoo's
    if not missing("sb3_contrib"):
        for name, quantiles in peers.items():
            model = sb3_qr_dqn(
                seed=0,
                train_freq=EVERY_STEPS,
                gradient_steps=1,
                batch_size=BATCH,
                learning_starts=WARMUP_STEPS,
                exploration_fraction=1e-9,
                exploration_final_eps=0.05,
                policy_kwargs={"n_quantiles": quantiles},
            )
            model.learn(WARMUP_STEPS)
            jobs[name] = partial(model.learn, sizes.steps, reset_num_timesteps=False)
    with torch_threads(1):
        middle = interleaved(jobs, sizes.rounds)
    return ratios({name: sizes.steps / seconds for name, seconds in middle.items()}, list(peers))


def sb3_qr_dqn(**settings: Any) -> Any:
    """Return SB3-contrib's QR-DQN on CartPole."""
    from sb3_contrib import QRDQN

    return QRDQN("MlpPolicy", "CartPole-v1", device="cpu", **settings)


def zoo_qr_dqn(seed: int) -> Any:
    """Return SB3-contrib's QR-DQN with RL Zoo's settings for CartPole (hyperparams/qrdqn.yml, 50,000 steps)."""
    return sb3_qr_dqn(
        seed=seed,
        learning_rate=2.3e-3,
        batch_size=64,
        buffer_size=100_000,
        learning_starts=1_000,
        gamma=0.99,
        target_update_interval=10,
        train_freq=256,
        gradient_steps=128,
        exploration_fraction=0.16,
        exploration_final_eps=0.04,
        policy_kwargs={"net_arch": [256, 256], "n_quantiles": ZOO_QUANTILES},
    )


def solve(sizes: Sizes) -> list[Row]:
    """Seconds of training, without evaluations, until the mean of an evaluation is at least 475."""
    ours, peer = "ndqfn-dpe", "SB3 QR-DQN of RL Zoo"
    methods = {ours: solve_ours}
    if not missing("sb3_contrib"):
        methods[peer] = solve_zoo
    found: dict[str, list[float]] = {name: [] for name in methods}
    with torch_threads(1):
        for seed in range(sizes.seeds):
            for name, method in methods.items():
                seconds = method(seed, sizes)
                found[name].append(float("inf") if seconds is None else seconds)
                print(f"{name}, seed {seed}: {'not reached' if seconds is None else f'{seconds:.1f} s'}", flush=True)
    middle = {name: statistics.median(times) for name, times in found.items()}
    return [
        {
            "name": name,
            "seconds": [None if seconds == float("inf") else seconds for seconds in found[name]],
            "median_seconds": None if middle[name] == float("inf") else middle[name],
            "ratio": middle[ours] / middle[peer] if name == ours and middle.get(peer, float("inf")) < 1e9 else None,
        }
        for name in methods
    ]


def solve_ours(seed: int, sizes: Sizes) -> float | None:
    """Train ndqfn-dpe with its default settings; return the seconds of training to the goal, None if not reached."""
    agent, seconds = Agent("CartPole-v1", "ndqfn-dpe", seed, iteration_steps=sizes.evaluate_every_steps), 0.0
    while agent.steps < sizes.limit_steps:
        start = time.perf_counter()
        agent.learn(sizes.evaluate_every_steps)
        seconds += time.perf_counter() - start
        if np.mean(agent.evaluate(sizes.episodes).returns) >= GOAL:
            return seconds
    return None


def solve_zoo(seed: int, sizes: Sizes) -> float | None:
    """Train SB3-contrib's QR-DQN with RL Zoo's settings, whose exploration ends after 8,000 steps."""
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    model, env = zoo_qr_dqn(seed), Monitor(gym.make("CartPole-v1"))
    began, paused, solved_after = time.perf_counter(), 0.0, None

    def goes_on(*_: Any) -> bool:
        # One call of `learn` with evaluations inside it: its schedules are those of the whole run.
        nonlocal paused, solved_after
        if model.num_timesteps % sizes.evaluate_every_steps:
            return True
        start = time.perf_counter()
        mean, _ = evaluate_policy(model, env, sizes.episodes)
        if float(np.mean(mean)) >= GOAL:
            solved_after = start - began - paused
        paused += time.perf_counter() - start
        return solved_after is None

    model.learn(sizes.limit_steps, callback=goes_on)
    return solved_after


def atari(sizes: Sizes) -> list[Row]:
    """Updates per second at Atari's sizes, each with the sampling of its batch, on two threads."""
    ring, rng = filled_ring(sizes.stored_steps), np.random.default_rng(3)

    def ours(update: Job) -> Job:
        return lambda: (ring.sample(BATCH, rng), update())

    jobs: dict[str, Job] = {
        "ndqfn": ours(updater(Ndqfn(), EpsilonGreedy(), "fp32", ring)),
        "ndqfn-dpe": ours(updater(Ndqfn(), Dpe(), "fp32", ring)),
        "iqn": ours(updater(Iqn(), EpsilonGreedy(), "fp32", ring)),
    }
    peers = {"PFRL IQN": ("pfrl", pfrl_iqn), "Tianshou IQN": ("tianshou", tianshou_iqn)}
    for name, (package, make) in peers.items():
        if not missing(package):
            jobs[name] = make(ring)
    with torch_threads(2):
        middle = interleaved(jobs, sizes.rounds)
    return ratios({name: 1 / seconds for name, seconds in middle.items()}, list(peers))


def transitions(ring: Ring, count: int) -> Any:
    """Return stored transitions for the replays of the other libraries."""
    return ring.sample(count, np.random.default_rng(5))


def nature_torso() -> list[torch.nn.Module]:
    """Return the convolutions of the Nature DQN."""
    nn = torch.nn
    return [
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten(),
    ]  # fmt: skip


def pfrl_iqn(ring: Ring) -> Job:
    """Return an update of PFRL's IQN, as in its Atari example."""
    import pfrl
    from pfrl.agents import iqn

    nn = torch.nn
    network = iqn.ImplicitQuantileQFunction(
        psi=nn.Sequential(*nature_torso()),
        phi=nn.Sequential(iqn.CosineBasisLinear(64, 3136), nn.ReLU()),
        f=nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, ACTIONS)),
    )
    stored = transitions(ring, 10 * BATCH)
    replay = pfrl.replay_buffers.ReplayBuffer(10 * BATCH)
    for row in range(10 * BATCH):
        replay.append(
            state=stored.observations[row].numpy(),
            action=int(stored.actions[row]),
            reward=float(stored.rewards[row]),
            next_state=stored.next_observations[row].numpy(),
            is_state_terminal=bool(stored.discounts[row] == 0),
        )
    agent = iqn.IQN(
        network,
        torch.optim.Adam(network.parameters(), lr=5e-5, eps=1e-2 / BATCH),
        replay,
        gamma=0.99,
        explorer=pfrl.explorers.Greedy(),
        replay_start_size=BATCH,
        quantile_thresholds_N=FRACTIONS,
        quantile_thresholds_N_prime=FRACTIONS,
        quantile_thresholds_K=32,
        phi=lambda frames: np.asarray(frames, dtype=np.float32) / 255,
    )
    return lambda: agent.update(replay.sample(BATCH))


def tianshou_iqn(ring: Ring) -> Job:
    """Return an update of Tianshou's IQN, as in its Atari example."""
    from tianshou.algorithm import IQN
    from tianshou.algorithm.modelfree.iqn import IQNPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet
    from tianshou.utils.net.discrete import ImplicitQuantileNetwork
    from tianshou.utils.torch_utils import policy_within_training_step

    torso = ScaledObsInputActionReprNet(DQNet(4, 84, 84, ACTIONS, features_only=True))
    network = ImplicitQuantileNetwork(preprocess_net=torso, action_shape=ACTIONS, hidden_sizes=[512], num_cosines=64)
    policy = IQNPolicy(
        model=network,
        action_space=gym.spaces.Discrete(ACTIONS),
        sample_size=32,
        online_sample_size=FRACTIONS,
        target_sample_size=FRACTIONS,
    )
    algorithm = IQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=5e-5, eps=1e-2 / BATCH),
        gamma=0.99,
        num_quantiles=FRACTIONS,
        target_update_freq=500,
    )
    stored = transitions(ring, 10 * BATCH)
    replay = ReplayBuffer(10 * BATCH)
    for row in range(10 * BATCH):
        done = bool(stored.discounts[row] == 0)
        replay.add(
            Batch(
                obs=stored.observations[row].numpy(),
                act=int(stored.actions[row]),
                rew=float(stored.rewards[row]),
                terminated=done,
                truncated=False,
                obs_next=stored.next_observations[row].numpy(),
                info={},
            )
        )

    def update() -> None:
        with policy_within_training_step(policy):
            algorithm.update(buffer=replay, sample_size=BATCH)

    return update


def onednn_operations(inputs: Sequence[int], weight: Sequence[int], *_: Any, **__: Any) -> int:
    """Count the operations of oneDNN's linear layer, which torch's counter does not know."""
    return 2 * int(np.prod(inputs)) * int(weight[0])


def products(sizes: Sizes) -> list[Row]:
    """Floating-point operations per second of an update, and of its largest matrix product alone, on two threads."""
    ring = filled_ring(sizes.stored_steps)
    jobs: dict[str, Job] = {
        "ndqfn": updater(Ndqfn(), EpsilonGreedy(), "fp32", ring),
        "ndqfn-dpe": updater(Ndqfn(), Dpe(), "fp32", ring),
    }
    known = {torch.ops.mkldnn._linear_pointwise: onednn_operations}
    operations: dict[str, float] = {}
    for name, job in jobs.items():
        with FlopCounterMode(display=False, custom_mapping=known) as counter:
            job()
        operations[name] = counter.get_total_flops()
    alone = "largest product"  # g's hidden layer for a batch at 31 steps, with the gradients of inputs and weights
    inputs = torch.randn(BATCH * 31, 3136, requires_grad=True)
    weight = torch.randn(512, 3136, requires_grad=True)
    flowing = torch.randn(BATCH * 31, 512)
    jobs[alone] = lambda: torch.autograd.grad(product(inputs, weight), (inputs, weight), flowing)
    operations[alone] = 3 * 2.0 * inputs.numel() * len(weight)
    with torch_threads(2):
        middle = interleaved(jobs, sizes.rounds)
    speeds = {name: operations[name] / seconds / 1e9 for name, seconds in middle.items()}
    return [
        {
            "name": name,
            "gflop": operations[name] / 1e9,
            "gflop_per_second": speed,
            "ratio": None if name == alone else speed / speeds[alone],
        }
        for name, speed in speeds.items()
    ]


def emulator(sizes: Sizes) -> list[Row]:
    """Frames per second of the emulator with random actions, without networks."""
    if missing("ale_py"):
        return []
    from ale_py.vector_env import AtariVectorEnv

    rows, rng = [], np.random.default_rng(0)
    for threads in (1, 2):
        jobs: dict[str, Job] = {}
        for games in GAMES:
            envs = AtariVectorEnv(GAME, games, num_threads=min(threads, games), frameskip=FRAME_SKIP)
            envs.reset(seed=0)
            jobs[str(games)] = partial(play, envs, games, sizes.steps, rng)
        middle = interleaved(jobs, sizes.rounds)
        rows += [
            {
                "name": f"{games} games, {threads} threads",
                "frames_per_second": FRAME_SKIP * int(games) * sizes.steps / seconds,
            }
            for games, seconds in middle.items()
        ]
    return rows


def play(envs: Any, games: int, steps: int, rng: np.random.Generator) -> None:
    """Take random actions in all games."""
    actions = rng.integers(envs.single_action_space.n, size=(steps, games))
    for row in actions:
        envs.step(row)


PARTS: dict[str, Callable[[Sizes], list[Row]]] = {
    "cartpole": cartpole,
    "solve": solve,
    "atari": atari,
    "products": products,
    "emulator": emulator,
}


def table(results: dict[str, list[Row]]) -> list[str]:
    """Return the rows of all parts as lines of text."""
    lines = []
    for part, rows in results.items():
        lines.append(part)
        for row in rows:
            numbers = [f"{name} {value:.3g}" for name, value in row.items() if isinstance(value, float)]
            lines.append(f"  {row['name']:24s} {', '.join(numbers) or 'not reached'}")
    return lines


def versions() -> dict[str, str]:
    """Return the versions of the libraries that are installed."""
    names = {"torch": "torch", "stable_baselines3": "stable-baselines3", "sb3_contrib": "sb3-contrib"}
    names |= {"tianshou": "tianshou", "pfrl": "pfrl", "ale_py": "ale-py"}
    return {name: version(name) for package, name in names.items() if find_spec(package) is not None}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the requested parts, add them to the file and print all parts in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in PARTS:
        parser.add_argument(f"--{name}", action="store_true", help=(PARTS[name].__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/peers.json"), help="JSON file")
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds, each of which runs every method once")
    parser.add_argument("--steps", type=int, default=2_000, help="steps of a round on CartPole and of the emulator")
    parser.add_argument("--seeds", type=int, default=5, help="runs of --solve for each method")
    parser.add_argument("--limit-steps", type=int, default=52_000, help="longest run of --solve")
    parser.add_argument("--evaluate-every-steps", type=int, default=4_000, help="steps between evaluations of --solve")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of an evaluation of --solve")
    parser.add_argument("--stored-steps", type=int, default=5_000, help="steps in the replay of --atari")
    given = parser.parse_args(argv)
    sizes = Sizes(**{name: getattr(given, name) for name in Sizes._fields})
    chosen = [name for name in PARTS if getattr(given, name)] or list(PARTS)
    stored: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {"parts": {}}
    for name in chosen:
        stored["parts"][name] = PARTS[name](sizes)
        stored["versions"] = versions()
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(stored, indent=1) + "\n")
    print("\n".join(table(stored["parts"])))


if __name__ == "__main__":
    main()
