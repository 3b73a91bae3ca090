"""What commands print with ``--json``: key, type, an example, and what it is where the key does not say it.

A test compares this with what the commands print. Nested keys have dots; those of objects in a list, too.
"""

from __future__ import annotations

_MESSAGE = """
id                          text                      "a"
queue                       text                      "default"
handler                     text                      "mail.send"
state                       text                      "completed"                    of `State` in [the API](api.md)
priority                    whole number              0                              smaller is sooner
order_key                   text or null              null
attempts                    whole number              1                              since the last redrive
generation                  whole number              0                              how often it was redriven
payload                     object or null            {"to": "ada@example.org"}      null: dropped, or malformed
headers                     object                    {"trace": "4f2"}
created_by                  text or null              "ada"                          the header `created-by`
expires_at                  instant or null           null
last_error                  text or null              "ValueError: no such address"
traceback                   text or null              null
waits_for_concurrency_key   true or false             false
waits_for_message           text or null              null                           the one before it by its order key
waits_for_rate_key          true or false             false
result                      any                       {"sent": 1}                    null: none, or no longer kept
stop_asked_at               instant or null           null
progress                    object or null            {"done": 3, "total": 10, "note": "third"}  and `at`, an instant
timestamps                  object                                                   null: it has not happened
timestamps.scheduled_at     instant or null           "2026-11-27T08:00:00.000Z"     accepted
timestamps.due_at           instant or null           null
timestamps.enqueued_at      instant or null           "2026-11-27T08:00:00.000Z"     ready
timestamps.reserved_at      instant or null           "2026-11-27T08:00:00.004Z"
timestamps.started_at       instant or null           "2026-11-27T08:00:00.005Z"  in flight: up to 0.4 s late
timestamps.completed_at     instant or null           "2026-11-27T08:00:00.105Z"
timestamps.failed_at        instant or null           null                           its last failed attempt
timestamps.next_attempt_at  instant or null           null
timestamps.dead_at          instant or null           null
timestamps.cancelled_at     instant or null           null
timestamps.expired_at       instant or null           null
durations                   object
durations.waited_seconds    seconds or null           0.004                          ready, until it was reserved
durations.handled_seconds   seconds or null           0.1
"""
_WORK = """checkpoint                  object or null            null
steps                       list of object                                           see [long work](../long-work.md)
steps.name                  text                      "charge"
steps.at                    instant                   "2026-11-27T08:00:00.050Z"     recorded
steps.result                any                       {"paid": true}
steps.until                 instant or null           null                           of a sleep or a wait: its end
awaits                      text or null              null                           the name of a signal
signals                     list of objects
signals.name                text                      "approved"
signals.at                  instant                   "2026-11-27T08:00:00.060Z"     sent
signals.value               any                       {"by": "ann"}
"""
_LOG = """log                         list of object  of each attempt that logged anything
log.attempt                 whole number              1
log.at                      instant                   "2026-11-27T08:00:00.004Z"     reserved for it
log.text                    any                       "2026-11-27T08:00:00.010Z info mail: sent\\n"
"""
_QUEUE = """
name                        text                      "default"
ready                       whole number              3
reserved                    whole number              1
started                     whole number              1                              those of the reserved
scheduled                   whole number              2
completed                   whole number              940                            that are kept
dead                        whole number              0
cancelled                   whole number              0                              that are kept
expired                     whole number              0                              that are kept
parked                      whole number              0                              without a known handler
paused                      true or false             false
resumes_in_seconds          seconds or null           null                           of a pause that ends by itself
overdue                     whole number              0                              due, and not promoted
skipped                     whole number              0                              occurrences, ever
oldest_ready_seconds        seconds or null           0.2
completed_per_minute        number or null            12.0
waited_seconds              seconds or null           0.004                          mean of the last ones
handled_seconds             seconds or null           0.1                            mean of the last ones
late_seconds                seconds or null           0.02                           mean of the last ones
"""
_WORKING_ON = """
working_on                  list of object            []                             what it handles beyond its window
working_on.handler          text                      "render"
working_on.queue            text                      "default"
working_on.id               text                      "f"
working_on.since            instant                   "2026-11-27T08:00:10.000Z"
working_on.until            instant                   "2026-11-27T08:05:10.000Z"     at most
"""
_LAUNCH = f"""
launch_id                   text                      "29b67a5cb9f0117e"
role                        text                      "consumer"                     or `mover`
running_seconds             seconds                   58.1
stop_reason                 text or null              "no_time_to_handle"            null: it runs
exit_code                   whole number or null      0                              null: it runs; -1: it died
handled                     whole number              12
failed                      whole number              1
released                    whole number              0
yielded                     whole number              0
longer_than_window          whole number              0                              messages, of one attempt each
average_seconds             seconds                   0.1                            of a handling
margin_seconds              seconds                   0.5
gap_seconds                 seconds or null           0.1                            since the lease was released
waited_seconds              seconds or null           0.3                            for the lease
missed_ticks                whole number              0                              without a launch, before it
skipped                     whole number              0                              launches that found its lease held
launch_offset_seconds       seconds or null           0.6                            after its tick
exit_seconds                seconds or null           0.1                            from stop to exit, but for alarms
platform                    text                      "cron"                         empty: not known
launcher                    text                      "parallel"
run_id                      text or null              null                           of the platform
host                        text                      "web1"
pid                         whole number              4711
config                      text                      "/srv/app/config.toml"
started_at                  instant or null           "2026-11-27T08:00:00.600Z"
fence                       whole number or null      1795758971031
queues                      list of text              ["default"]
{_WORKING_ON}"""
_WINDOW = """
launcher                    text                      "parallel"
platform                    text or null              "cron"
observed                    object or null            null                           what ticks have shown
launch_offset_seconds       seconds or null           0.6
exit_seconds                seconds or null           0.1
margin_seconds              seconds                   0.4
schedule                    text or null              "* * * * *"
next_launches               list of instant           ["2026-11-27T08:01:00.000Z"]
window_seconds              seconds                   60.0
stop_before                 instant                   "2026-11-27T08:02:00.000Z"
hard_end                    instant                   "2026-11-27T08:02:10.000Z"     the watchdog's
"""
_HELD = f"""
fence                       whole number              1795758971031
since                       instant                   "2026-11-27T08:00:00.600Z"
{_WORKING_ON}"""
_LEASE = """
role                        text                      "consumer"
slot                        whole number              0
queues                      list of text              ["default"]
holder                      text                      "29b67a5cb9f0117e"             a launch
"""
_LEFT = """
left                        list of text              []                             ids
"""
_BATCH = """
id                          text                      "import-42"
state                       text                      "open"                         or another of `list --state`
total                       whole number              0                              open: what members added
outstanding                 whole number              0
completed                   whole number              0
dead                        whole number              0
cancelled                   whole number              0
expired                     whole number              0
created_at                  instant                   "2026-11-27T08:00:00.000Z"
ended_at                    instant or null           null
expires_at                  instant or null           null
"""


