"""Images by the names that registries know, and the words for what is wrong with asking for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trtmatrix.common.errors import UsageError
from trtmatrix.launchers.references import Reference, Trouble, explain_trouble, parse_reference

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("ubuntu", "docker.io", "library/ubuntu", "latest", ""),
        ("nvcr.io/nvidia/pytorch:24.12-py3", "nvcr.io", "nvidia/pytorch", "24.12-py3", ""),
        (f"nvcr.io/nvidia/pytorch:1@{DIGEST}", "nvcr.io", "nvidia/pytorch", "1", DIGEST),
        ("localhost:5000/a:b", "localhost:5000", "a", "b", ""),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", ""),
        ("my.mirror:5000/nvidia/a_b/c--d__e.f", "my.mirror:5000", "nvidia/a_b/c--d__e.f", "latest", ""),
    ],
)  # fmt: skip
def test_a_name_is_read_as_docker_reads_it(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    found = parse_reference(text)
    assert found == Reference(host=host, repository=repository, tag=tag, digest=digest)
    assert found.wanted == (digest or tag)


@pytest.mark.parametrize(
    "text",
    [
        "", "Ubuntu", "a/Ubuntu", "a//b", "a b", "a/", "-a", "a___b", "a:", "a:-b", f"a:{'b' * 129}", "a:b\n",
        "a:ä", "a:b:c", "a@sha256:12", "a@", f"a@{DIGEST.upper()}", "https://nvcr.io/a", "-x.y/a", "a_b.c/d",
        "x.y:port/a", "x.y:0/a", "[::1/a", "a/" * 130 + "b", "0123456789abcdef" * 4,
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no image's name"):
        parse_reference(text)


@given(st.text(alphabet="aA0.:/@_-[] \n", max_size=30) | st.text(max_size=20))
def test_any_text_is_a_name_that_stays_itself_or_is_refused(text: str) -> None:
    try:
        found = parse_reference(text)
    except UsageError:
        return
    assert parse_reference(str(found)) == found
    assert not set(str(found)) & set(" \n\t\0")


@pytest.mark.parametrize("trouble", Trouble)
def test_each_trouble_says_what_where_why_and_what_to_do(trouble: Trouble) -> None:
    error = explain_trouble(trouble, "my.mirror:5000", "my.mirror:5000/a:1", "it is closed today")
    told, _, mend = str(error).partition("\n  ")
    assert told.startswith("my.mirror:5000 ")
    assert told.endswith("my.mirror:5000/a:1, or has no such image: it is closed today" if trouble is
                         Trouble.NEEDS_LOGIN else "my.mirror:5000/a:1: it is closed today")  # fmt: skip
    assert mend
    assert "{" not in str(error)
    assert (error.trouble, error.host) == (trouble, "my.mirror:5000")
