"""Modules that the user names: what is added to the tables, what is refused, and that files import nothing."""

import importlib.metadata
import json
import pickle
import sys

import pytest

from monotau import Agent, ConfigError, import_parts
from monotau.config import imports
from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve
from monotau.envs import EnvConfig
from monotau.networks import HEADS
from monotau.runs.agent_files import is_safe_to_make
from monotau.runs.layout import state_of
from tests.support.commands import command_caller
from tests.support.imports import forget

HEAD = """
from dataclasses import dataclass
from monotau.config.presets import Preset
from monotau.networks.heads.qr import Qr, QrHead

@dataclass(frozen=True, kw_only=True)
class Mine(Qr):
    '''A head of one's own.'''

HEADS = {"mine": Mine}
PRESETS = {"my-preset": Preset(head=Mine())}
"""

ENV = """
import gymnasium as gym

class Room(gym.Env):
    observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 1, float(action), True, False, {}

gym.register("Room-v0", Room)
"""


@pytest.fixture
def mine(own_modules):
    """A module my_head, which has not been imported."""
    own_modules("my_head", HEAD)


@pytest.fixture
def room(own_modules):
    """A module my_room that registers an environment when it is imported."""
    import gymnasium as gym

    own_modules("my_room", ENV)
    yield
    gym.registry.pop("Room-v0", None)


def test_parts_can_be_named_after_their_module_and_are_recorded(mine):
    with pytest.raises(ConfigError, match=r"^head.kind 'mine' is unknown."):
        Agent("CartPole-v1", "dqn", head="mine")
    import_parts("my_head")
    assert Agent("CartPole-v1", "dqn", head="mine").config.imports == ("my_head",)
    assert Agent("CartPole-v1", "my-preset", explorer="dltv").config.imports == ("my_head",)
    assert "imports" not in Agent("CartPole-v1", "dqn").config.to_plain()


def test_importing_again_changes_nothing(mine):
    import_parts("my_head")
    before = dict(HEADS), dict(PRESETS)
    import_parts("my_head", "my_head")
    assert before == (HEADS, PRESETS)


def test_a_module_that_passes_on_our_tables_is_not_behind_our_parts(own_modules):
    own_modules("passes_on", "from monotau.networks import HEADS")
    import_parts("passes_on")
    assert resolve("ndqfn").config.imports == ()


REFUSED = [
    ("HEADS = [1]", "broken.HEADS is [1], but must be a dictionary from names to parts."),
    ("HEADS = {1: int}", "broken.HEADS[1]: a name may only have letters, digits and - _ . in it."),
    ("HEADS = {'--x': int}", "broken.HEADS['--x']: a name may only have letters, digits and - _ . in it."),
    ("HEADS = {'qr': int}", "broken.HEADS['qr']: the name is already taken; use another one."),
    (
        "EXPLORERS = {'x': int}",
        "broken.EXPLORERS['x'] is <class 'int'>, but must be a frozen dataclass derived from ExplorerConfig.",
    ),
    ("TORSOS = {'x': 3}", "broken.TORSOS['x'] is 3, but must be a frozen dataclass derived from TorsoConfig."),
    (
        "from monotau.networks.heads.qr import Qr\nclass Own(Qr): pass\nHEADS = {'x': Own}",
        "broken.HEADS['x'] is <class 'broken.Own'>, but must be a frozen dataclass derived from HeadConfig.",
    ),
    (
        "from dataclasses import dataclass\nfrom monotau.networks import HeadConfig\n"
        "@dataclass\nclass Own(HeadConfig): pass\nHEADS = {'x': Own}",
        "broken.HEADS['x'] is <class 'broken.Own'>, but must be a frozen dataclass derived from HeadConfig.",
    ),
    (
        "from dataclasses import dataclass\nfrom monotau.networks import HeadConfig\n"
        "@dataclass(frozen=True)\nclass Own(HeadConfig): pass\nHEADS = {'x': Own}",
        "broken.HEADS['x'] must work with its defaults alone, but raised TypeError: Can't instantiate abstract class",
    ),
    ("PRESETS = {'x': 3}", "broken.PRESETS['x'] is 3, but must be a monotau.config.presets.Preset."),
    (
        HEAD.replace("HEADS", "UNUSED"),
        "broken.PRESETS['my-preset'] has the head Mine, which is missing in HEADS.",
    ),
    ("1 / 0", "--import broken failed: ZeroDivisionError: division by zero"),
    ("import no_such_module", "--import broken failed: ModuleNotFoundError: No module named 'no_such_module'"),
    ("raise SystemExit('usage')", "--import broken failed: SystemExit: usage"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message[:45] for _, message in REFUSED])
