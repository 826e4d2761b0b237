"""The Python API: predictions of any shape, learning in several calls, saving and loading."""

import inspect
import json
import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from benchmarks.endings import contents
from gymnasium import spaces

from monotau.agent import Agent, resolve_for
from monotau.envs import Chain, DeepSea
from monotau.errors import ConfigError, StorageFault
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.runs.tensors import read_tensors, write_tensors
from tests.support.envs import Frames, MaskedEnv, allowed_at
from tests.support.small_runs import SMALL

IMAGE = spaces.Box(0, 255, (6, 7, 2), np.uint8)
FROZEN = {"explorer": {"target": "frozen", "normalise": True}}
KINDS = {
    "ndqfn": ("ndqfn", {}),
    "ndqfn-dpe": ("ndqfn-dpe", {}),
    "iqn-dpe": ("iqn-dpe", {}),
    "ndqfn-dpe-frozen": ("ndqfn-dpe", FROZEN),
    "iqn-dpe-frozen": ("iqn-dpe", FROZEN),
}


def make(env=Frames, preset="ndqfn-dpe", **settings):
    return Agent(env, preset, **(SMALL | settings))


def observations(agent, count=32, seed=0):
    """Return random observations that differ enough to call for different actions."""
    rng = np.random.default_rng(seed)
    if agent.spec.dtype == "uint8":
        return rng.integers(256, size=(count, *agent.spec.shape), dtype=np.uint8)
    return 20 * rng.standard_normal((count, *agent.spec.shape)).astype(np.float32)


def undecided(agent):
    """Make all actions equally good on average, so that the choice of a small network depends on the observation."""
    batch, network, online = observations(agent), agent.networks.evaluated, agent.networks.learner.online
    stacks = np.repeat(batch[:, None], agent.config.env.frame_stack, axis=1)
    means = agent.distribution(stacks if stacks.shape[1] > 1 else batch).mean().mean(dim=0)
    with torch.no_grad():
        head = network.head.network if network.head.samples else network.head.curve.location
        head.last.advantages.bias.view(agent.actions, -1)[:, 0].sub_(means / agent.unit)
    online.load_state_dict(network.state_dict())
    network.invalidate_cache()
    online.invalidate_cache()
    assert len(set(agent.predict(batch)[0].tolist())) > 1
    return agent


@pytest.fixture(scope="module")
def agent():
    return undecided(make().learn(120))


@pytest.fixture(scope="module")
def stacked():
    """An agent that stacks three frames."""
    return undecided(make(env_settings={"frame_stack": 3}).learn(60))


@pytest.mark.parametrize("preset", ["ndqfn-dpe", "iqn-dpe"])
@pytest.mark.parametrize("space", [None, IMAGE], ids=["vectors", "images"])
def test_a_batch_gives_the_same_predictions_as_its_observations_one_by_one(preset, space):
    agent = undecided(make(lambda: Frames(space), preset))
    batch = observations(agent)
    actions, state = agent.predict(batch)
    assert (actions.shape, actions.dtype, state) == ((32,), np.int64, None)
    alone = [agent.predict(observation) for observation in batch]
    assert [action for action, _ in alone] == actions.tolist()
    assert all(np.ndim(action) == 0 and state is None for action, state in alone)


def test_observations_may_have_any_precision_and_may_be_lists(agent):
    batch = observations(agent)
    actions, _ = agent.predict(batch)
    assert agent.predict(batch.astype(np.float64))[0].tolist() == actions.tolist()
    assert agent.predict(batch.tolist())[0].tolist() == actions.tolist()
    assert agent.quantiles(batch.astype(np.float64), [0.5]).dtype == torch.float32


def test_discrete_observations_are_accepted_alone_and_in_batches():
    agent = Agent("monotau/Chain-v0", "ndqfn", gamma=0.9, **SMALL).learn(100)
    actions, _ = agent.predict(np.arange(5))
    assert actions.shape == (5,)
    assert [agent.predict(state)[0] for state in range(5)] == actions.tolist()
    assert agent.predict(np.int64(3))[0] == actions[3]
    assert agent.distribution(2).mean().shape == (2,)
    torch.testing.assert_close(agent.distribution(np.arange(5)).mean()[2], agent.distribution(2).mean())


def test_deterministic_actions_are_those_of_the_highest_mean_every_time(agent):
    batch = observations(agent)
    actions, _ = agent.predict(batch, deterministic=True)
    assert actions.tolist() == agent.distribution(batch).mean().argmax(dim=1).tolist()
    for _ in range(3):
        agent.predict(batch, deterministic=False)
        assert agent.predict(batch)[0].tolist() == actions.tolist()


