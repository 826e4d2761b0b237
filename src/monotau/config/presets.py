"""The table of presets, the algorithms that can be chosen by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from monotau.explorers import ExplorerConfig
from monotau.explorers.bootstrapped import Bootstrapped
from monotau.explorers.deep_dpe import DeepDpe
from monotau.explorers.dltv import Dltv
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.explorers.pe_dqn import PeDqn
from monotau.explorers.pqr import Pqr
from monotau.explorers.rnd import Rnd
from monotau.networks import HeadConfig
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.dqn import Dqn
from monotau.networks.heads.fqf import Fqf
from monotau.networks.heads.hl_gauss import HlGauss
from monotau.networks.heads.implicit_sorted import ImplicitSorted
from monotau.networks.heads.incremental_iqn import IncrementalIqn
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.heads.ndqfn_fqf import NdqfnFqf
from monotau.networks.heads.nq import Nq
from monotau.networks.heads.qr import NcQr, Qr
from monotau.networks.heads.spline import Spl
from monotau.replay import Prioritized, ReplayConfig, Uniform

DEFAULT_PRESET = "ndqfn-dpe"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """An algorithm: a head, an explorer, a replay and settings."""

    head: HeadConfig
    explorer: ExplorerConfig = field(default_factory=EpsilonGreedy)
    replay: ReplayConfig | None = None
    """None takes the profile's replay, so that algorithms that do not specify one are compared on the same replay."""
    n_step: int | None = None
    """None takes the profile's."""
    double_q: bool = True
    noisy: bool = False
    dueling: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings, with every profile."""
    atari: Mapping[str, Any] = field(default_factory=dict)
    """Settings from the algorithm's own paper, used with the profile atari."""
    atari_profile: str = "atari"
    """Profile for 84x84 images."""


def adam(learning_rate: float, epsilon: float = 0.01 / 32) -> Mapping[str, Any]:
    """Return settings of the section `optimiser`."""
    return {"optimiser": {"learning_rate": learning_rate, "epsilon": epsilon}}


PAPER_NDQFN = Ndqfn(anchor="lowest", baseline="sigmoid", increment="relu", increment_scale="1/N", stratified=False)
IQN_STAR = Iqn(online_fractions=32, target_fractions=32, action_fractions=32)
FEW_RANDOM = {"epsilon": {"end": 0.01, "decay_steps": 0, "longest_repeat": 1}}
"""Random actions divert the paths that bonuses from later states plan."""
DQN_ADAM = adam(6.25e-5, 1.5e-4)
C51_ADAM = adam(2.5e-4)

PRESETS: dict[str, Preset] = {
    "ndqfn-dpe": Preset(head=Ndqfn(), explorer=Dpe()),
    "ndqfn": Preset(head=Ndqfn()),
    "ndqfn-dpe-paper": Preset(
        head=PAPER_NDQFN,
        explorer=Dpe(kappa=1.0),
        replay=Uniform(),
        n_step=3,
    ),
    "ndqfn-paper": Preset(head=PAPER_NDQFN, replay=Uniform(), n_step=3),
    "ndqfn-vpe": Preset(head=Ndqfn(), explorer=Dpe(error="value")),
    "ndqfn-dltv": Preset(head=Ndqfn(), explorer=Dltv()),
    "ndqfn-deep-dpe": Preset(
        head=Ndqfn(),
        explorer=DeepDpe(),
        replay=Uniform(),  # as in our experiments
        n_step=1,  # n-step targets would skip the bonuses of the states in between
        # Bonuses are of order 1, in the same unit as the rewards.
        settings=FEW_RANDOM | {"return_scale": 1.0},
    ),
    "ndqfn-rnd": Preset(
        head=Ndqfn(),
        explorer=Rnd(),
        replay=Uniform(),
        n_step=1,
        settings=FEW_RANDOM | {"return_scale": 1.0},
    ),
    "ndqfn-fqf": Preset(head=NdqfnFqf()),
    "ndqfn-dpe-fast": Preset(
        head=Ndqfn(),
        explorer=Dpe(),
        replay=Prioritized(),
        n_step=5,
        atari_profile="atari-fast",
    ),
    "ndqfn-fast": Preset(
        head=Ndqfn(),
        replay=Prioritized(),
        n_step=5,
        atari_profile="atari-fast",
    ),
    "iqn": Preset(head=Iqn(), n_step=1, double_q=False),
    "iqn-star": Preset(head=IQN_STAR),
    "iqn-8": Preset(head=Iqn(online_fractions=8, target_fractions=8, action_fractions=8)),
    "iqn-dpe": Preset(head=IQN_STAR, explorer=Dpe()),
    "iqn-dltv": Preset(head=IQN_STAR, explorer=Dltv()),
    "munchausen-iqn": Preset(head=Iqn(), n_step=1, double_q=False, settings={"munchausen": {"alpha": 0.9}}),
    "incremental-iqn": Preset(
        head=IncrementalIqn(online_fractions=32, target_fractions=32, action_fractions=32),
    ),
    "implicit-sorted": Preset(
        head=ImplicitSorted(online_fractions=32, target_fractions=32, action_fractions=32),
    ),
    "fqf": Preset(head=Fqf(), n_step=1, double_q=False),
    "fqf-dpe": Preset(head=Fqf(), explorer=Dpe()),
    "qr-dqn": Preset(head=Qr(), n_step=1, double_q=False),
    "qr-dqn-dpe": Preset(head=Qr(), explorer=Dpe()),
    "qr-dqn-dltv": Preset(head=Qr(), explorer=Dltv(), n_step=1, double_q=False),
    "pe-dqn": Preset(
        head=Qr(),
        explorer=PeDqn(),
        replay=Uniform(),
        n_step=1,
        settings=FEW_RANDOM,
    ),
    "pqr": Preset(head=Qr(), explorer=Pqr(), n_step=1, double_q=False),
    "nc-qr-dqn": Preset(head=NcQr(), n_step=1, double_q=False),
    "nq-dqn": Preset(head=Nq(), n_step=1),
    "spl-dqn": Preset(head=Spl(), n_step=1, double_q=False),
    "c51": Preset(head=C51(), n_step=1, double_q=False, atari=C51_ADAM),
    "c51-dpe": Preset(head=C51(), explorer=Dpe(), atari=C51_ADAM),
    "rainbow": Preset(
        head=C51(),
        replay=Prioritized(alpha=0.5),
        n_step=3,
        noisy=True,
        dueling=True,
        settings={"epsilon": {"end": 0.0, "decay_steps": 0}},
        atari=DQN_ADAM,
    ),
    "hl-gauss": Preset(head=HlGauss(), replay=Uniform(), n_step=1, double_q=False, atari=DQN_ADAM),
    "dqn": Preset(head=Dqn(), replay=Uniform(), n_step=1, double_q=False, atari=DQN_ADAM),
    "double-dqn": Preset(head=Dqn(), replay=Uniform(), n_step=1, atari=DQN_ADAM),
    "bootstrapped-dqn": Preset(
        head=Dqn(),
        explorer=Bootstrapped(),
        replay=Uniform(),
        n_step=1,
        settings=FEW_RANDOM,  # the members of the ensemble explore
        atari=DQN_ADAM,
    ),
    "prioritized": Preset(
        head=Dqn(),
        replay=Prioritized(priority="td"),
        n_step=1,
        atari=DQN_ADAM,
    ),
}
