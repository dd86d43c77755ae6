"""How a registry says who may ask it, and when: headers as real ones send them."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.core.registry_auth import (
    Challenge,
    TokenRequest,
    is_insecure,
    parse_challenges,
    parse_retry_after,
    token_request,
)

NOW = datetime(2026, 11, 22, 12, 0, 0, tzinfo=timezone.utc)
SCOPE = "repository:nvidia/pytorch:pull"
NGC = "https://nvcr.io/proxy_auth"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", []),
        ("Basic", [("basic", {})]),
        (
            'Basic realm="a \\"registry\\"", charset="UTF-8"',
            [("basic", {"realm": 'a "registry"', "charset": "UTF-8"})],
        ),
        (f'Bearer realm="{NGC}"', [("bearer", {"realm": NGC})]),
        (f'BEARER Realm="{NGC}",SCOPE=""', [("bearer", {"realm": NGC, "scope": ""})]),
        (
            "Bearer realm=https://a/b?c=1 , service = x",
            [("bearer", {"realm": "https://a/b?c=1", "service": "x"})],
        ),
        ('Negotiate, Basic realm="x"', [("negotiate", {}), ("basic", {"realm": "x"})]),
        (
            'Basic realm="x", Bearer realm="y",scope="a,b"',
            [("basic", {"realm": "x"}), ("bearer", {"realm": "y", "scope": "a,b"})],
        ),
        ('realm="x"', []),
    ],
)
def test_a_header_is_read(header: str, found: list[tuple[str, dict[str, str]]]) -> None:
    assert [(each.scheme, dict(each.parameters)) for each in parse_challenges(header)] == found


@given(st.text(max_size=60) | st.text(alphabet='Bearer =",\\x ', max_size=40))
def test_any_header_is_read_to_its_end(header: str) -> None:
    parse_challenges(header)


@pytest.mark.parametrize(
    ("parameters", "asked"),
    [
        ({"realm": NGC}, (NGC, {"scope": SCOPE})),
        ({"realm": NGC, "scope": ""}, (NGC, {"scope": SCOPE})),
        ({"realm": f"{NGC}?scope=repository:nvidia/pytorch:pull,push"}, (NGC, {"scope": SCOPE})),
        ({"realm": f"{NGC}?service=a&x=1"}, (NGC, {"x": "1", "service": "a", "scope": SCOPE})),
        ({"realm": NGC, "service": "registry"}, (NGC, {"service": "registry", "scope": SCOPE})),
        ({}, None), ({"realm": "/token"}, None), ({"realm": "ftp://x/"}, None), ({"realm": "https://"}, None),
        ({"realm": "https://[::1"}, None),
    ],
)  # fmt: skip
def test_a_token_is_asked_for_where_the_challenge_says(
    parameters: dict[str, str], asked: tuple[str, dict[str, str]] | None
) -> None:
    found = token_request(Challenge(scheme="bearer", parameters=parameters), SCOPE)
    assert found == (None if asked is None else TokenRequest(url=asked[0], parameters=asked[1]))


@pytest.mark.parametrize(
    ("host", "insecure", "addresses", "expected"),
    [
        ("nvcr.io", [], [], False),
        ("127.0.0.1:5000", [], [], True), ("127.9.9.9", [], [], True), ("128.0.0.1", [], [], False),
        ("localhost", [], [], True), ("localhost:5000", [], [], True), ("localhost.evil.org", [], [], False),
        ("[::1]:5000", [], [], True), ("[::2]:5000", [], [], False),
        ("my.mirror:5000", ["my.mirror:5000"], [], True), ("my.mirror:5001", ["my.mirror:5000"], [], False),
        ("my.mirror", ["my.mirror:5000"], [], False),
        ("10.1.2.3:5000", ["10.0.0.0/8"], [], True), ("11.1.2.3:5000", ["10.0.0.0/8"], [], False),
        ("my.mirror", ["10.0.0.0/8"], ["10.0.0.1"], True), ("my.mirror", ["10.0.0.0/8"], ["8.8.8.8"], False),
        ("my.mirror", ["nonsense/99", "a/b"], ["10.0.0.1"], False),
    ],
)  # fmt: skip
def test_plain_http_is_for_whom_docker_has_it(
    host: str, insecure: list[str], addresses: list[str], *, expected: bool
) -> None:
    assert is_insecure(host, insecure, addresses) is expected


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", None), ("soon", None), ("-1", None), ("1.5", None), ("0", 0.0), (" 120 ", 120.0), ("²", None),
        ("Sun, 22 Nov 2026 12:00:30 GMT", 30.0), ("Sun, 22 Nov 2026 11:00:00 GMT", 0.0),
        ("Sun, 22 Nov 2026 12:00:30 -0000", 30.0), ("Sun, 99 Nov 2026 12:00:30 GMT", None),
    ],
)  # fmt: skip
def test_when_to_ask_again_is_read(header: str, seconds: float | None) -> None:
    assert parse_retry_after(header, NOW) == seconds


@given(st.text(max_size=40))
def test_any_text_says_when_or_nothing(header: str) -> None:
    found = parse_retry_after(header, NOW)
    assert found is None or found >= 0