def _below(key: str, kind: str, lines: str) -> str:
    """The line of an object, and those of its keys."""
    nested = "\n".join(f"{key}.{line}" for line in lines.splitlines() if line)
    return f"{key}  {kind}\n{nested}\n"


ENQUEUE = 'enqueue record \'{"name": "a"}\' --id a --header trace=4f2'
TEXTS = {
    ENQUEUE: """
id                          text                      "a"
duplicate                   true or false or null     false                          null: spooled
""",
    "status a": f"{_MESSAGE}{_WORK}{_LOG}",
    "status": _below("queues", "list of object", _QUEUE)
    + """
overdue                     whole number              0
mover_seen_seconds_ago      seconds or null           12.0
"""
    + _below("leases", "list of object", f"{_LEASE}{_HELD}")
    + """
unreachable                 list of text              []                             queues of lost nodes
paused_handlers             list of text              []
"""
    + _below("launches", "list of object", _LAUNCH),
    "list": _MESSAGE,
    "dead list": _MESSAGE,
    "dead show f": f"{_MESSAGE}raw                         text or null              null\n{_LOG}",
    "dead redrive f": f"redriven                    whole number              1\n{_LEFT}",
    "dead purge --yes g": f"purged                      whole number              1\n{_LEFT}",
    "cancel --handler record --queue other": """
would_be_cancelled          whole number              2                              without `--yes`
""",
    "cancel --handler record --queue other --yes": f"cancelled                   whole number              2\n{_LEFT}",
    "queue list": _QUEUE,
    "queue purge other": """
would_be_purged             whole number              2                              without `--yes`
""",
    "queue purge other --yes": f"purged                      whole number              2\n{_LEFT}",
    "recurrences pause --prefix hour": """
would_be_paused             whole number              1                              without `--yes`
""",
    "recurrences pause --prefix hour --yes": f"paused                      whole number              1\n{_LEFT}",
    "recurrences resume --prefix hour --yes": f"resumed                     whole number              1\n{_LEFT}",
    "recurrences remove --prefix hour --yes": f"removed                     whole number              1\n{_LEFT}",
    "recurrences list": """
name                        text                      "hourly"
rule                        text or null              "every 1h"                     null: unreadable
timezone                    text or null              "UTC"
handler                     text or null              "report"
queue                       text                      "default"
payload                     object or null            {}
enabled                     true, false or text       true                           or `paused`, `ended`
next                        instant or null           "2026-11-27T09:00:00.000Z"
missed                      text or null              "once"
overlap                     text or null              "allow"
enqueued                    whole number              1
skipped                     whole number              0
last                        text or null              "hourly@2026-11-27T08:00:00Z"  id of a message
last_state                  text or null              "completed"
last_result                 any                       null
previous                    object or null                                           the last that was completed
previous.instant            instant                   "2026-11-27T08:00:00.000Z"
previous.completed_at       instant                   "2026-11-27T08:00:00.105Z"
previous.result             any                       null
owners                      list of text              []                             groups of launches
headers                     object or null            {}
times                       whole number or null      null
expires_seconds             seconds or null           null                           after its instant, the latest start
timeout_seconds             seconds or null           null                           null: its handler's
max_attempts                whole number or null      null
retry                       text or null              null
concurrency_key             text or null              null
concurrency_limit           whole number or null      null
order_key                   text or null              null
rate_key                    text or null              null
rate                        text or null              null
until                       instant or null           null
created_by                  text or null              null
created_at                  instant or null           "2026-11-27T07:58:00.000Z"
ping                        text or null              null                           without its secret
error                       text or null              null                           why it is unreadable
""",
    "recurrences history hourly": """
id                          text                      "hourly@2026-11-27T08:00:00Z"
instant                     instant                   "2026-11-27T08:00:00.000Z"
state                       text                      "completed"
attempts                    whole number              1
late_seconds                seconds or null           0.1
handled_seconds             seconds or null           0.1
result                      any                       null
last_error                  text or null              null
""",
    "recurrences trigger hourly": """
id                          text                      "hourly@2026-11-27T08:00:00Z"
duplicate                   true or false             false
""",
    "batch list": _BATCH,
    "batch members import-42": _MESSAGE,
    "batch show import-42": f"""{_BATCH.rstrip()}
callbacks                   list of object
callbacks.name              text                      "then"                         or failed, ended
callbacks.handler           text                      "report"
callbacks.message_id        text                      "import-42:then"
callbacks.queue             text                      "default"
callbacks.state             text or null              "waiting"                      null: not called, or no longer kept
""",
    "batch cancel import-42": """
would_be_cancelled          whole number              2                              without `--yes`
""",
    "batch cancel import-42 --yes": """
cancelled                   whole number              2
asked_to_stop               whole number              0                              members in flight
""",
    "rerun a": """
id                          text                      "01a1f57868d825b653c74bd6b9c7" the new message
queue                       text                      "mail"
rerun_of                    text                      "a"
""",
    "batch redrive import-42": f"redriven                    whole number              1\n{_LEFT}",
    "launches": _LAUNCH,
    "audit": """
at                          instant                   "2026-11-27T08:01:00.000Z"
who                         text                      "ada@web1"                     `user@host` of a command
what                        text                      "redrive"
queue                       text                      "mail"
names                       list of text              ["f"]                          the first twenty; empty: a queue
number                      whole number              1
verified                    true or false             true                           false: noted by an earlier version
""",
    "lease show": f"""{_LEASE}
host                        text                      "web1"
pid                         whole number              4711
{_HELD}""",
    "check": """
config                      text or null              "/srv/app/config.toml"
store                       text                      "embedded"                     without a password
primary                     text or null              null                           by Sentinels
namespace                   text                      "pollconsumer"
pings                       text or null              null
alarms                      list of text              []                             who is told of findings
data                        text or null              "/home/ada/.local/share/pollconsumer"
spool                       text or null              null
server                      text or null              "/usr/bin/valkey-server"       of the embedded server's start
owners                      object                    {}                             path → its owner, if another
group_writable              list of text              []
state                       text or null              "/home/ada/.local/state/pollconsumer"
queues                      list of text              ["default"]
handlers                    list of text              ["report"]
aliases                     object                    {}                             alias → its handler
commands                    object                    {}                             handler → command, queue, timeout
long_work                   object                    {}                             handler → what waits for it
not_begun_by_url            object                    {}                             handler → why, what to do
unserved                    text or null              null                           how much, and what helps
rates                       object
rates.queues                object                    {}
rates.handlers              object                    {}
recurrences                 list of text              []
next_occurrences            object                    {}                             recurrence → rule, zone, instant
queues_not_served           list of text              []
queues_served_elsewhere     list of text              []
arguments_not_checked       object                    {}                             argument → why
"""
    + _below("consumer", "object", _WINDOW)
    + _below("mover", "object", _WINDOW),
    "check --compat": """
ok                          true or false             false                          then it exits with 69, 77 or 78
lacks                       list of objects
lacks.step                  text                      "commands"                     what was tried
lacks.problem               text                      "answered otherwise: 0, not 1"
""",
    "doctor": """
well                        true or false             false                          then it exits with 1
server                      text                      "Valkey 9.1.2"
program                     text or null              "/usr/bin/valkey-server"       of the embedded server
findings                    list of object
findings.name               text                      "dead_letters"                 the same for each of a kind
findings.subject            text or null              "default"                      queue, handler or recurrence
findings.what               text                      "queue default has new dead letters"
findings.value              text                      "1 in the last 1h"
findings.fix                text                      "redrive or purge them"
""",
    "store status": """
running                     true or false             true                           if false, the only key
pid                         whole number              4700
version                     text                      "Valkey 9.1.2"
uptime_seconds              seconds                   86400
used_memory_bytes           bytes                     2216208
aof_enabled                 true or false             true
durability                  text                      "everysec"                     or `strict`
socket                      text                      "/home/ada/.local/share/pollconsumer/server.sock"
directory                   text                      "/home/ada/.local/share/pollconsumer"
program                     text                      "/usr/bin/valkey-server"
""",
    "store path": """
directory                   text                      "/home/ada/.local/share/pollconsumer"
socket                      text                      "/home/ada/.local/share/pollconsumer/server.sock"
log                         text                      "/home/ada/.local/share/pollconsumer/server.log"
url                         text                      "unix:///home/ada/.local/share/pollconsumer/server.sock?db=0"
""",
    "store export store.ndjson --yes": """
messages                    whole number              1000000
elements                    whole number              5000000
keys                        whole number              34
digest                      text                      "bd6a7a3942e91f4f65c5639cd11bbdb7"
namespace                   text                      "shop"                      or `namespaces`, an array
""",
}
"""By command: a line a key."""