def test_a_module_that_cannot_be_used_is_refused_in_one_line_and_adds_nothing(text, message, own_modules):
    own_modules("broken", text)
    before = [dict(table) for _, table in imports.TABLES.values()]
    with pytest.raises(ConfigError) as caught:
        import_parts("broken")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert [dict(table) for _, table in imports.TABLES.values()] == before
    assert not imports.is_imported("broken")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module", "but there is neither a module of this name here nor an installed package that offers it"),
        ("no_such.module", "but there is neither a module of this name here nor an installed package that offers it"),
        ("my_head.py", "but must be the name of a module, such as my_package.my_parts."),
        ("./my_head", "but must be the name of a module, such as my_package.my_parts."),
        ("__main__", "which cannot be imported: put the parts in a file."),
    ],
)
def test_a_name_that_is_no_module_is_refused(name, message, mine, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    with pytest.raises(ConfigError, match=f"^--import is {name!r}, ") as caught:
        import_parts(name)
    assert message in str(caught.value)


def test_an_installed_package_offers_a_module_under_a_name_and_is_imported_only_if_named(mine, monkeypatch):
    entry = importlib.metadata.EntryPoint("acme", "my_head", imports.GROUP)
    offered = importlib.metadata.EntryPoints([entry])
    monkeypatch.setattr(imports, "entry_points", offered.select)
    with pytest.raises(ConfigError, match=r"'acne'.*\(offered: acme\)\.$"):
        import_parts("acne")
    assert "my_head" not in sys.modules
    import_parts("acme")
    assert Agent("CartPole-v1", "my-preset").config.imports == ("acme",)
    assert imports.is_imported("my_head")


def test_settings_that_name_a_module_do_not_import_it(mine):
    message = (
        "the settings need the module my_head, which must be named: pass --import my_head, or in Python call "
        "monotau.import_parts('my_head') first."
    )
    with pytest.raises(ConfigError) as caught:
        resolve("dqn", {"imports": ["my_head"]})
    assert str(caught.value) == message
    assert "my_head" not in sys.modules


def test_a_saved_agent_asks_for_its_module_and_does_not_import_it(mine, tmp_path):
    import_parts("my_head")
    agent = Agent("CartPole-v1", "dqn", head="mine")
    agent.save(tmp_path / "agent")
    settings = agent.config.to_plain()
    forget("my_head")
    with pytest.raises(ConfigError, match=r"agent.json: the settings need the module my_head, .* --import my_head, "):
        Agent.load(tmp_path / "agent")
    assert "my_head" not in sys.modules
    import_parts("my_head")
    assert Agent.load(tmp_path / "agent").config.to_plain() == settings


def test_a_saved_agent_is_content_with_parts_that_are_known_by_other_means(mine, tmp_path):
    import_parts("my_head")
    Agent("CartPole-v1", "dqn", head="mine").save(tmp_path / "agent")
    imports._imported.pop("my_head")
    assert Agent.load(tmp_path / "agent").config.imports == ("my_head",)


def test_a_damaged_list_of_modules_is_refused(tmp_path):
    Agent("CartPole-v1", "dqn").save(tmp_path)
    about = json.loads((tmp_path / "agent.json").read_text())
    about["config"]["imports"] = "my_head"
    (tmp_path / "agent.json").write_text(json.dumps(about))
    with pytest.raises(ConfigError, match=r"imports is 'my_head', but must be a list"):
        Agent.load(tmp_path)


def test_a_pickled_agent_imports_its_module(mine):
    import_parts("my_head")
    data = pickle.dumps(Agent("CartPole-v1", "dqn", head="mine"))
    forget("my_head")
    assert pickle.loads(data).config.to_plain()["head"]["kind"] == "mine"  # noqa: S301


def test_an_environment_of_a_named_module_may_be_made_from_a_file(room):
    own = EnvConfig(id="my_room:Room-v0")
    assert not is_safe_to_make(own)
    import_parts("my_room")
    assert is_safe_to_make(own)
    assert not is_safe_to_make(EnvConfig(id="my_room.other:Room-v0"))
    assert not is_safe_to_make(EnvConfig(id="my_room:Room-v0", kwargs={"inner": "other:Env-v0"}))
    assert is_safe_to_make(EnvConfig(id="Wrapped-v0", kwargs={"inner": "my_room:Room-v0", "nothing": None}))


def test_a_saved_agent_names_the_module_that_registers_its_environment(room, tmp_path):
    import gymnasium as gym

    import_parts("my_room")
    Agent("Room-v0", "dqn", imports=["my_room"]).save(tmp_path / "agent")
    forget("my_room")
    del gym.registry["Room-v0"]
    with pytest.raises(ConfigError, match=r"'Room-v0' is unknown.* with the module my_room, .*--import my_room"):
        Agent.load(tmp_path / "agent")
    assert "my_room" not in sys.modules
    import_parts("my_room")
    assert Agent.load(tmp_path / "agent").envs.name == "Room-v0"


def test_a_run_that_was_started_with_a_module_names_it(tmp_path):
    run = resolve("dqn").config.to_plain()
    (tmp_path / "config.json").write_text(json.dumps(run | {"imports": ["my_head", "my_room"]}))
    message = "was started with --import my_head --import my_room: pass it again to continue the run.$"
    with pytest.raises(ConfigError, match=message):
        state_of(tmp_path, run)
    (tmp_path / "config.json").write_text(json.dumps(run))
    assert state_of(tmp_path, run) == "unfinished"
    with pytest.raises(ConfigError, match=r"it differs in imports \(None there, \['my_head'\] here\)"):
        state_of(tmp_path, run | {"imports": ["my_head"]})


def test_a_file_of_settings_asks_for_its_modules(mine, capsys, tmp_path):
    (tmp_path / "file.json").write_text(json.dumps({"preset": "my-preset", "imports": ["my_head"]}))
    call = command_caller(capsys, "train", "--config", "file.json", "--show")
    code, out, err = call()
    assert (code, out) == (2, "")
    assert err.startswith("error: the settings need the module my_head, which must be named: pass --import my_head, or")
    code, out, err = call("--import", "my_head")
    assert (code, err) == (0, "")
    assert json.loads(out)["imports"] == ["my_head"]


def test_the_parts_of_a_module_are_listed(mine, capsys):
    call = command_caller(capsys, "list")
    assert "mine             A head of one's own. (my_head)\n" in call("heads", "--import", "my_head")[1]
    assert call("presets", "--import=my_head")[1].splitlines()[-1].split() == ["my-preset", "(my_head)"]
    assert call("profiles", "--import", "my_head") == call("profiles")
    code, _, err = call("heads", "--import", "nothing_here")
    assert (code, err.startswith("error: --import is 'nothing_here', but")) == (2, True)
    assert call("heads", "--import")[2] == "error: Missing value for argument '--import'. Expected 1 values.\n"
