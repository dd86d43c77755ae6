"""Forty-four secrets of eleven kinds, and files that they are planted in, for tests of what leaves a host."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trtmatrix.core.redact import Private, Secrets

PLANTED: Mapping[Private, tuple[str, ...]] = {
    Private.USER: ("wilhelmina", "Wilhelmina Fitzgerald", "wfitz-adm", "zbigniew"),
    Private.HOST: ("gpu-box-07", "gpu-box-07.lab.initech.example", "build.lab.initech.example", "cetus-node"),
    Private.HOME: (
        "/export/people/wilhelmina",
        "/home/zbigniew",
        "/Users/wfitz-adm",
        r"C:\Users\wfitz-adm",
    ),
    Private.WORKSPACE: ("/data/hush-hush", "/mnt/raid/orbital", "/scratch/wf/x1", "/srv/ci/agent-7/_work"),
    Private.ADDRESS: ("192.168.7.21", "10.44.3.9", "2001:db8::ff00:42:8329", "fe80::3e7c:3fff:fe1a:2b4d"),
    Private.MAC: ("3c:7c:3f:1a:2b:4d", "02-42-AC-11-00-02", "3c7c.3f1a.2b4d", "98:03:9b:00:11:22:33:44"),
    Private.UUID: (
        "GPU-8a3c1f22-1b2c-3d4e-5f60-718293a4b5c6",
        "MIG-11111111-2222-3333-4444-555555555555",
        "4c4c4544-0042-3510-8054-b4c04f4a4d32",
        "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd",
    ),
    Private.SERIAL: ("1654922009999", "PF3XQ1Z9", "CN-0J8ABC-74261", "d41d8cd98f00b204e9800998ecf8427e"),
    Private.TOKEN: (
        "ghp_0123456789abcdefABCD",
        "nvapi-AAAABBBBCCCCDDDD1111",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "correct-horse-9",
    ),
    Private.EMAIL: ("wilhelmina@initech.example", "z.b+ci@mail.example.org", "ops@a.example", "x_y@b-c.org"),
    Private.VARIABLE: ("blue-falcon-17", "team=quantum-otter", "sekrit/registry/path", "Zorblax"),
}  # fmt: skip
"""No two of a kind that one rule alone would find."""

HOST = Secrets(
    users=("wilhelmina", "Wilhelmina Fitzgerald", "wfitz-adm", "zbigniew"),
    hosts=("gpu-box-07", "cetus-node"), domains=("lab.initech.example",),
    homes=("/export/people/wilhelmina",), workspaces=PLANTED[Private.WORKSPACE],
    serials=("PF3XQ1Z9", "d41d8cd98f00b204e9800998ecf8427e"), tokens=("correct-horse-9",),
    values=PLANTED[Private.VARIABLE],
)  # fmt: skip
"""What such a host would say of itself; the others are known by how they look."""

_CALLED = {"1654922009999": "Serial Number : ", "CN-0J8ABC-74261": "board_serial="}
"""What stands before a secret that is known by its name alone."""


def all_planted() -> list[str]:
    """Every secret."""
    return [secret for secrets in PLANTED.values() for secret in secrets]


def said(secret: str) -> str:
    """A secret as it stands in a text."""
    return f"{_CALLED.get(secret, '')}{secret}"


def as_log() -> str:
    """A log in which every secret stands: between words, in quotes, at a line's start, joined to a path."""
    lines = [f'[W] at {said(one)}, "{said(one)}"\n{said(one)} end' for one in all_planted()]
    lines += [f"{path}/model.py:3: in forward" for path in PLANTED[Private.WORKSPACE]]
    return "\n".join([*lines, "max_abs 0.0041652523018369525 at TensorRT 10.7.0.23", ""])


def as_environment() -> str:
    """An environment with every secret as a value, nested and as a name too."""
    values = {f"V{number}": one for number, one in enumerate(map(said, all_planted()))}
    return json.dumps({"variables": values, "by name": {"wilhelmina": 1}, "serial": 1654922009999})


def as_record() -> str:
    """A record whose log has all secrets, escaped as JSON escapes them."""
    facts = {"log": as_log(), "observed": {"library": "10.7.0.23"}, "measurements": {"rel_l2": 1.5e-3}}
    return json.dumps(facts, indent=1, sort_keys=True) + "\n"
