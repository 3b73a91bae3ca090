#!/bin/bash
# A launch of pollconsumer as a triggered WebJob of Azure App Service on Linux (on Windows it would be another script), in
# an image that has bash: not Alpine.
# settings.job: six fields, seconds first. stopping_wait_time exceeds a whole launch, since a triggered job gets no
#   shutdown file, only this time (30 s by default) before it is killed. is_in_place false: in place, each start would kill
#   a launch that is alive. is_singleton is about continuous jobs only.
# Only run.sh and settings.job are in this folder: it is scanned at each start.
# Install: az webapp config appsettings set --settings @appsettings.json, az webapp config set --always-on true (without it
#   no schedule runs), and this folder to /home/site/wwwroot/App_Data/jobs/triggered.
# appsettings.json: WEBJOBS_IDLE_TIMEOUT, since a run without output and use of CPU is killed after 120 s by default;
#   WEBJOBS_HISTORY_SIZE, since 50 runs are 50 minutes. On staging slots also WEBJOBS_DISABLE_SCHEDULE=1.
# Watch: the WebJob's log in Kudu (each line of output is an append to shared storage); pollconsumer launches
# Stop: WEBJOBS_STOPPED=1; a launch that runs ends with its window.
set -eu
# deadline, and a margin above the default: the tick of a launch that is alive is dropped, and after its end Kudu still
# writes the run's status to shared storage before it releases its lock. The launch has to know the schedule, from here or
# from the configuration: without one it lasts beyond its tick.
exec $run
