"""Guards in what stories load, that the simulation does not miss, and why."""

from __future__ import annotations

_NO_USERS = "outside: the server in memory has no users, so that no right is lacking"
_NO_PROGRAM = "outside: nothing is put at run time, nor are occurrences looked back at"
_NO_TOTALS = "outside: nothing is said of totals"
_NO_END = "outside: results last longer than a story"
_WHOLE = "outside: no script is interrupted"
_NOT_FORGOTTEN = "outside: no story is so long that a batch or its members are forgotten"
_NOT_HEARD = "outside: heartbeats do not listen; whoever pauses a handler tells launches"
_AS_SAID = "outside: bulk handlers say what they should"
_ALONE = "outside: simulated producers enqueue one by one"
_WHERE_TAKEN = "outside: handlers add messages where they may"
_NO_COROUTINE = "outside: no handler is a coroutine function"

_NOT_FOREIGN = "outside: no other program writes to the keys"
_NO_COMMANDS = "outside: no command runs, and no configuration is looked for"
_NO_AUDIT = "outside: nobody looks at the audit log"
_SERVED = "outside: launches serve each queue"
_NO_RATES = "outside: no message has a rate"
_FEW_BATCHES = "outside: no queue has so many batches"
_NO_KILLER = "harmless there: no message kills whoever handles it"
_ANY_ORDER = "unseen: what was changed may be handled in any order"
_SELDOM_ONCE = "seldom: few launches die in a call at most once"
_SMALL = "outside: payloads are small"
_REPLACED_ALIKE = "harmless there: what replaces a second time has the payload of the first time"
_PARKED = "unseen: nobody lists what is parked"
_KEPT_OF_ENDED = "unseen: nobody looks at what is kept of messages that have ended"
_LONGER_WAIT = "unseen: a wait may last longer than it has to"
_NO_TIMES = "unseen: nobody asks when a message was begun or ended"

