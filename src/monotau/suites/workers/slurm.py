"""A suite as a Slurm job array: one task for each cell, each of which goes on where it was cut off."""

import shlex
from pathlib import Path

MINUTES_TO_STOP = 2


def array_script(name: str, out: Path, cells: int, threads: int, gigabytes: int, words: list[str]) -> str:
    """Return a script for sbatch; `words` is the command that runs the cell whose index is added to it."""
    command = " ".join(shlex.quote(word) for word in words)
    return f"""#!/bin/bash
#SBATCH --job-name={shlex.quote(f"monotau-{name}")}
#SBATCH --array=0-{cells - 1}%100
#SBATCH --cpus-per-task={threads}
#SBATCH --mem={gigabytes}G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@{MINUTES_TO_STOP * 60}
#SBATCH --output={out.resolve() / "logs" / "slurm_%A_%a.log"}
# A task that is cut off, by time or by others, goes on from its last checkpoint when it is started again.
# Tasks that ran out of time are started again by submitting this script again; finished ones only say so.
# For a GPU add: #SBATCH --gres=gpu:1
export OMP_NUM_THREADS={threads} OMP_WAIT_POLICY=PASSIVE
exec srun {command} --index "$SLURM_ARRAY_TASK_ID"
"""
