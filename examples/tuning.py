"""Searches a setting of one's own with Optuna, and ends poor trials early through the hook `on_evaluation`.

Run it with `python examples/tuning.py`; it needs `pip install 'monotau[tune]'` and takes a few minutes. The command
`monotau tune` searches the usual settings without any code.
"""

import argparse

import optuna

from monotau import Agent, Progress


def main() -> None:
    """Search gamma and the width of the network on CartPole."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=8)
    given = parser.parse_args()

    def train(trial: optuna.Trial) -> float:
        def report(progress: Progress) -> bool:
            trial.report(progress.return_mean, progress.step)
            return bool(trial.should_prune())

        agent = Agent(
            "CartPole-v1",
            preset="ndqfn",
            seed=trial.number,
            gamma=1 - trial.suggest_float("1 - gamma", 0.002, 0.1, log=True),
            torso={"width": trial.suggest_categorical("width", [32, 64, 128])},
            iteration_steps=max(1, given.steps // 5),
        )
        agent.learn(given.steps, on_evaluation=report)
        if agent.steps < given.steps:
            raise optuna.TrialPruned
        return float(agent.history[-1]["return_mean"])

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=3))
    study.optimize(train, n_trials=given.trials)
    for trial in study.trials:
        settings = ", ".join(f"{name} {value:.3g}" for name, value in trial.params.items())
        print(f"trial {trial.number}: return {trial.value:.1f} with {settings} ({trial.state.name.lower()})")
    print(f"best trial: {study.best_trial.number}")


if __name__ == "__main__":
    main()
