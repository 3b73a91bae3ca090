#!/bin/sh
# A launch of pollconsumer in a one-off dyno of Heroku, from the top of the slug. Heroku Scheduler starts it every ten
# minutes, each hour or each day, now and then not at all, and ends a dyno that has run for its interval: so a launch is gone
# before the next tick (--launcher drop).
# requirements.txt names pollconsumer, and what your handlers need.
# Install: commit this file; heroku addons:create scheduler:standard; heroku addons:open scheduler, and there the job
#   $script
#   $interval. Config vars: heroku config:set$set
# Dynos are counted while they run: a launch ends 30 s after the last message. Without --linger it ends at once.
# Watch: heroku logs --ps scheduler; pollconsumer launches
# Stop: remove the job in the dashboard; heroku ps:stop scheduler.N ends a launch that runs
set -eu
$store
exec $run
