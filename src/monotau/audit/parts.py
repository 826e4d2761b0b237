"""The work of an audit in parts: a few states each, which one process visits, audits and hands back as a file."""

import hashlib
import io
import json
import multiprocessing
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from monotau.agent import Agent
from monotau.audit.curves import Curve
from monotau.audit.rollouts import ActionChoice, Player, StateAudit, audit_states, visit
from monotau.audit.snapshots import Snapshots, snapshots_of
from monotau.audit.summary import Pair
from monotau.config.imports import import_parts
from monotau.errors import ConfigError, EnvironmentFault
from monotau.networks.devices import torch_threads
from monotau.seeding import stream_seed

STATES_PER_PART = 4
NO_PICTURE = np.zeros((0, 0, 3), np.uint8)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some states of one agent; equal parts give equal results."""

    agent: str
    """Directory of the agent."""
    env: str | None
    """Id of the environment, if it must not be taken from the files."""
    weights: str
    """Hash of the agent's weights."""
    index: int
    states: int
    rollouts: int
    actions: ActionChoice
    seed: int
    beyond_truncation: bool

    @property
    def name(self) -> str:
        """Name of its file, which another audit of the same agent finds again."""
        about = {name: value for name, value in vars(self).items() if name not in ("agent", "index", "states")}
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
        return f"{digest[:16]}-{self.index:04d}-{self.states}.npz"


def parts_of(
    agent: Path,
    env: str | None,
    weights: str,
    states: int,
    *,
    rollouts: int,
    actions: ActionChoice,
    seed: int,
    beyond_truncation: bool,
) -> list[Part]:
    """Split the states of an audit."""
    return [
        Part(
            agent=str(agent),
            env=env,
            weights=weights,
            index=index,
            states=min(STATES_PER_PART, states - start),
            rollouts=rollouts,
            actions=actions,
            seed=seed,
            beyond_truncation=beyond_truncation,
        )
        for index, start in enumerate(range(0, states, STATES_PER_PART))
    ]


@lru_cache(maxsize=1)
def _loaded(agent: str, env: str | None, weights: str) -> tuple[Player, Snapshots]:
    """Load an agent once for all of its parts; `weights` is in the key so that a changed agent is loaded again."""
    loaded = Agent.load(agent, env)
    if loaded.envs is None:
        raise ConfigError(f"the environment of the agent in {agent} cannot be made.")
    return Player(loaded), snapshots_of(loaded.envs)


def run_part(part: Part) -> bytes:
    """Visit and audit the states of a part, and return them as the contents of its file."""
    with torch_threads(1):
        player, snapshots = _loaded(part.agent, part.env, part.weights)
        seed = stream_seed(part.seed, "audit", part.index)
        visits = visit(player, snapshots, part.states, seed)
        return pack(
            audit_states(
                player,
                snapshots,
                visits,
                rollouts=part.rollouts,
                actions=part.actions,
                seed=seed,
                beyond_truncation=part.beyond_truncation,
            )
        )


def run_parts(parts: Sequence[Part], jobs: int, modules: Sequence[str] = ()) -> Iterator[tuple[Part, bytes]]:
    """Run parts in this process or in several, and yield each with its file when it is done.

    Other processes import the modules that the user has named to this one.
    """
    if jobs == 1 or len(parts) <= 1:
        yield from ((part, run_part(part)) for part in parts)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        min(jobs, len(parts)), mp_context=context, initializer=import_parts, initargs=tuple(modules)
    )
    try:
        running = {pool.submit(run_part, part): part for part in parts}
        for future in as_completed(running):
            yield running[future], future.result()
    except BrokenProcessPool:
        raise EnvironmentFault("a process of the audit was killed; use fewer --jobs if memory is short.") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()


def pack(audits: Sequence[StateAudit]) -> bytes:
    """Return audited states as a file of arrays."""
    arrays: dict[str, np.ndarray] = {}
    for place, audit in enumerate(audits):
        own = {
            "about": np.array([audit.episode, audit.step, audit.greedy], np.int64),
            "actions": np.array(audit.actions, np.int64),
            "edges": np.stack([curve.edges for curve in audit.curves]),
            "left": np.stack([curve.left for curve in audit.curves]),
            "right": np.stack([curve.right for curve in audit.curves]),
            "crossing": audit.crossing,
            "returns": audit.returns,
            "steps": audit.steps,
            "unmeasured": audit.unmeasured,
            "picture": NO_PICTURE if audit.picture is None else audit.picture,
        }
        arrays |= {f"{name}_{place}": array for name, array in own.items()}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # its stub takes every keyword for an option
    return file.getvalue()


def unpack(data: bytes) -> list[StateAudit]:
    """Read what `pack` wrote; anything else raises ValueError."""
    try:
        with np.load(io.BytesIO(data)) as arrays:
            count = sum(name.startswith("about_") for name in arrays)
            return [
                _unpacked({name.rpartition("_")[0]: arrays[name] for name in arrays if name.endswith(f"_{place}")})
                for place in range(count)
            ]
    except (KeyError, IndexError, TypeError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise ValueError(f"not a part of an audit: {error}") from None


def _unpacked(own: Mapping[str, np.ndarray]) -> StateAudit:
    episode, step, greedy = (int(number) for number in own["about"])
    return StateAudit(
        episode=episode,
        step=step,
        greedy=greedy,
        actions=tuple(int(action) for action in own["actions"]),
        curves=tuple(Curve(*three) for three in zip(own["edges"], own["left"], own["right"], strict=True)),
        crossing=own["crossing"],
        returns=own["returns"],
        steps=own["steps"],
        unmeasured=own["unmeasured"],
        picture=own["picture"] if own["picture"].size else None,
    )


def read_part(path: Path, part: Part) -> list[StateAudit] | None:
    """Read the file of a part; None if there is none, or if it is damaged and must be computed again."""
    with suppress(OSError, ValueError):
        audits = unpack(path.read_bytes())
        if len(audits) == part.states and all(audit.returns.shape[1] == part.rollouts for audit in audits):
            return audits
    return None


def pairs_of(parts: Sequence[Sequence[StateAudit]]) -> list[Pair]:
    """Return all pairs of states and actions, with states and episodes numbered throughout."""
    pairs, state, episode = [], 0, 0
    for audits in parts:
        for audit in audits:
            for place, action in enumerate(audit.actions):
                pairs.append(
                    Pair(
                        state=state,
                        episode=episode + audit.episode,
                        step=audit.step,
                        action=action,
                        greedy=action == audit.greedy,
                        crossing=float(audit.crossing[place]),
                        curve=audit.curves[place],
                        returns=audit.returns[place],
                        steps=audit.steps[place],
                        measured=not audit.unmeasured[place].any(),
                    )
                )
            state += 1
        episode += 1 + max(audit.episode for audit in audits)
    return pairs
