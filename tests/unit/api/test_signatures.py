"""What of a changed signature breaks a caller, and what is only another way of writing it."""

from __future__ import annotations

import pytest

from trtmatrix.api.compare import breaks

HARMLESS = [
    ("(index: int) -> ITensor", "(index: int) -> ITensor"),
    ("(index: int) -> ITensor", "(index: typing.SupportsInt) -> ITensor"),
    ("(index: int) -> ITensor", "(index: typing.SupportsInt | typing.SupportsIndex) -> tensorrt.ITensor"),
    ("(shape: List[int]) -> bool", "(shape: collections.abc.Sequence[typing.SupportsInt]) -> bool"),
    ("(memory: capsule) -> bool", "(memory: typing_extensions.CapsuleType) -> bool"),
    ("(arg0: int) -> str", "(index: int) -> str"),  # it got a name
    ("(a: int) -> int", "(a: int, b: int = 3) -> int"),
    ("(a: int, b: int = 3) -> int", "(a: int, b: int = 4) -> int"),  # a default
    ("(a: int) -> int", "(a: int | None) -> int"),
    ("(a: Optional[int]) -> int", "(a: int) -> int"),
    ("(s: ILogger.Severity) -> None", "(s: Severity) -> None"),
    ("(f: nvinfer1::TensorFormat) -> None", "(f: TensorFormat) -> None"),  # a name unknown to the bindings
    ("(text: str = 'a, b') -> None", "(text: str = ')') -> None"),
    ("(kind: Kind = <Kind.A: 0>) -> None", "(kind: Kind = ...) -> None"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), HARMLESS)
def test_another_way_of_writing_breaks_nothing(before: str, after: str) -> None:
    assert breaks(before, after) == ""


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("(a: int, b: int)", "(a: int)", "takes no b any more"),
        ("(a: int)", "(b: int)", "b instead of a"),
        ("(a: int, b: int)", "(b: int, a: int)", "a stands elsewhere"),
        ("(a: int)", "(a: int, b: int)", "asks for b"),
        ("(a: int = 0)", "(a: int)", "asks for a, which could be left out"),
        ("(a: str)", "(a: int)", "a is int instead of str"),
    ],
)
def test_what_breaks_a_caller_is_told(before: str, after: str, why: str) -> None:
    assert breaks(before, after) == why
