#!/bin/sh
# Shows one launch: what cron would start each minute, in nine seconds, with a store of its own.
set -eu
cd "$(dirname "$0")"
scratch=$(mktemp -d /tmp/pc-XXXXXX)
export XDG_DATA_HOME="$scratch" XDG_STATE_HOME="$scratch" XDG_CACHE_HOME="$scratch"
export POLLCONSUMER_CONFIG="$PWD/first_launch.toml"
trap 'pollconsumer store stop; rm -rf "$scratch"' EXIT

step() { printf '\n# %s\n' "$1"; }
show() { printf '$ %s\n' "$*"; "$@"; }

step "Three messages: one for now, one that is due in 3 seconds, one whose handler fails the first time."
show pollconsumer enqueue greet '{"name": "Ada"}'
show pollconsumer enqueue greet '{"name": "Grace, 3 seconds later"}' --in 3s
show pollconsumer enqueue flaky "{\"token\": \"$$\"}"
show pollconsumer status

step "What cron would start every minute. While it idles, another process enqueues a message."
(sleep 5; python -c 'import time, hello
hello.greet.enqueue(name="from another process")
hello.greet.enqueue(name="from there again", enqueued=time.time())') &
show pollconsumer run
wait

step "The launch ended by itself, before its 9 seconds were over. This is what it did:"
show pollconsumer launches
printf '\n'
show pollconsumer list