def test_without_deterministic_the_bonus_decides():
    agent = make(epsilon={"end": 0.0}, explorer={"c": 1e6})
    batch = observations(agent)
    actions, _ = agent.predict(batch, deterministic=False)
    assert actions.tolist() == agent.bonus(batch).argmax(dim=1).tolist()
    assert actions.tolist() != agent.predict(batch)[0].tolist()


def test_without_deterministic_some_actions_are_random():
    agent = make(epsilon={"end": 0.5}, explorer={"c": 0.0})
    batch = np.repeat(observations(agent, 1), 300, axis=0)
    assert len(set(agent.predict(batch)[0].tolist())) == 1
    counts = np.bincount(agent.predict(batch, deterministic=False)[0], minlength=3)
    assert counts.max() == pytest.approx(200, abs=40)
    assert counts.min() > 20


@pytest.mark.parametrize("first", [0, 5, -2])
def test_actions_start_at_the_environment_s_first_action(first):
    agent = undecided(make(lambda: Frames(first_action=first)).learn(20))  # Frames refuses other actions
    batch = observations(agent)
    indices = agent.distribution(batch).mean().argmax(dim=1).numpy()
    assert agent.predict(batch)[0].tolist() == (indices + first).tolist()
    explored = agent.predict(batch, deterministic=False)[0]
    assert set(explored.tolist()) <= {first, first + 1, first + 2}


def test_frames_passed_one_by_one_are_seen_as_whole_stacks(stacked):
    """There are two lanes; the second one starts a new episode at the third frame."""
    frames = observations(stacked, 10).reshape(5, 2, 2)
    state, seen = None, np.zeros((2, 3, 2), np.float32)
    for step, frame in enumerate(frames):
        starts = np.array([step == 0, step in (0, 2)])
        seen = np.roll(seen, -1, axis=1)
        seen[starts] = 0
        seen[:, -1] = frame
        actions, state = stacked.predict(frame, state=state, episode_start=starts)
        np.testing.assert_array_equal(state, seen)
        assert actions.tolist() == stacked.predict(seen)[0].tolist()
        assert stacked.predict(seen)[1] is None
        assert [stacked.predict(stack)[0] for stack in seen] == actions.tolist()


def test_a_single_frame_carries_its_stack_along(stacked):
    frames, state = observations(stacked, 4), None
    for frame in frames:
        action, state = stacked.predict(frame, state)
        assert np.ndim(action) == 0
    np.testing.assert_array_equal(state[0], frames[1:])
    assert action == stacked.predict(frames[1:])[0]
    _, state = stacked.predict(frames[0], state, episode_start=[1])
    np.testing.assert_array_equal(state[0], [[0, 0], [0, 0], frames[0]])


def test_a_batch_as_long_as_a_stack_is_a_batch_if_episode_starts_are_passed(stacked):
    frames = observations(stacked, 3)
    actions, state = stacked.predict(frames, episode_start=np.ones(3, bool))
    assert actions.shape == (3,)
    np.testing.assert_array_equal(state[:, -1], frames)
    again, state = stacked.predict(frames, state)
    assert again.shape == (3,)
    np.testing.assert_array_equal(state[:, -2], frames)
    assert np.ndim(stacked.predict(frames)[0]) == 0


def evaluate_policy(model, envs, episodes):
    """Runs the loop of Stable-Baselines3's evaluate_policy on a vector of self-resetting environments."""
    returns, running, states = [], np.zeros(envs.num_envs), None
    seen, starts = envs.reset(seed=0)[0], np.ones(envs.num_envs, dtype=bool)
    while len(returns) < episodes:
        actions, states = model.predict(seen, state=states, episode_start=starts, deterministic=True)
        seen, rewards, terminated, truncated, _ = envs.step(actions)
        running, starts = running + rewards, terminated | truncated
        returns += running[starts].tolist()
        running[starts] = 0
    return returns


