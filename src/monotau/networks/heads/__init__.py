"""The table of heads. A new head is one file and one line here."""

from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, Role
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

HEADS: dict[str, type[HeadConfig]] = {
    "ndqfn": Ndqfn,
    "iqn": Iqn,
    "incremental-iqn": IncrementalIqn,
    "qr": Qr,
    "nc-qr": NcQr,
    "nq": Nq,
    "spline": Spl,
    "fqf": Fqf,
    "ndqfn-fqf": NdqfnFqf,
    "implicit-sorted": ImplicitSorted,
    "c51": C51,
    "hl-gauss": HlGauss,
    "dqn": Dqn,
}

__all__ = ["HEADS", "Constants", "Estimate", "Head", "HeadConfig", "Role"]
