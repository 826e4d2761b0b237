"""Resolves the settings of a run: preset, profile and user settings in layers, where the later layer wins."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any

from monotau.config.imports import check_imported, modules_behind
from monotau.config.parse import override
from monotau.config.plain import kind_of
from monotau.config.presets import PRESETS
from monotau.config.profiles import PROFILES, default_profile
from monotau.config.schema import KINDS, Config
from monotau.envs.atari import default_protocol
from monotau.envs.config import EnvConfig
from monotau.envs.make import EnvFactory, EnvSource
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, brief, unknown_name
from monotau.networks import HEADS, TORSOS, default_torso


@dataclass(frozen=True)
class Resolved:
    """All settings of a run, and its environment."""

    config: Config
    envs: EnvFactory
    given: Mapping[str, Any] = field(default_factory=dict)
    """The user's settings; the rest comes from the preset and the profile."""

    def override(self, layer: Mapping[str, Any]) -> "Resolved":
        """Resolve again with one more layer of user settings; values derived from them are computed again.

        The environment is only recreated if its own settings change.
        """
        given = _merge(self.given, spell_out(layer))
        section = override(EnvConfig(), given["env"], KINDS, "env")
        envs = self.envs if section == self.envs.config else EnvFactory(section, self.envs.source)
        config = _config_of(self.config.preset, self.config.profile, given, envs)
        return Resolved(config, envs, given)


def resolve(
    preset: str,
    *layers: Mapping[str, Any],
    profile: str | None = None,
    source: EnvSource | None = None,
) -> Resolved:
    """Resolve every setting from the preset, the profile and the given layers of plain values; later layers win.

    The environment comes from `source`, or else from its id. Its observations choose the profile unless one is named.
    """
    _check_names(preset, profile)
    given: dict[str, Any] = {}
    for layer in layers:
        given = _merge(given, spell_out(layer))
    if source is None:
        given = _merge({"env": {"protocol": default_protocol(_env_id(given))}}, given)
    envs = EnvFactory(override(EnvConfig(), given.get("env", {}), KINDS, "env"), source)
    profile = profile or usual_profile(preset, envs.observation_spec)
    alone = {} if envs.reusable else {"num_envs": 1}  # overrides a profile that sets more
    plain = _merge({"env": {"id": envs.name} | alone}, given)
    return Resolved(_config_of(preset, profile, plain, envs), envs, plain)


def _config_of(preset: str, profile: str, given: Mapping[str, Any], envs: EnvFactory) -> Config:
    """Resolve the settings, and record what actors and a saved agent cannot find out.

    This is whether masks are used, and which modules of the user's own the parts come from.
    """
    settings = _merge(given, {"env": {"action_masks": envs.mask_use}})
    config = resolve_for_spec(preset, profile, settings, envs.observation_spec)
    check_imported(config.imports)
    return replace(config, imports=tuple(sorted({*config.imports, *modules_behind(config)})))


def usual_profile(preset: str, spec: ObservationSpec) -> str:
    """Return the name of the profile that a preset uses by default for these observations."""
    suited = default_profile(spec)
    return PRESETS[preset].atari_profile if suited == "atari" else suited


def _env_id(given: Mapping[str, Any]) -> str:
    """Return the environment id in the settings, or the default id."""
    env = given.get("env")
    name = env.get("id") if isinstance(env, Mapping) else None
    return name if isinstance(name, str) else EnvConfig().id


def _merge(under: Mapping[Any, Any], upper: Mapping[Any, Any]) -> dict[Any, Any]:
    """Merge nested settings before they are validated, so that only the result must be valid.

    A part of another kind replaces the lower part altogether, because its settings differ.
    """
    if "kind" in under and "kind" in upper and under["kind"] != upper["kind"]:
        return dict(upper)
    merged = dict(under)
    for name, value in upper.items():
        below = merged.get(name)
        merged[name] = _merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def split_names(plain: object) -> tuple[str | None, str | None, dict[str, Any]]:
    """Split plain settings, such as a run's config.json, into preset, profile (None if not named) and the rest."""
    if not isinstance(plain, Mapping):
        raise ConfigError(f"the settings must be a mapping of names to values, but are {brief(plain)}.")
    rest = dict(plain)
    preset, profile = rest.pop("preset", None), rest.pop("profile", None)
    for kind, name in (("preset", preset), ("profile", profile)):
        if not isinstance(name, str | None):
            raise ConfigError(f"the {kind} must be a name, but is {brief(name)}.")
    return preset, profile, rest


