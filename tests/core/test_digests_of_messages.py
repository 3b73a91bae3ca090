"""The digest that tells whether a repeated id has the same handler and payload."""

from __future__ import annotations

import json
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.messages.payloads import digest_of, encode_payload

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=3))
def test_a_digest_is_that_of_the_sorted_payload_however_short_it_is(payload: dict[str, object]) -> None:
    """A payload with one name is not sorted, since nothing can change its order."""
    encoded = encode_payload(payload)
    whole = json.dumps(json.loads(encoded), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    wanted = blake2b(f"handler\n{whole}".encode(), digest_size=8).hexdigest()
    assert digest_of("handler", encoded) == wanted