@pytest.mark.parametrize("kind", ["agent", "stacked"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_the_evaluation_loop_of_stable_baselines_runs(kind, lanes, request):
    same_step = gym.vector.AutoresetMode.SAME_STEP
    envs = gym.vector.SyncVectorEnv([Frames] * lanes, autoreset_mode=same_step)
    returns = evaluate_policy(request.getfixturevalue(kind), envs, 6)
    assert returns == [5.0] * 6


@pytest.mark.parametrize("preset", ["ndqfn-dpe", "iqn-dpe"])
def test_distributions_quantiles_and_bonuses_have_one_row_for_each_action(preset):
    agent, taus = make(preset=preset), [0.1, 0.25, 0.9]
    batch = observations(agent, 4)
    assert agent.distribution(batch).batch_shape == (4, 3)
    assert agent.distribution(batch[0]).batch_shape == (3,)
    assert agent.quantiles(batch, taus).shape == (4, 3, 3)
    assert agent.quantiles(batch[0], torch.tensor(taus)).shape == (3, 3)
    assert agent.bonus(batch).shape == (4, 3)
    assert agent.bonus(batch[0]).shape == (3,)
    for ask in (lambda seen: agent.quantiles(seen, taus), agent.bonus, lambda seen: agent.distribution(seen).mean()):
        torch.testing.assert_close(ask(batch)[1], ask(batch[1]))
        assert not ask(batch).requires_grad
    assert (agent.bonus(batch) > 0).all()


def test_quantiles_are_those_of_the_distribution(agent):
    batch, taus = observations(agent), torch.linspace(0, 1, 11)
    quantiles = agent.quantiles(batch, taus)
    torch.testing.assert_close(quantiles, agent.distribution(batch).quantile(taus))
    assert (quantiles.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("taus", [0.5, [[0.5]], [0.1, 1.1], [-0.1], [float("nan")]])
def test_invalid_fractions_are_refused(taus, agent):
    with pytest.raises(ConfigError, match=r"^taus is .*, but must be a list of fractions from 0 to 1\.$"):
        agent.quantiles(observations(agent), taus)


def test_an_agent_without_a_bonus_says_so():
    agent = make(preset="ndqfn")
    with pytest.raises(ConfigError, match="this agent has no exploration bonus"):
        agent.bonus(observations(agent))


@pytest.mark.parametrize("shape", [(), (3,), (4, 3), (4, 1, 2), (1, 1, 1, 2)])
def test_an_observation_of_another_shape_is_refused(shape, agent, stacked):
    with pytest.raises(
        ConfigError, match=r"^the observation has shape \(.*\), but must be \(2,\), or a batch of them\.$"
    ):
        agent.predict(np.zeros(shape))
    with pytest.raises(ConfigError, match=r"must be \(2,\), or a batch of them, or stacks of 3\.$"):
        stacked.predict(np.zeros(shape))


def test_a_state_of_other_observations_is_refused(stacked):
    _, state = stacked.predict(observations(stacked, 2))
    with pytest.raises(
        ConfigError, match=r"^state has shape \(2, 3, 2\), but must be \(1, 3, 2\), as predict returned it"
    ):
        stacked.predict(observations(stacked, 1), state)


def test_learning_continues_where_it_stopped():
    agent = make()
    assert agent.history == []
    before = agent.quantiles(observations(agent), [0.5])
    assert agent.learn(150) is agent
    assert [line["step"] for line in agent.history] == [50, 100, 150]
    between = agent.quantiles(observations(agent), [0.5])
    agent.learn(70, evaluated=True)
    assert [(line["kind"], line["step"]) for line in agent.history[3:]] == [("train", 200), ("eval", 220)]
    assert agent.history[3]["updates"] > agent.history[2]["updates"] > 0
    assert not torch.equal(before, between)
    assert not torch.equal(between, agent.quantiles(observations(agent), [0.5]))


def test_schedules_follow_the_length_of_the_first_training_unless_steps_is_given():
    settings = {name: value for name, value in SMALL.items() if name not in ("steps", "epsilon", "replay", "head")}
    open_ended = Agent("CartPole-v1", "dqn", **settings).learn(np.int64(300)).learn(100)
    assert (open_ended.config.steps, open_ended.steps) == (300, 400)
    assert (open_ended.config.replay.warmup_steps, open_ended.config.epsilon.decay_steps) == (30, 120)
    planned = Agent("CartPole-v1", "dqn", steps=2000, **settings).learn(300)
    assert (planned.config.steps, planned.config.replay.warmup_steps) == (2000, 200)
    together = Agent("CartPole-v1", "dqn", steps=300, **settings).learn(300)
    assert [line["loss"] for line in open_ended.history[:6]] == [line["loss"] for line in together.history]


def test_an_impossible_number_of_steps_is_refused():
    agent = make(env_settings={"num_envs": 2})
    for steps in (0, -2, 3):
        with pytest.raises(ConfigError, match=rf"^total_steps is {steps}, but must be a positive multiple of .* \(2\)"):
            agent.learn(steps)
    with pytest.raises(ConfigError, match=r"^total_steps is 4\.5, but must be a positive multiple"):
        agent.learn(4.5)
    assert [line["kind"] for line in agent.learn(4).history] == ["warning"]  # that nothing was learned yet


def test_steps_may_be_written_as_a_whole_float():
    agent = make().learn(2e1)
    assert (agent.steps, type(agent.steps)) == (20, int)


def test_settings_are_given_by_keyword():
    agent = Agent(
        "monotau/DeepSea-v0",
        "ndqfn",
        7,
        n_step=1,
        head={"increment": "softplus", "hidden": 8},
        env_settings={"kwargs": {"size": 4}, "frame_stack": 2},
        profile="minatar",
    )
    config = agent.config
    assert (config.preset, config.profile, config.seed, config.n_step) == ("ndqfn", "minatar", 7, 1)
    assert config.head == Ndqfn(increment="softplus", hidden=8)
    assert (config.env.id, config.env.kwargs, config.env.frame_stack) == ("monotau/DeepSea-v0", {"size": 4}, 2)
    assert agent.spec.shape == (4, 4)
    assert make(preset="ndqfn", head={"kind": "iqn", "hidden": 9}).config.head == Iqn(hidden=9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_steps": 1}, "the setting 'n_steps' is unknown. Did you mean 'n_step'"),
        ({"head": {"knotz": 1}}, "the setting 'head.knotz' is unknown"),
        ({"env_settings": {"frames": 1}}, "the setting 'env.frames' is unknown"),
        ({"preset": "iqn", "head": {"anchor": "mean"}}, "the setting 'head.anchor' is unknown"),
        ({"head": {"increment_scale": "1"}}, "head.increment_scale is '1', but head.increment 'scaled' has a learned"),
        ({"preset": "nope"}, "the preset 'nope' is unknown"),
        ({"profile": "nope"}, "the profile 'nope' is unknown"),
        ({"steps": "many"}, "steps is 'many', but must be a whole number"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        make(**settings)


def test_an_environment_is_given_by_id_ready_made_or_by_a_callable():
    assert Agent("Acrobot-v1", **SMALL).learn(60).config.env.id == "Acrobot-v1"
    assert make(lambda: gym.make("Acrobot-v1")).learn(60).config.env.id == "Acrobot-v1"
    env = Frames()
    agent = make(env)
    assert len(agent.learn(60).evaluate(2).returns) == 2
    assert env.closes == 0
    assert env.observation_space.contains(env.reset(seed=0)[0])
    assert env.step(0)[1] == 1.0


@pytest.mark.parametrize("env", [None, 3, {"id": "CartPole-v1"}], ids=str)
def test_an_object_that_is_not_an_environment_is_refused(env):
    unchecked = inspect.unwrap(resolve_for)  # the type checks of the tests would refuse it first
    with pytest.raises(ConfigError, match=rf"^env is {re.escape(str(env))}, but must be an id, a gymnasium\.Env or a"):
        unchecked(env, "ndqfn", {}, None)


def test_an_evaluation_plays_as_many_episodes_as_it_is_asked_for(agent):
    told = []
    evaluation = agent.evaluate(7, told.append)
    assert told == [1, 2, 3, 4, 5, 6, 7]
    assert (evaluation.returns, evaluation.lengths) == ([5.0] * 7, [5] * 7)
    with pytest.raises(ConfigError, match=r"evaluation\.episodes is 0, but must be at least 1"):
        agent.evaluate(0)


def test_a_verbose_agent_reports_on_standard_error(capsys):
    make(verbose=True).learn(100, evaluated=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "evaluation: return     5.00" in err


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_is_loaded_bit_by_bit_as_it_was_saved(kind, tmp_path):
    preset, settings = KINDS[kind]
    agent = make("CartPole-v1", preset, seed=3, **settings).learn(120)
    explorer, batch, taus = agent.networks.explorer, observations(agent), torch.linspace(0, 1, 7)
    if settings:  # the seed alone would not restore this frozen target
        with torch.no_grad():
            next(explorer.target.parameters()).add_(0.1)
        explorer.target.invalidate_cache()
    agent.save(tmp_path / "deep" / "agent")
    loaded = Agent.load(str(tmp_path / "deep" / "agent"))
    assert loaded.config == agent.config
    assert loaded.predict(batch)[0].tolist() == agent.predict(batch)[0].tolist()
    assert torch.equal(loaded.quantiles(batch, taus), agent.quantiles(batch, taus))
    assert torch.equal(loaded.distribution(batch).curve(), agent.distribution(batch).curve())
    if kind != "ndqfn":
        assert torch.equal(loaded.bonus(batch), agent.bonus(batch))
        assert torch.equal(loaded.networks.explorer.moments, explorer.moments)
        assert (explorer.moments[0] > 0) == bool(settings)
    fresh = make("CartPole-v1", preset, seed=3, **settings)
    assert not torch.equal(fresh.quantiles(batch, taus), agent.quantiles(batch, taus))
    assert len(loaded.learn(60).evaluate(1).returns) == 1


def test_saving_twice_writes_the_same_files(agent, tmp_path):
    agent.save(tmp_path)
    first = contents(tmp_path)
    assert set(first) == {"agent.json", "weights.safetensors"}
    Agent.load(tmp_path).save(tmp_path)
    assert contents(tmp_path) == first


def test_an_agent_loaded_without_its_environment_predicts_but_does_not_learn(tmp_path):
    agent = make(lambda: Frames(first_action=4), env_settings={"frame_stack": 2}).learn(60)
    agent.save(tmp_path)
    loaded = Agent.load(tmp_path)
    batch = observations(agent)
    actions, state = loaded.predict(batch)
    expected = agent.predict(batch)
    assert (actions.tolist(), state.tolist()) == (expected[0].tolist(), expected[1].tolist())
    for use in (lambda: loaded.learn(10), loaded.evaluate):
        with pytest.raises(
            ConfigError, match=r"loaded without its environment .* pass it to Agent\.load\(directory, env=\.\.\.\)"
        ):
            use()
    for env in (Frames(first_action=4), lambda: Frames(first_action=4)):
        loaded = Agent.load(tmp_path, env=env)
        assert loaded.learn(20).predict(batch)[0].min() >= 4


def test_an_agent_made_with_an_id_may_be_loaded_with_another_or_with_an_environment(tmp_path):
    agent = Agent("monotau/DeepSea-v0", env_settings={"kwargs": {"size": 4}}, **SMALL)
    agent.save(tmp_path)
    assert Agent.load(tmp_path).learn(10).envs.name == "monotau/DeepSea-v0"
    assert Agent.load(tmp_path, env=DeepSea(size=4)).learn(10).envs.name == "DeepSea"
    make("CartPole-v1").save(tmp_path)
    loaded = Agent.load(tmp_path, env="CartPole-v0")
    assert (loaded.config.env.id, loaded.envs.name) == ("CartPole-v0", "CartPole-v0")


OTHERS = {
    "shape": lambda: Frames(spaces.Box(-1, 1, (3,), np.float32)),
    "dtype": lambda: Frames(spaces.Box(0, 1, (2,), np.uint8)),
    "kind": Chain,
    "actions": lambda: Frames(actions=4),
    "first action": lambda: Frames(first_action=1),
    "id": "CartPole-v1",
}


@pytest.mark.parametrize("other", OTHERS)
def test_an_agent_is_not_loaded_for_another_kind_of_environment(other, agent, tmp_path):
    agent.save(tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"^env is \S+, but the agent in \S+ was trained on Frames: they differ in [ao]\S+ \(.* here\)",
    ):
        Agent.load(tmp_path, env=OTHERS[other])


def test_an_agent_that_cannot_be_saved_says_so(agent, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageFault, match=r"^the agent cannot be saved in \S+file: .*File exists"):
        agent.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


MISSING = object()
EDITS = [
    ("format", MISSING, "the format is None, but must be 3"),
    (
        "format",
        1,
        r"the format is 1, which monotau 0\.1 wrote, but must be 3: load it with that version, or train it again",
    ),
    ("format", True, "the format is True, but must be 3"),
    ("format", 4, "the format is 4, but must be 3"),
    ("format", [[]], r"the format is \[\[\]\], but must be 3"),
    ("config", MISSING, "the fields are action_sizes, .*, weights, but must include config and weights"),
    (
        "action_start",
        MISSING,
        "the fields are action_sizes, actions, env_by_id, observation, but must be action_sizes,",
    ),
    ("extra", 1, "the fields are .*, extra, .*, but must be"),
    ("config", [], r"the settings must be a mapping of names to values, but are \[\]"),
    ("config.preset", MISSING, "config must name a preset and a profile"),
    ("config.profile", MISSING, "config must name a preset and a profile"),
    ("config.preset", ["ndqfn"], "the preset must be a name"),
    ("config.preset", "nope", "the preset 'nope' is unknown"),
    ("config.profile", {}, "the profile must be a name"),
    ("config.profile", "nope", "the profile 'nope' is unknown"),
    ("config.extra", 1, "the setting 'extra' is unknown"),
    ("config.steps", "many", "steps is 'many', but must be a whole number"),
    ("config.head", [], r"head must be a mapping of names to values, but got \[\]"),
    ("config.head.kind", ["iqn"], r"head\.kind is \['iqn'\], but must be text"),
    ("config.head.knots", 1, r"head\.knots is 1, but must be between 2 and 1000"),
    ("config.env.kwargs", {"a": {}}, r"env\.kwargs\.a is {}, but must be one of"),
    ("observation", None, "observation must be a mapping of names to values, but got None"),
    ("observation.dtype", MISSING, "observation: the fields are channels_last, kind, .*, but must be channels_last, d"),
    ("observation.extra", 1, "observation: the fields are .*, extra, .*, but must be"),
    ("observation.parts", [{"path": ["a"]}], r"observation\.parts\[0\]: the fields are path, but must be path, spec"),
    ("observation.parts", [1], r"observation\.parts\[0\] must be a mapping of names to values, but got 1"),
    ("observation.kind", "parts", "the spaces are 3 actions"),
    ("action_sizes", [3, 2], r"the spaces are 3 actions \(3 x 2\) starting at 0"),
    ("action_sizes", [-3, -1], r"the spaces are 3 actions \(-3 x -1\) starting at 0"),
    ("observation.kind", "video", r"observation\.kind 'video' is unknown"),
    ("observation.kind", "image", "the spaces are 3 actions starting at 0 and observations"),
    ("observation.kind", "discrete", "the spaces are 3 actions"),
    ("observation.shape", "abc", r"observation\.shape is 'abc', but must be a list"),
    ("observation.shape", ["2"], r"observation\.shape\[0\] is '2', but must be a whole number"),
    ("observation.shape", [0], "the spaces are 3 actions"),
    ("observation.shape", [-2], "the spaces are 3 actions"),
    ("observation.shape", [1, 1, 1, 1], "the spaces are 3 actions"),
    ("observation.shape", [10**30], r"observation\.shape\[0\] is 1000.*, but must be a number that fits in 64 bits"),
    ("observation.dtype", "zeros", "the spaces are 3 actions"),
    ("observation.dtype", "float64", "the spaces are 3 actions"),
    ("observation.size", 0, "the spaces are 3 actions"),
    ("observation.scale", "1", r"observation\.scale is '1', but must be a number"),
    ("actions", 0, "the spaces are 0 actions"),
    ("actions", True, "actions is True, but must be a whole number"),
    ("actions", 3.0, r"actions is 3\.0, but must be a whole number"),
    ("action_start", "0", "action_start is '0', but must be a whole number"),
    ("weights", [1], r"a record is \[1\], but must be a size and a digest"),
    ("weights", [-1, "x"], r"a record is \[-1, 'x'\], but must be a size and a digest"),
    ("env_by_id", 0, "env_by_id is 0, but must be true or false"),
]


def edited(path, where, value):
    """Change one entry of a JSON file."""
    whole = entry = json.loads(path.read_text())
    *outer, last = where.split(".")
    for name in outer:
        entry = entry[name]
    entry[last] = value
    if value is MISSING:
        del entry[last]
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize(("where", "value", "message"), EDITS)
def test_the_refusal_of_an_edited_agent_names_the_edited_entry(where, value, message, agent, tmp_path):
    agent.save(tmp_path)
    edited(tmp_path / "agent.json", where, value)
    with pytest.raises(ConfigError, match=rf"^\S+/agent\.json: {message}") as caught:
        Agent.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "value"),
    [("actions", 2**40), ("observation.shape", [2**40]), ("config.head.hidden", 2**40), ("actions", 4)],
)
def test_sizes_that_differ_from_those_of_the_weights_are_refused(where, value, agent, tmp_path):
    agent.save(tmp_path)
    edited(tmp_path / "agent.json", where, value)
    with pytest.raises(ConfigError, match=r"weights\.safetensors does not match its settings: ") as caught:
        Agent.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_image_larger_than_any_memory_is_refused(tmp_path):
    make(lambda: Frames(IMAGE)).save(tmp_path)
    edited(tmp_path / "agent.json", "observation.shape", [2**30, 2**30, 2])
    with pytest.raises(ConfigError, match=r"^\S+/agent\.json: "):
        Agent.load(tmp_path)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_a_deeply_nested_agent_is_refused(depth, agent, tmp_path):
    agent.save(tmp_path)
    nested = '{"a": ' * depth + "1" + "}" * depth
    path = tmp_path / "agent.json"
    whole = path.read_text()
    for field in ("format", "config", "actions", "observation"):
        value = json.dumps(json.loads(whole)[field], indent=2).replace("\n", "\n  ")
        assert f'"{field}": {value}' in whole
        path.write_text(whole.replace(f'"{field}": {value}', f'"{field}": {nested}'))
        with pytest.raises(ConfigError, match=r"agent\.json") as caught:
            Agent.load(tmp_path)
        assert len(str(caught.value)) < 600


def test_weights_that_are_missing_damaged_or_of_another_agent_are_refused(agent, tmp_path):
    agent.save(tmp_path)
    path = tmp_path / "weights.safetensors"
    tensors = read_tensors(path)
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if name != "explorer.moments"})
    with pytest.raises(ConfigError, match=r"does not match its settings: 'explorer\.moments' is missing, but must be"):
        Agent.load(tmp_path)
    write_tensors(path, {name: tensor for name, tensor in tensors.items() if not name.startswith("online")})
    with pytest.raises(
        ConfigError, match=r"weights\.safetensors does not match its settings: 'online\..*' is missing"
    ) as caught:
        Agent.load(tmp_path)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"noise")
    with pytest.raises(ConfigError, match=r"weights\.safetensors (cannot be read|is not a valid tensor file): "):
        Agent.load(tmp_path)
    path.unlink()
    with pytest.raises(ConfigError, match=r"weights\.safetensors cannot be read: No such file"):
        Agent.load(tmp_path)


def test_a_flipped_bit_in_the_weights_is_found(agent, tmp_path):
    agent.save(tmp_path)
    path = tmp_path / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"weights\.safetensors is damaged: its contents are not what"):
        Agent.load(tmp_path)


