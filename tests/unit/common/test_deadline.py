"""Registries are asked all at once, within a time in all, and who is waited for is told."""

from __future__ import annotations

import threading

import pytest

from trtmatrix.images import registry
from trtmatrix.images.registry import ask_registries
from trtmatrix.launchers.references import RegistryError, Trouble


def test_what_answers_in_time_is_kept_in_order_and_an_error_is_raised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "PATIENCE", 0.5)
    slow = threading.Event()
    names = ["late.example/a:1", *(f"r{number}.example/a:1" for number in range(20))]
    found = ask_registries(lambda n: slow.wait(5) if n == names[0] else n, names, seconds=1)
    slow.set()
    late, *others = found.values()
    assert isinstance(late, RegistryError)
    assert late.trouble is Trouble.UNREACHABLE
    assert "it does not answer within 1 s" in str(late)
    assert others == names[1:] == list(found)[1:]
    assert capsys.readouterr().err == "trtmatrix: asking late.example …\n"
    with pytest.raises(ZeroDivisionError):
        ask_registries(lambda n: 1 // len(n[20:]), ["r.example/a:1"], seconds=5)
