// A launch of pollconsumer as a cron service of Railway, every five minutes at most, and minutes late now and then. Railway
// skips a tick at which the launch before is alive: so it is gone before (--launcher drop). Time is counted: it ends 30 s
// after the last message. requirements.txt names pollconsumer, and what your handlers need. Words in capitals are yours.
// Install: commit it, and: railway link; railway config apply --file .railway/$name.ts
$set
// Watch: railway logs --service $name; pollconsumer launches
// Stop: without cronSchedule, railway config apply again; remove the deployment that runs in the dashboard
import { defineRailway, github, preserve, project,$redis service } from "railway/iac";

// What this file does not name, it leaves alone.
export const partial = "$name";

export default defineRailway((ctx) => {
  $store
  const launch = service("$name", {
    source: github("OWNER/REPOSITORY"),
    start: $start,
    deploy: {
      cronSchedule: $schedule,    // in UTC
      restartPolicyType: "NEVER",     // the next launch is the retry
    },
    env: {
      // From SIGTERM to SIGKILL: the longest handler, and 15 s. 0 by default: a deployment would kill a launch at work.
      RAILWAY_DEPLOYMENT_DRAINING_SECONDS: "$stop_grace",
      $environment
      // Name what your handlers need, too, as OTHER: preserve(), which keeps its value: what is not named is removed.
    },
  });
  return project(ctx.projectName!, { resources: [$resources] });
});
