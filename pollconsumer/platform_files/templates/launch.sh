#!/bin/sh
# A launch of pollconsumer in a container, started by the crontab of this machine: no supervisor, no restart policy.
# With arguments it is another command: sh launch.sh status
# --init is not needed: the launch handles signals as process 1. --stop-timeout: the longest handler, and 15 s.
exec docker run --rm \
  --label $label \
  --env-file $environment_file \
  $network
  --env HOME=/tmp \
  --read-only --tmpfs /tmp \
  --cap-drop ALL --security-opt no-new-privileges \
  --memory ${memory}m --pids-limit $tasks \
  --stop-timeout $stop_grace \
  --log-driver none \
  $image "$$@"