UNSEEN: dict[str, str] = {
    "runtime/handling/journal: a sleep ends": "unseen: nobody asks how long a sleep was",
    "runtime/handling/journal: a wait that has ended": (
        "seldom: a signal comes after a wait had its time, and its message is handled again"
    ),
    "runtime/session/attempts: an encoded payload needs a codec": "outside: no payload is encoded",
    "runtime/session/attempts: called alone after a death": _NO_KILLER,
    "runtime/session/attempts: at most once is not called again": (
        "outside: no bulk handler at most once has processes of its own"
    ),
    "runtime/session/bulk_calls: a suspect is called alone": _NO_KILLER,
    "runtime/session/bulk_calls: as many as have time": "unseen: nobody counts the messages of a call",
    "runtime/session/bulk_calls: recorded before a call at most once": _SELDOM_ONCE,
    "runtime/session/bulk_calls: what is recorded alone": _SELDOM_ONCE,
    "client/wire: clients of another server are left alone": "outside: there is one server",
    "client/wire: rights of one that waits": _NO_USERS,
    "actions: rights to change": _NO_USERS,
    "actions: rights to signal": _NO_USERS,
    "leases: a renewal that finds less than was seen": "outside: nobody is told that the store went back",
    "acquire: a launch that leaves is counted once": _NO_TOTALS,
    "acquire: none while the store is to close": _NO_COMMANDS,
    "acquire: who does not wait claims nothing": "unseen: nobody asks who waits for a lease",
    "cancel: state": "unseen: nobody asks why nothing was cancelled",
    "change: one that is ready keeps its turn": _ANY_ORDER,
    "change: the new priority counts": _ANY_ORDER,
    "changed: its turn": _ANY_ORDER,
    "changed: booked no longer": _NO_RATES,
    "bookings: bookings taken back": _NO_RATES,
    "bookings: those behind which a new one goes": _NO_RATES,
    "replace: its instant is kept": _NO_RATES,
    "ended: booked no longer": _NO_RATES,
    "unique_keys: held for the queue": "outside: no earlier version has written messages",
    "ended: parked no longer": _PARKED,
    "settle: deferred is not parked": _PARKED,
    "settle: charges taken back": _NO_RATES,
    "stops: charges taken back": _NO_RATES,
    "settle: charges of what had begun": _NO_RATES,
    "settle: ends of what is stale": "seldom: a member is completed at one launch, and ends otherwise at the next",
    "settle: expired drops its checkpoint": _KEPT_OF_ENDED,
    "purge: steps of the purged": _KEPT_OF_ENDED,
    "settle: a signal that came before the sleep": _LONGER_WAIT,
    "signal: a signal wakes its message": _LONGER_WAIT,
    "trim: steps of the forgotten": _KEPT_OF_ENDED,
    "step: a place returned": _NO_RATES,
    "unreserve: charges taken back": _NO_RATES,
    "recover: records of a newer version": _NOT_FOREIGN,
    "release: a launch is counted once": _NO_TOTALS,
    "queues/producer: rights to replace": _NO_USERS,
    "records/reservations: a redriven message does not expire": "outside: what expires is not redriven",
    "queues/maintenance: another due time": "unseen: nobody asks when a parked message comes back",
    "recurrences: none beside an unfinished one": "harmless there: the next is due after the end of the last",
    "ended: the instant of the row": _NO_TIMES,
    "ended: no start while it is in line": _NO_TIMES,
    "enqueue: the answer to the first attempt": "unseen: nobody asks whether an answer says duplicate",
    "enqueue: expiry counts from the due time": "outside: what expires is due at once",
    "offer: places of a newer version": _NOT_FOREIGN,
    "open_batch: a batch that is shut": "harmless there: no member is added to a batch that is shut",
    "open_batch: most batches": _FEW_BATCHES,
    "batches: batches that have ended make room": _FEW_BATCHES,
    "batches: who sends callbacks is woken": "unseen: a callback may come late",
    "batches: cancelled members that count as completed": "outside: no batch takes cancelled members for completed",
    "batches: all have ended": "unseen: nobody asks whether a callback is early",
    "ended: a large record is dropped": _SMALL,
    "ended: a dead letter keeps its record": _SMALL,
    "rates: a clock that went back": _NO_RATES,
    "records: flags of a newer version": _NOT_FOREIGN,
    "replace: one that was accepted replaces nothing": _REPLACED_ALIKE,
    "replace: a repeated replacement": _REPLACED_ALIKE,
    "replace: a replacement is remembered": _REPLACED_ALIKE,
    "replace: the expiry moves with the due time": "outside: what replaces does not expire",
    "batches: then once": "harmless there: a callback has the same id each time",
    "core/messages/continuation: types of fields": _NOT_FOREIGN,
    "core/messages/continuation: a continuation that is none": _NOT_FOREIGN,
    "runtime/consumer: a queue whose keys cannot be used": _NOT_FOREIGN,
    "runtime/mover: who is left out": _NOT_FOREIGN,
    "runtime/session/exchange: what was reserved beside a refusal": _NOT_FOREIGN,
    "acquire: a store that is to close for ever": _NOT_FOREIGN,
    "cancel: a malformed message that waits": _NOT_FOREIGN,
    "batches: a state that is none": _NOT_FOREIGN,
    "step: counts of a quota that are none": _NOT_FOREIGN,
    "numbers: counters that are no numbers": _NOT_FOREIGN,
    "places: places that are no number": _NOT_FOREIGN,
    "rates: a ledger that is none": _NOT_FOREIGN,
    "queues/outbox: kept for a person before it is dropped": _NOT_FOREIGN,
    "core/users_code: an exception that cannot be looked at is replaced": "outside: exceptions can be looked at",
    "core/users_code: what users' code prints is not taken for a command's own output": _NO_COMMANDS,
    "interface/settings/load: no file is found in a directory that others may write, nor above it": _NO_COMMANDS,
    "interface/settings/load: nothing is changed in a store that nobody named": _NO_COMMANDS,
    "interface/settings/owners: no found configuration of another user's is read, but that of the owner of the "
    "module beside it": _NO_COMMANDS,
    "interface/api/batches: members that the store has lost": "outside: producers are told of no loss",
    "runtime/launch/launch_end: the outcome of a long handling is settled": (
        "outside: the store is there when a handler ends that outlasts its window"
    ),
    "runtime/launch/launch_end: a launch that waits in silence": "outside: nobody reads what launches say",
    "runtime/session/contexts: the last report of a message": "outside: no handler reports its progress",
    "audit_log: rights to note": _NO_USERS,
    "queues/maintenance: rights to what another serves": _NO_USERS,
    "client/wire: whose word it is": "outside: the server in memory greets nobody",
    "acquire: launches of two days": "outside: no story has five thousand launches",
    "expire: a served queue is left to its launches": _SERVED,
    "expire: what has expired alone": _SERVED,
    "expire: state": _SERVED,
    "expire: a redriven message does not expire": _SERVED,
    "expire: begun by its first step": _SERVED,
    "expire: the checkpoint is dropped": _SERVED,
    "note: most notes": _NO_AUDIT,
    "actions: what was done before it was cut short": _NO_AUDIT,
    "occurrences: a clock of the first day": "outside: no story begins in 1970; test_first_day.py has one that does",
    "put: periods of a rule put in a pause": _NO_PROGRAM,
    "recurrence_actions: not before the first instant that was asked for": _NO_PROGRAM,
    "recurrence_actions: an occurrence of another's in the same millisecond": _NO_PROGRAM,
    "rights: rights": _NO_USERS,
    "register: rights before a queue is known": _NO_USERS,
    "client/replies: refusal": _NO_USERS,
    "queues/maintenance: rights of a launch in a queue": _NO_USERS,
    "queues/producer: rights of a producer in a queue": _NO_USERS,
    "leases: rights of a launch": _NO_USERS,
    "leases: rights to break": _NO_USERS,
    "actions: rights": _NO_USERS,
    "recurrence_actions: rights": _NO_USERS,
    "queues/maintenance: types of a queue's keys": _NOT_FOREIGN,
    "promote: fence compare": "harmless: a stale mover promotes what is due, as its successor would",
    "enqueue_new: id of one in the store": "harmless: an id that stands in the ready list twice is handed out once",
    "recur: what was due is enqueued": "harmless: what was due until an instant in the past is left out",
    "define: one that was put": _NO_PROGRAM,
    "trigger: its definition is there": _NO_PROGRAM,
    "recurrences: most that have ended": _NO_PROGRAM,
    "occurrences: old instants": _NO_PROGRAM,
    "occurrences: most instants": _NO_PROGRAM,
    "recur: most occurrences": _NO_PROGRAM,
    "recur: ends after the last of them": _NO_PROGRAM,
    "define: names that a version before did not keep": _NO_PROGRAM,
    "settle: previous of one that was removed": _NO_PROGRAM,
    "settle: previous by instant": _NO_PROGRAM,
    "occurrences: the result of a forgotten id": _NO_PROGRAM,
    "settle: what is stale is not counted": _NO_TOTALS,
    "results: runs in which a dropped result is left": _NO_END,
    "settle: run of what is stale": _NO_END,
    "settle: runs differ": _NO_END,
    "trim: the result of a later one": _NO_END,
    "trim: results of one id at once": _NO_END,
    "trim: results that are forgotten at once": _NO_END,
    "trim: runs beyond a page": _NO_END,
    "trim: what is no completion": _NO_TOTALS,
    "trim: completions are counted once": _NO_TOTALS,
    "trim: what has not ended": _WHOLE,
    "trim: what is forgotten already": _WHOLE,
    "arrive: a batch that is forgotten": _NOT_FORGOTTEN,
    "trim: what has ended is forgotten": _NOT_FORGOTTEN,
    "interface/api/batches: a batch whose producer fails stays open": (
        "seldom: the store fails few producers within their block, and most add all members again in time"
    ),
    "interface/api/batches: what the store has not acknowledged": (
        "outside: a producer that failed begins with a new object"
    ),
    "interface/api/batches: fewer members than before": "outside: producers add the same members again",
    "interface/api/batches: a message that is no member": "outside: no member's id is taken",
    "interface/api/batches: a batch that is closed": _NOT_FORGOTTEN,
    "interface/api/batches: what has ended": _NOT_FORGOTTEN,
    "runtime/session/settlements: results of members are kept": _NO_END,
    "runtime/handling/handler_batches: a batch grows with the end of a chain": _WHERE_TAKEN,
    "runtime/handling/journal: nothing that is lost goes with a step": _WHERE_TAKEN,
    "runtime/handling/journal: a recorded step, awaited": _NO_COROUTINE,
    "runtime/handling/handler: what is skipped, awaited": _NO_COROUTINE,
    "actions: launches are woken": _NOT_HEARD,
    "runtime/handling/bulk: a result for each message": _AS_SAID,
    "runtime/handling/bulk: errors of the messages that there are": _AS_SAID,
    "runtime/session/bulk_calls: most bytes of a call": _SMALL,
    "runtime/session/bulk_calls: options of its own": "outside: no message has a timeout or a monitor of its own",
    "runtime/session/attempts: a call with others goes on": "outside: nobody stops what is in flight",
    "core/retry: deferred for a week at most": "outside: no story lasts a week",
    "redrive: generation compare": "harmless there: a repeated call has the answer of the first",
    "undefine: removed by another": "unseen: nobody asks whether a removal has found anything",
    "withdraw: owner compare": "unseen: a launch whose call for the lease is lost begins with the next occasion",
    "queues/outbox: a member that is another message": "outside: no member's id is taken",
    "queues/producer: an id of what follows": "outside: no id of what follows is taken",
    "queues/redis_store: what the next lost reply reserved is released": (
        "seldom: the replies to a step and to its repetition are both lost"
    ),
    "replace: the key lasts anew": "outside: no key has a lifetime",
    "change: the next attempt is due then": "outside: nobody looks at the next attempt",
    "queues/producer: none behind one that replaces": _ALONE,
    "queues/producer: what replaces is alone in its page": _ALONE,
    "put: names of configurations": _NO_PROGRAM,
    "put: one that is as it was goes on": _NO_PROGRAM,
    "put: one of the same rule goes on": _NO_PROGRAM,
    "put: what is due stays due": _NO_PROGRAM,
    "put: what is due by the rule before": _NO_PROGRAM,
    "put: a clock that went back": _NO_PROGRAM,
    "put: one that has begun goes on": _NO_PROGRAM,
    "hold: periods of the rule that waits": _NO_PROGRAM,
    "put: one that is spent stays ended": _NO_PROGRAM,
    "put: one that is limited ends": _NO_PROGRAM,
}
