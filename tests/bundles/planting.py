"""Forty-four secrets of eleven kinds, and what a host's environment says of them."""

from __future__ import annotations

from collections.abc import Mapping

PLANTED: Mapping[str, tuple[str, ...]] = {
    "user": ("wilhelmina", "Wilhelmina Fitzgerald", "wfitz-adm", "zbigniew"),
    "host": ("gpu-box-07", "gpu-box-07.lab.initech.example", "build.lab.initech.example", "cetus-node"),
    "home": ("/export/people/wilhelmina", "/home/zbigniew", "/Users/wfitz-adm", r"C:\Users\wfitz-adm"),
    "workspace": ("/data/hush-hush", "/mnt/raid/orbital", "/scratch/wf/x1", "/srv/ci/agent-7/_work"),
    "address": ("192.168.7.21", "10.44.3.9", "2001:db8::ff00:42:8329", "fe80::3e7c:3fff:fe1a:2b4d"),
    "mac": ("3c:7c:3f:1a:2b:4d", "02-42-AC-11-00-02", "3c7c.3f1a.2b4d", "98:03:9b:00:11:22:33:44"),
    "uuid": (
        "GPU-8a3c1f22-1b2c-3d4e-5f60-718293a4b5c6",
        "MIG-11111111-2222-3333-4444-555555555555",
        "4c4c4544-0042-3510-8054-b4c04f4a4d32",
        "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd",
    ),
    "serial": ("1654922009999", "PF3XQ1Z9", "CN-0J8ABC-74261", "d41d8cd98f00b204e9800998ecf8427e"),
    "token": (
        "ghp_0123456789abcdefABCD",
        "nvapi-AAAABBBBCCCCDDDD1111",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "correct-horse-9",
    ),
    "email": ("wilhelmina@initech.example", "z.b+ci@mail.example.org", "ops@a.example", "x_y@b-c.org"),
    "variable": ("blue-falcon-17", "team=quantum-otter", "sekrit/registry/path", "Zorblax"),
}
"""No two of a kind that one rule alone would find."""

ENVIRONMENT: Mapping[str, str] = {
    "USER": "wilhelmina", "LOGNAME": "wfitz-adm", "SUDO_USER": "zbigniew",
    "USERNAME": "Wilhelmina Fitzgerald", "RUNS": "/scratch/wf/x1", "DB_PASSWORD": "correct-horse-9",
    "HOSTNAME": "gpu-box-07.lab.initech.example", "HOST": "cetus-node", "HOME": "/export/people/wilhelmina",
    "CI_WORKSPACE": "/srv/ci/agent-7/_work", "DATASETS": "/data/hush-hush:/mnt/raid/orbital",
    "MACHINE_SERIAL": "PF3XQ1Z9", "MACHINE_KEY": "d41d8cd98f00b204e9800998ecf8427e",
    "PROJECT": "blue-falcon-17", "LABELS": "team=quantum-otter", "REGISTRY_PATH": "sekrit/registry/path",
    "CODENAME": "Zorblax",
}  # fmt: skip
"""What such a host's environment says; the other secrets are known by how they look."""

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
    lines += [f"{path}/model.py:3: in forward" for path in PLANTED["workspace"]]
    return "\n".join([*lines, "max_abs 0.0041652523018369525 at TensorRT 10.7.0.23", ""])
