"""What other queues call things → what they are called here."""

OPTIONS = {
    **dict.fromkeys(("countdown", "defer_by", "delay"), "in"),
    **dict.fromkeys(("defer_until", "eta", "run_after", "run_at"), "at"),
    **dict.fromkeys(("max_retries", "max_tries", "retries"), "max_attempts"),
    **dict.fromkeys(("autoretry_for", "backoff", "retry_backoff", "retry_delay"), "retry"),
    **dict.fromkeys(("job_timeout", "time_limit"), "timeout"),
    **dict.fromkeys(("job_id", "task_id"), "id"),
    "ttl": "expires",
    **dict.fromkeys(("tz", "time_zone"), "timezone"),
    "queue_name": "queue",
    "unique": "key",
}
FLAGS = {
    "burst": "until_empty",
    **dict.fromkeys(("max_jobs", "max_tasks"), "max_messages"),
}
STATES = {
    **dict.fromkeys(("deferred", "delayed"), "scheduled"),
    **dict.fromkeys(("pending", "queued", "todo", "waiting"), "ready"),
    **dict.fromkeys(("active", "doing", "running", "started"), "reserved"),
    **dict.fromkeys(("done", "finished", "succeeded", "success", "successful"), "completed"),
    **dict.fromkeys(("failed", "failure", "discarded"), "dead"),
    **dict.fromkeys(("aborted", "canceled", "revoked"), "cancelled"),
}
COMMANDS = {
    **dict.fromkeys(("consume", "consumer", "start", "work", "worker", "workers"), "run"),
    **dict.fromkeys(("call", "publish", "push", "send"), "enqueue"),
    **dict.fromkeys(("redrive", "replay", "requeue", "retry"), "dead redrive"),
    **dict.fromkeys(("jobs", "ls", "messages", "tasks"), "list"),
    **dict.fromkeys(("info", "inspect", "show", "stats"), "status"),
    **dict.fromkeys(("clear", "empty", "flush", "purge"), "queue purge"),
    **dict.fromkeys(("pause", "suspend"), "queue pause"),
    "resume": "queue resume",
    "queues": "queue list",
    **dict.fromkeys(("abort", "delete", "kill", "remove", "revoke", "rm"), "cancel"),
    **dict.fromkeys(("beat", "cron", "schedule", "scheduler"), "recurrences list"),
    **dict.fromkeys(("history", "log", "logs"), "launches"),
    **dict.fromkeys(("shutdown", "stop"), "init cron --uninstall"),
    "version": "--version",
    **{word: f"list --state {state}" for word, state in STATES.items()},
    **dict.fromkeys(("dlq", "failed", "failure"), "dead list"),
}
IN_GROUPS = {"cancel": ("cancel", "remove", "purge"), "init cron --uninstall": ("pause",)}
"""The command that a word means by itself → those of which a group has one that the word means there."""


def command_for(word: str, group: str, known: list[str]) -> str | None:
    """The command that is meant by ``word``, which is none of ``known`` in ``group``; None if it is nobody's word."""
    meant = COMMANDS.get(word.lower())
    verbs = IN_GROUPS.get(meant or "", ((meant or "").rpartition(" ")[2],))
    return next((f"{group} {verb}" for verb in verbs if group and verb in known), meant)
