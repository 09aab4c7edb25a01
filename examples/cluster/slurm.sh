#!/bin/bash
# sbatch examples/cluster/slurm.sh --work-dir /shared/runs/a
#SBATCH --job-name=train
#SBATCH --nodes=1 --ntasks-per-node=2     # a task for each device; add --gpus-per-task=1
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@300                 # all tasks hear of the limit five to six minutes before it
#SBATCH --requeue --open-mode=append      # the next life goes on in the same log
#SBATCH --output=%x-%j.txt

# In the configuration: signals: {USR1: save}, requeue: true, resume: auto. At USR1 the run saves, and rank 0 asks
# Slurm to start the job again, under the same number; cancelling it (SIGTERM) does not.
# Ignite finds rank, size and address of a task in what srun says; torchrun is not needed.
srun --kill-on-bad-exit=1 python examples/cluster/train.py "$@"
