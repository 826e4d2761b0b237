"""The table of heads. A new head is one file and one line here."""

from collections.abc import Mapping

from monotau.networks.heads.base import Constants, Head, HeadConfig, Role
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn

HEADS: Mapping[str, type[HeadConfig]] = {"ndqfn": Ndqfn, "iqn": Iqn}

__all__ = ["HEADS", "Constants", "Head", "HeadConfig", "Role"]
