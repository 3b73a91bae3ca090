// A launch of pollconsumer as a cron service of Railway, every five minutes at most, and minutes late now and then. Railway
// skips a tick at which the launch before is alive: so it is gone before (--launcher drop). Time is counted: it ends 30 s
// after the last message. requirements.txt names pollconsumer, and what your handlers need. Words in capitals are yours.
// Install: commit it, and: railway link; railway config apply --file .railway/pollconsumer.ts
//   railway variable set POLLCONSUMER_STORE=… --service pollconsumer
// Watch: railway logs --service pollconsumer; pollconsumer launches
// Stop: without cronSchedule, railway config apply again; remove the deployment that runs in the dashboard
import { defineRailway, github, preserve, project, service } from "railway/iac";

// What this file does not name, it leaves alone.
export const partial = "pollconsumer";

export default defineRailway((ctx) => {
  const launch = service("pollconsumer", {
    source: github("OWNER/REPOSITORY"),
    start: "pollconsumer run --config config.toml --schedule '*/5 * * * *' --until-empty --timeout 300s --linger 30s --launcher drop",
    deploy: {
      cronSchedule: "*/5 * * * *",    // in UTC
      restartPolicyType: "NEVER",     // the next launch is the retry
    },
    env: {
      // From SIGTERM to SIGKILL: the longest handler, and 15 s. 0 by default: a deployment would kill a launch at work.
      RAILWAY_DEPLOYMENT_DRAINING_SECONDS: "45",
      POLLCONSUMER_STORE: preserve(),
      // Name what your handlers need, too, as OTHER: preserve(), which keeps its value: what is not named is removed.
    },
  });
  return project(ctx.projectName!, { resources: [launch] });
});
