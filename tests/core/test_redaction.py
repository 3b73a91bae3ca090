import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.notation.text import redacted, site_of


@pytest.mark.parametrize(
    "url",
    [
        "embedded",
        "redis://h",
        "redis://h:6379/0",
        "rediss://h.example:6380/2?ssl_cert_reqs=required",
        "redis://[::1]:6379/0",
        "redis+sentinel://h1:26379,h2,h-3.example:26380/mymaster/0?ssl=true",
        "redis+sentinel://h1,h2:26379/mymaster",
        "unix:///run/user/1000/valkey.sock?db=0",
        "http://h",
        "",
    ],
)
def test_a_url_without_secrets_is_returned_as_it_is(url: str) -> None:
    assert redacted(url) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:secret@h:6379/0", "redis://***@h:6379/0"),
        ("redis://user:secret@h", "redis://***@h"),
        ("redis://:se@cr#e/t?@h", "redis://***@h"),
        ("unix://user:secret@/run/s.sock", "unix://***@/run/s.sock"),
        ("user:secret@h", "***@h"),
        ("redis://user:secret", "redis://user:***"),
        ("redis://user:secret/0", "redis://user:***"),
        ("redis://:12345678", "redis://:***"),
        (
            "redis+sentinel://:secret@h1:26379,h2/m?sentinel_password=secret",
            "redis+sentinel://***@h1:26379,h2/m?sentinel_password=***",
        ),
        ("redis+sentinel://user:1,se!cret/m", "redis+sentinel://user:***"),
        ("redis://h/0?password=secret&x=1", "redis://h/0?password=***&x=1"),
        ("redis://h/0?x=1&ssl_password=se@cret", "redis://h/0?x=1&ssl_password=***"),
        ("['redis://:secret@h']", "['redis://***@h']"),
        ("redis://:sec\nret@h", "redis://***@h"),
    ],
)
def test_whatever_may_be_a_password_is_hidden(url: str, shown: str) -> None:
    assert redacted(url) == shown
    assert redacted(shown) == shown


@given(
    scheme=st.sampled_from(["redis", "rediss", "redis+sentinel", "http"]),
    user=st.text(alphabet="abc", max_size=3),
    password=st.text(alphabet="SECRT:/?#@&=% \n", min_size=1).filter(lambda text: not set(text).isdisjoint("SECRT")),
    rest=st.sampled_from(["", ":6379", "/0", ":6379/0?x=1"]),
)
def test_no_character_of_a_password_gets_through_whatever_stands_in_it(
    scheme: str, user: str, password: str, rest: str
) -> None:
    shown = redacted(f"{scheme}://{user}:{password}@host{rest}")
    assert set("SECRT").isdisjoint(shown)
    assert shown.endswith(f"@host{rest}")


@pytest.mark.parametrize(
    ("url", "site"),
    [
        ("https://hc-ping.com/secret", "https://hc-ping.com/***"),
        ("https://secret@h:8000/secret?secret", "https://h:8000/***"),
        ("https://h?secret", "https://h/***"),
        ("secret", "***"),
        ("https:///secret", "***"),
    ],
)
def test_of_a_monitors_url_only_the_host_is_shown(url: str, site: str) -> None:
    assert site_of(url) == site
