"""Writes a suite as a Slurm job array with one task per cell, which resumes if it was interrupted."""

import shlex
from pathlib import Path

MINUTES_TO_STOP = 2


def array_script(name: str, out: Path, cells: int, threads: int, gigabytes: int, words: list[str]) -> str:
    """Return a script for sbatch; `words` is the command that runs a cell, to which the script adds `--index`."""
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
# A task that was preempted or ran out of time resumes from its last checkpoint when it is started again.
# Submit this script again to restart tasks that ran out of time; finished tasks exit at once.
# For a GPU add: #SBATCH --gres=gpu:1
export OMP_NUM_THREADS={threads} OMP_WAIT_POLICY=PASSIVE
exec srun {command} --index "$SLURM_ARRAY_TASK_ID"
"""
