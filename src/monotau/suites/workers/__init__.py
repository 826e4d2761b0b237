"""Where a suite's runs execute: this machine, Ray or Slurm."""
