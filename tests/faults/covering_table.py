"""Guards that cover each other: for each promise, sets of which each guard alone is enough, and none is not."""

_FENCES_RISE = (
    "acquire: fence above all earlier ones",
    "acquire: fence above all that the launch has seen",
    "watermarks: the watermark rises",
)
COVERING: dict[str, tuple[tuple[str, ...], ...]] = {
    "a stale launch that completes changes nothing": (("step: fence compare", "settle: row compare, completed"),),
    "a stale launch that finishes changes nothing": (
        ("step: fence compare", "settle: row compare, completed"),
        ("step: fence compare", "settle: results of what is stale"),
    ),
    "a stale launch that retries changes nothing": (("step: fence compare", "settle: row compare, settled otherwise"),),
    "a stale launch that buries changes nothing": (("step: fence compare", "settle: row compare, settled otherwise"),),
    "a stale launch that parks changes nothing": (("step: fence compare", "settle: row compare, settled otherwise"),),
    "a stale launch that releases changes nothing": (
        ("step: fence compare", "settle: row compare, settled otherwise"),
    ),
    "a stale launch that begins changes nothing": (("begin: fence compare", "begin: row compare"),),
    "a stale launch that checkpoints changes nothing": (("checkpoint: fence compare", "checkpoint: row compare"),),
    "a stale launch that gives back changes nothing": (("unreserve: fence compare", "unreserve: fence of the row"),),
    "an id enqueued again is handed out once": (("enqueue: id in the store", "reserve: id popped twice"),),
    "an id twice in a call is handed out once": (("enqueue: id in the page", "reserve: id popped twice"),),
    "an id enqueued again after its end is not handed out again": (
        ("enqueue: id in the store", "reserve: state of what is popped"),
        ("recover: orphans alone", "settle: completed leaves flight", "reserve: state of what is popped"),
    ),
    "an entry of an outbox sent again is handed out once": (
        ("enqueue: id in the store", "enqueue: received before", "reserve: id popped twice"),
    ),
    "an entry sent again after its end is not handed out again": (
        ("enqueue: id in the store", "enqueue: received before", "reserve: state of what is popped"),
        ("recover: orphans alone", "settle: completed leaves flight", "reserve: state of what is popped"),
    ),
    "what is promoted is handed out once": (("promote: removed from the schedule", "reserve: id popped twice"),),
    "what is promoted after its end is not handed out again": (
        ("promote: state", "reserve: state of what is popped"),
        ("recover: orphans alone", "settle: completed leaves flight", "reserve: state of what is popped"),
    ),
    "what has ended is no orphan": (("settle: completed leaves flight", "reserve: state of what is popped"),),
    "what waits for its next attempt is no orphan": (
        ("settle: settled leaves flight", "reserve: state of what is popped"),
    ),
    "what is recovered twice is handed out once": (("recover: removed from flight", "reserve: id popped twice"),),
    "what is given back twice is handed out once": (("reserve: id popped twice", "unreserve: removed from flight"),),
    "what is redriven twice is handed out once": (
        ("recover: orphans alone", "reserve: id popped twice", "settle: settled leaves flight"),
        ("redrive: dead letters alone", "reserve: id popped twice"),
        ("redrive: removed from the dead letters", "reserve: id popped twice"),
    ),
    "an instant seen twice is enqueued once": (("occurrences: id of the occurrence", "recur: instant compare"),),
    "an instant that a stale mover has seen too is enqueued once": (
        ("recur: fence compare", "occurrences: id of the occurrence", "recur: instant compare"),
    ),
    "what a stale mover could not read goes on where another could": (
        ("quarantine: fence compare", "quarantine: instant compare"),
    ),
    "what another owner defines stays": (
        ("define: absent after a day", "define: removed by its owner alone"),
        ("define: another owner keeps it", "define: removed by its owner alone"),
    ),
    "what was replaced over an hour ago begins anew": (
        ("define: replaced ones lapse", "define: replaced within the hour"),
    ),
    "a stale launch that releases takes no lease": (
        ("release: fence taken back by its owner alone", "release: owner compare"),
        _FENCES_RISE,
    ),
    "a stale fence breaks no lease": (_FENCES_RISE,),
    "a stale launch that renews takes no lease": (_FENCES_RISE,),
    "a key of what has ended is free": (
        ("unique_keys: what has ended holds no key", "settle: unique key freed at the end"),
    ),
    "a key of what is cancelled is free": (
        ("unique_keys: what has ended holds no key", "ended: the unique key is freed"),
    ),
}