def spell_out(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which a part that is given by its name, as in `head: qr`, is a mapping with this `kind`."""
    parts = ("head", "explorer", "torso", "replay")
    return {
        name: {"kind": value} if name in parts and isinstance(value, str) else value for name, value in plain.items()
    }


def with_kinds(preset: str, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Add the preset's `kind` to each part whose settings name none, so that a flag for another kind replaces them."""
    _check_names(preset, None)
    named = spell_out(plain)
    for part in ("head", "explorer", "replay"):
        own = getattr(PRESETS[preset], part)
        if own is not None and isinstance(named.get(part), Mapping):
            named[part] = {"kind": kind_of(own, KINDS)} | dict(named[part])
    return named


def resolve_for_spec(preset: str, profile: str, settings: Mapping[str, Any], spec: ObservationSpec) -> Config:
    """Resolve the settings from the observation spec alone, without making the environment."""
    _check_names(preset, profile)
    row, kind, suited = PRESETS[preset], PROFILES[profile], default_torso(spec)
    torso = kind.torsos.get(suited, suited)
    config = Config(
        preset=preset,
        profile=profile,
        torso=TORSOS[torso](),
        head=row.head,
        explorer=row.explorer,
        replay=row.replay or kind.replay,
        n_step=row.n_step or kind.n_step,
        double_q=row.double_q,
        noisy=row.noisy,
        dueling=row.dueling,
    )
    of_parts = {
        "torso": kind.torso_settings.get(_kind_given(settings, "torso") or torso, {}),
        "head": kind.heads.get(_kind_given(settings, "head") or kind_of(row.head, KINDS), {}),
        "explorer": kind.explorers.get(_kind_given(settings, "explorer") or kind_of(row.explorer, KINDS), {}),
    }
    layers = (
        kind.of_run(reduce(_merge, (row.settings, settings), kind.settings)),
        of_parts,
        row.settings,
        row.atari if profile == "atari" else {},
        settings,
    )
    return override(config, reduce(_merge, layers, _suited(kind.settings, config, settings)), KINDS)


def _suited(usual: Mapping[str, Any], config: Config, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usual settings of a profile without those that a head of the user's own does not have."""
    head: Any = HEADS.get(_kind_given(settings, "head") or "", type(config.head))
    known = {setting.name for setting in fields(head)}
    return {**usual, "head": {name: value for name, value in usual.get("head", {}).items() if name in known}}


def shortened_evaluation(resolved: Resolved) -> str | None:
    """Say that evaluations are shorter than the profile's because the run is short; None if they are not."""
    profile, config = PROFILES[resolved.config.profile], resolved.config.evaluation
    given = resolved.given.get("evaluation", {})
    flags = [
        f"--evaluation.{name} {full}"
        for name in ("episodes", "steps")
        if name not in given and getattr(config, name) < (full := profile.settings["evaluation"].get(name, 0))
    ]
    if not profile.proportional_evaluation or not flags:
        return None
    length = f"{config.steps:,d} steps" if config.steps else f"{config.episodes} episode{'s' * (config.episodes > 1)}"
    return f"evaluations take {length}, in proportion to the short run; {' '.join(flags)} makes them as long as usual"


def _kind_given(settings: Mapping[str, Any], part: str) -> str | None:
    """Return the kind of a part if the settings name one."""
    given = settings.get(part)
    kind = given.get("kind") if isinstance(given, Mapping) else None
    return None if kind is None else str(kind)


def _check_names(preset: str, profile: str | None) -> None:
    if preset not in PRESETS:
        raise unknown_name("the preset", preset, PRESETS)
    if profile is not None and profile not in PROFILES:
        raise unknown_name("the profile", profile, PROFILES)
