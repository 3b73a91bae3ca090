"""Guards that cover each other: for each promise, sets of which each guard alone is enough, and none is not."""

COVERING: dict[str, tuple[tuple[str, ...], ...]] = {
    "a stale launch that completes changes nothing": (("step: fence compare", "step: row compare, completed"),),
    "a stale launch that finishes changes nothing": (("step: fence compare", "step: row compare, settled otherwise"),),
    "a stale launch that retries changes nothing": (("step: fence compare", "step: row compare, settled otherwise"),),
    "a stale launch that buries changes nothing": (("step: fence compare", "step: row compare, settled otherwise"),),
    "a stale launch that parks changes nothing": (("step: fence compare", "step: row compare, settled otherwise"),),
    "a stale launch that releases changes nothing": (("step: fence compare", "step: row compare, settled otherwise"),),
    "a stale launch that begins changes nothing": (
        ("step: fence compare", "step: row compare, begun"),
        ("step: fence compare", "step: row compare, settled otherwise"),
    ),
    "a stale launch that checkpoints changes nothing": (("checkpoint: fence compare", "checkpoint: row compare"),),
    "a stale launch that gives back changes nothing": (("unreserve: fence compare", "unreserve: fence of the row"),),
    "an id enqueued again is handed out once": (("enqueue: id in the store", "step: id popped twice"),),
    "an id twice in a call is handed out once": (("enqueue: id in the batch", "step: id popped twice"),),
    "an id enqueued again after its end is not handed out again": (
        ("enqueue: id in the store", "step: state of what is popped"),
        ("recover: orphans alone", "step: completed leaves flight", "step: state of what is popped"),
    ),
    "an entry of an outbox sent again is handed out once": (
        ("enqueue: id in the store", "enqueue: received before", "step: id popped twice"),
    ),
    "an entry sent again after its end is not handed out again": (
        ("enqueue: id in the store", "enqueue: received before", "step: state of what is popped"),
        ("recover: orphans alone", "step: completed leaves flight", "step: state of what is popped"),
    ),
    "what is promoted is handed out once": (("promote: removed from the schedule", "step: id popped twice"),),
    "what is promoted after its end is not handed out again": (
        ("promote: state", "step: state of what is popped"),
        ("recover: orphans alone", "step: completed leaves flight", "step: state of what is popped"),
    ),
    "what has ended is no orphan": (("step: completed leaves flight", "step: state of what is popped"),),
    "what waits for its next attempt is no orphan": (("step: settled leaves flight", "step: state of what is popped"),),
    "what is recovered twice is handed out once": (("recover: removed from flight", "step: id popped twice"),),
    "what is given back twice is handed out once": (("step: id popped twice", "unreserve: removed from flight"),),
    "what is redriven twice is handed out once": (
        ("recover: orphans alone", "step: id popped twice", "step: settled leaves flight"),
        ("redrive: dead letters alone", "step: id popped twice"),
        ("redrive: removed from the dead letters", "step: id popped twice"),
    ),
    "an instant seen twice is enqueued once": (("recur: id of the occurrence", "recur: instant compare"),),
    "an instant that a stale mover has seen too is enqueued once": (
        ("recur: fence compare", "recur: id of the occurrence", "recur: instant compare"),
    ),
    "what a stale mover could not read goes on where another could": (
        ("set_aside: fence compare", "set_aside: instant compare"),
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
    ),
    "a key of what has ended is free": (
        ("_prelude: what has ended holds no key", "step: unique key freed at the end"),
    ),
}
