# The common part of prolog, task-prolog and epilog, which read this file.
# shellcheck shell=bash

# shellcheck source=/dev/null
source "${TERAPAGE_SLURM_CONF:-/etc/terapage/slurm.conf}"
: "${DIRECTORY:?}" "${MEMORY:?}" "${PORT:?}"

job=${SLURM_JOB_ID:?}
[[ $job =~ ^[0-9]+$ ]] || exit 0
if [[ -n ${PARTITION:-} && ${SLURM_JOB_PARTITION:-} != "$PARTITION" ]]; then
    exit 0
fi
place=$DIRECTORY/$job
node=${SLURMD_NODENAME:-$(hostname -s)}
# What the server of this node says.
log=/run/terapage-far-$job.log
