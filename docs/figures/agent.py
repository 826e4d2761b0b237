"""Draws the moving picture of the README: an agent balances CartPole beside its learned return distributions.

Trains the default agent first, unless --agent names a saved one. The left panel is the environment's own rendering; the
right one has the quantile functions of both actions in the state shown, and marks the action with the larger mean. The
pole is pushed now and then, so that there is something to recover from.
"""

import argparse
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from PIL import Image

from monotau import Agent
from monotau.report.plotting import COLOURS, new_figure

FRAMES_PER_SECOND = 20
SECONDS = 8
PUSH_EVERY_STEPS = 80
NAMES = ("push left", "push right")


def play(agent: Agent, env_id: str, seed: int, taus: torch.Tensor) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the rendered picture, the quantiles of both actions and their means for every second step."""
    env = gym.make(env_id, render_mode="rgb_array")
    observation, _ = env.reset(seed=seed)
    rng, shown = np.random.default_rng(seed), []
    for step in range(2 * FRAMES_PER_SECOND * SECONDS):
        if step % PUSH_EVERY_STEPS == PUSH_EVERY_STEPS // 2:
            # A gust of wind: CartPole's state is a plain array, position, speed, angle and angular speed.
            env.unwrapped.state = np.add(env.unwrapped.state, [0, 0, 0, rng.choice([-1.2, 1.2])])
        if step % 2 == 0:
            curves = agent.quantiles(observation, taus).numpy()
            shown.append((np.asarray(env.render()), curves, agent.distribution(observation).mean().numpy()))
        action, _ = agent.predict(observation)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            observation, _ = env.reset()
    env.close()
    return shown


def main() -> None:
    """Train or load, play and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", type=Path, help="a directory that Agent.save wrote")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("agent.gif"))
    given = parser.parse_args()
    env_id = "CartPole-v1"
    agent = Agent.load(given.agent) if given.agent else Agent(env_id, seed=given.seed, verbose=True)
    if not given.agent:
        agent.learn(agent.config.steps)
    taus = torch.linspace(0.001, 0.999, 101)
    shown = play(agent, env_id, given.seed, taus)
    every = np.concatenate([curves.ravel() for _, curves, _ in shown])
    low, high = np.percentile(every, 0.5), every.max()
    margin = 0.06 * (high - low)
    figure, (left, right) = new_figure(8.0, 3.2, panels=2)
    left.set_axis_off()
    left.set_title(f"{env_id}, pushed now and then", fontsize="medium")
    picture = left.imshow(shown[0][0])
    lines = [right.plot([], [], color=COLOURS[i], linewidth=2)[0] for i in range(2)]
    levels = [right.axhline(0, color=COLOURS[i], linestyle=":", linewidth=1.2) for i in range(2)]
    right.set(xlabel="fraction $\\tau$", ylabel="return quantile", xlim=(0, 1), ylim=(low - margin, high + margin))
    right.set_title("learned return distribution of each action", fontsize="medium")
    frames = []
    for image, curves, means in shown:
        picture.set_data(image)
        best = int(means.argmax())
        for i, (line, level) in enumerate(zip(lines, levels, strict=True)):
            line.set_data(taus.numpy(), curves[i])
            line.set(linewidth=3 if i == best else 1.5, label=f"{NAMES[i]}: mean {means[i]:5.1f}")
            level.set_ydata([means[i], means[i]])
        right.legend(frameon=False, loc="lower right", prop={"family": "monospace", "size": 9})
        figure.canvas.draw()
        frames.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3]))
    # One palette for all frames, so that unchanged pixels stay the same and compress well.
    palette = frames[0].quantize(48)
    paletted = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    paletted[0].save(
        given.out,
        save_all=True,
        append_images=paletted[1:],
        duration=1000 // FRAMES_PER_SECOND,
        loop=0,
        optimize=True,
    )
    print(f"{given.out}: {len(frames)} frames, {given.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
