#!/bin/bash
# Slurm: a batch job that sorts three million lines within 48 MiB. sbatch --wait job.sh
#SBATCH --job-name=sort
#SBATCH --output=sort.out
#SBATCH --mem=200M
srun terapage run --memory 48M --store "${TMPDIR:-/tmp}" -- \
    sh -c 'seq 3000000 | LC_ALL=C sort -S 512M --parallel=1 | cksum'