def test_a_directory_without_an_agent_is_refused(tmp_path):
    for directory in (tmp_path, tmp_path / "missing", "a" * 300):
        with pytest.raises(ConfigError, match=r"there is no agent in .*: name a run directory or one that Agent\.save"):
            Agent.load(directory)
    (tmp_path / "config.json").write_text("{}")
    for directory in (tmp_path, tmp_path / "agent"):
        with pytest.raises(ConfigError, match=r"there is no agent in .*: it has no checkpoint yet"):
            Agent.load(directory)


def test_loading_imports_no_module_that_the_file_names(tmp_path, monkeypatch):
    """An untrusted agent.json may name any module in its environment id; only the user may have it imported."""
    agent = Agent("CartPole-v1", **SMALL)
    agent.save(tmp_path / "agent")
    (tmp_path / "planted.py").write_text("raise SystemExit('planted code ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    about = json.loads((tmp_path / "agent" / "agent.json").read_text())
    about["config"]["env"]["id"] = "planted:CartPole-v1"
    (tmp_path / "agent" / "agent.json").write_text(json.dumps(about))
    loaded = Agent.load(tmp_path / "agent")
    assert loaded.predict(np.zeros(4))[0] in (0, 1)
    with pytest.raises(ConfigError, match="loaded without its environment"):
        loaded.evaluate(1)
    assert Agent.load(tmp_path / "agent", "CartPole-v1").evaluate(1).line()["episodes"] == 1


@pytest.mark.parametrize("deterministic", [True, False])
def test_predictions_are_among_the_allowed_actions(deterministic):
    """The actions of MaskedEnv start at 5."""
    agent = make(MaskedEnv, epsilon={"end": 0.3})
    for count in range(3):
        for _ in range(5):
            action, _ = agent.predict([count], deterministic=deterministic, action_mask=allowed_at(count))
            assert allowed_at(count)[action - 5]
    masks = np.eye(4, dtype=np.int8)
    assert agent.predict(np.zeros((4, 1)), deterministic=deterministic, action_mask=masks)[0].tolist() == [5, 6, 7, 8]
    assert agent.predict([0.0], risk="cvar", alpha=0.3, action_mask=masks[2])[0] == 7


@pytest.mark.parametrize(
    ("mask", "match"),
    [
        ([True] * 3, r"^the action mask has shape \(3,\), but must have \(4,\): one value for each action"),
        ([[True] * 4], r"^the action mask has shape \(1, 4\), but must have \(4,\)"),
        ([False] * 4, "^the action mask allows no action"),
        ("all", "^the action mask is 'all', but must be an array of true and false"),
    ],
)
def test_an_invalid_mask_is_the_mistake_of_the_caller(mask, match):
    with pytest.raises(ConfigError, match=match):
        make(MaskedEnv).predict([0.0], action_mask=mask)


def test_a_batch_needs_a_mask_for_each_observation_of_which_each_allows_an_action():
    agent = make(MaskedEnv)
    with pytest.raises(ConfigError, match=r"has shape \(4,\), but must have \(2, 4\)"):
        agent.predict(np.zeros((2, 1)), action_mask=[True] * 4)
    with pytest.raises(ConfigError, match="the action mask allows no action"):
        agent.predict(np.zeros((2, 1)), action_mask=[[True] * 4, [False] * 4])


def test_an_agent_is_loaded_with_the_use_of_masks_it_was_trained_with(tmp_path):
    for setting, recorded in (("auto", "use"), ("ignore", "ignore")):
        make("monotau/Gate-v0", env_settings={"action_masks": setting}).save(tmp_path)
        loaded = Agent.load(tmp_path)
        assert loaded.config.env.action_masks == recorded
        assert loaded.envs.masked == (recorded == "use")
    about = json.loads((tmp_path / "agent.json").read_text())
    del about["config"]["env"]["action_masks"]
    (tmp_path / "agent.json").write_text(json.dumps(about))
    assert Agent.load(tmp_path).config.env.action_masks == "ignore"  # an agent from before masks


def test_an_invalid_observation_is_the_mistake_of_the_caller():
    agent = Agent("CartPole-v1", "dqn")
    with pytest.raises(ConfigError, match=r"^the observation is invalid\. The observation contains nan"):
        agent.predict([0.0, float("nan"), 0.0, 0.0])
    with pytest.raises(ConfigError, match=r"^the observation is invalid\. The state is 16, but .* from 0 to 15\."):
        Agent("FrozenLake-v1", "dqn").predict(16)


STATE = spaces.Discrete(6, start=-2)
BITS = spaces.MultiBinary(3)
MISTAKEN = [
    (IMAGE, np.full(IMAGE.shape, 0.5), "The observation is float64, but its observation space is uint8."),
    (IMAGE, np.full(IMAGE.shape, 256), "The observation contains 256, which uint8 cannot hold."),
    (IMAGE, np.full((4, *IMAGE.shape), -1), "The observation contains -1, which uint8 cannot hold."),
    (IMAGE, np.full(IMAGE.shape, "a"), "The observation is array("),
    (STATE, 2.9, "The observation contains 2.9, which int64 cannot hold."),
    (STATE, float("nan"), "The observation contains nan, which int64 cannot hold."),
    (STATE, 1e30, "The observation contains 1e+30, which int64 cannot hold."),
    (STATE, 10**30, "The observation is 1000000000000000000000000000000, but must be an array of numbers."),
    (STATE, True, "The observation is bool, but its observation space is int64."),
    (STATE, "a", "The observation is 'a', but must be an array of numbers."),
    (STATE, None, "The observation is None, but must be an array of numbers."),
    (BITS, [0.5, 0.0, 1.0], "The observation is float64, but its observation space is bool."),
    (BITS, [0, 1, 2], "The observation contains 2, which bool cannot hold."),
    (None, [[1], [2, 3]], "The observation is [[1], [2, 3]], but must be an array of numbers."),
    (None, [1j, 0j], "The observation is complex128, but its observation space is float32."),
    (None, None, "The observation is None, but must be an array of numbers."),
]


@pytest.mark.parametrize("ask", ["predict", "distribution", "bonus", "plot_distribution"])
@pytest.mark.parametrize(("space", "observation", "message"), MISTAKEN, ids=[row[2][16:40] for row in MISTAKEN])
def test_an_observation_that_training_would_refuse_is_refused(space, observation, message, ask):
    agent = make(lambda: Frames(space))
    with pytest.raises(ConfigError, match=f"^the observation is invalid. {re.escape(message)}"):
        getattr(agent, ask)(observation)


def test_an_invalid_part_of_an_observation_is_named():
    agent = make(lambda: Frames(spaces.Dict(picture=IMAGE, state=STATE)))
    for state, message in ((2.5, "contains 2.5, which int64"), (None, "is None, but must"), ("a", "is 'a', but must")):
        with pytest.raises(ConfigError, match=f"In the part state: The observation {message}"):
            agent.predict({"picture": np.zeros(IMAGE.shape, np.uint8), "state": state})
    with pytest.raises(ConfigError, match=r"In the part picture: The observation is float64, but its .* is uint8"):
        agent.predict({"picture": np.zeros(IMAGE.shape), "state": 0})


@pytest.mark.parametrize(
    ("space", "usual", "others"),
    [
        (IMAGE, np.full(IMAGE.shape, 255, np.uint8), [np.full(IMAGE.shape, 255), np.full(IMAGE.shape, 255).tolist()]),
        (STATE, np.int64(3), [3, 3.0, np.float32(3), np.uint8(3)]),
        (BITS, np.array([0, 1, 1], np.int8), [[0, 1, 1], [False, True, True]]),
        (None, np.array([0, 1], np.float32), [[0, 1], [0.0, 1.0], [False, True]]),
    ],
    ids=["image", "state", "bits", "vector"],
)
def test_an_observation_may_have_another_type_if_nothing_is_lost(space, usual, others):
    agent = make(lambda: Frames(space))
    for other in others:
        torch.testing.assert_close(agent.distribution(other).mean(), agent.distribution(usual).mean(), rtol=0, atol=0)


def test_an_agent_and_an_evaluation_are_shown_in_a_line():
    agent = Agent("CartPole-v1", "dqn", seed=3).learn(1_234)
    assert repr(agent) == "Agent('CartPole-v1', 'dqn', seed=3) after 1,234 steps"
    shown = repr(agent.evaluate(2))
    assert shown.startswith("Evaluation(returns=[")
    assert "states" not in shown
