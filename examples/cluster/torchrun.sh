#!/bin/bash
# On each of two machines: HEAD=10.0.0.1 examples/cluster/torchrun.sh --work-dir /runs/a
# HEAD is an address of the first machine; INTERFACE leads from each machine to the other. Where they share no disk, add
# --copies per_machine: each keeps the checkpoints.
export GLOO_SOCKET_IFNAME=${INTERFACE:-eth0} NCCL_SOCKET_IFNAME=${INTERFACE:-eth0}
address=$(ip -4 -o addr show dev "${INTERFACE:-eth0}" | awk '{split($4, part, "/"); print part[1]; exit}')
here=is_host=$([ "$address" = "$HEAD" ] && echo 1 || echo 0)

# Where a machine is lost, the other one goes on alone from the newest checkpoint (1:2: one is enough).
exec torchrun --nnodes "${NODES:-1:2}" --nproc-per-node "${DEVICES:-1}" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-endpoint "$HEAD:${PORT:-29500}" --rdzv-id "${RUN:-a}" --local-addr "$address" \
    --rdzv-conf "$here,last_call_timeout=${LAST_CALL:-30},keep_alive_interval=1,keep_alive_max_attempt=3" \
    examples/cluster/train.py "$@"
