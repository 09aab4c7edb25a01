#!/bin/bash
# On a spot instance, as its user data: BUCKET=s3://bucket/runs/a examples/cluster/spot.sh
# Its disk is new in each life. The bucket has the checkpoints (CheckpointHook's mirror), and resume: auto fetches the
# newest one. needs: pip install 'ignite-hooks[remote]' and credentials, such as the role of the instance.
python examples/cluster/train.py --work-dir "${DISK:-/tmp/run}" --mirror "$BUCKET" "$@" &
training=$!
trap 'kill -TERM "$training"' TERM

# Two minutes before the end this address answers. SIGTERM saves, and waits up to 10 s for the bucket.
NOTICE=${NOTICE:-http://169.254.169.254/latest/meta-data/spot/instance-action}
while kill -0 "$training" 2>/dev/null; do
    if curl --silent --fail --max-time 1 --output /dev/null "$NOTICE"; then kill -TERM "$training"; break; fi
    sleep "${PAUSE:-5}" & wait $!
done
until wait "$training"; code=$?; ! kill -0 "$training" 2>/dev/null; do :; done
exit "$code"
