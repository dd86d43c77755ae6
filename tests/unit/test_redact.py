"""What is private is taken out of a text, and what only looks like it stays."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trtprobe
from trtmatrix.core.redact import (
    PLACEHOLDERS,
    Private,
    Secrets,
    as_markdown,
    redact,
    redact_code,
    redact_json,
)

SECRETS = Secrets(
    users=("wilhelmina", "max"), hosts=("gpu-box-07", "main"), domains=("lab.initech.example",),
    homes=("/export/people/wilhelmina",), workspaces=("/data/secret-client", "/project"),
    serials=("PF3XQ1Z9",), tokens=("correct-horse-9",), values=("blue-falcon",),
    words=frozenset({"max", "main"}), versions=frozenset({"10.1.2.3"}), keep=("blue-falcon/image",),
)  # fmt: skip

PRIVATE = [
    (Private.USER, "by wilhelmina.", "by <user>."),
    (Private.USER, "Wilhelmina_model", "<user>_model"),
    (Private.USER, "ssh max@<host> as user=max", "ssh <user>@<host> as user=<user>"),
    (Private.USER, "a line\\nwilhelmina said", "a line\\n<user> said"),
    (Private.HOST, "on gpu-box-07: out of memory", "on <host>: out of memory"),
    (Private.HOST, "GPU-BOX-07.lab.initech.example", "<host>"),
    (Private.HOST, "printer.lab.initech.example:631", "<host>:631"),
    (Private.HOST, "http://main/ hostname=main", "http://<host>/ hostname=<host>"),
    (Private.HOST, "gpu-box-07.other.corp ip-10-0-0-5 HOSTNAME=cetus", "<host> <host> HOSTNAME=<host>"),
    (Private.HOST, "db.prod.cluster.local gpu-box-07.json", "<host> <host>.json"),
    (
        Private.USER,
        "USER=zbigniew uid=1000(zbigniew) LOGNAME=root",
        "USER=<user> uid=1000(<user>) LOGNAME=root",
    ),
    (Private.HOME, "/export/people/wilhelmina/a.py", "<home>/a.py"),
    (Private.HOME, "/home/somebody/a.py", "<home>/a.py"),
    (Private.HOME, "file:///Users/somebody/a.py", "file://<home>/a.py"),
    (Private.HOME, r"C:\Users\somebody\a.py", r"<home>\a.py"),
    (Private.HOME, "%2Fhome%2Fsomebody%2Fa.py", "<home>%2Fa.py"),
    (Private.HOME, "HOME=/root /root/.cache", "HOME=<home> <home>/.cache"),
    (Private.WORKSPACE, "-v /data/secret-client/x:/x", "-v <workspace>/x:/x"),
    (Private.WORKSPACE, "/data/secret-client-2", "<workspace>-2"),
    (Private.WORKSPACE, "/project/a", "<workspace>/a"),
    (Private.ADDRESS, "192.168.7.21", "<ip>"),
    (Private.ADDRESS, "10.20.30.40, 172.16.0.9:22", "<ip>, <ip>:22"),
    (Private.ADDRESS, "tcp://10.7.0.23:2375", "tcp://<ip>:2375"),
    (Private.ADDRESS, "inet 10.1.2.3/24", "inet <ip>/24"),
    (Private.ADDRESS, "http://10.7.0.23/x peer 10.1.2.3", "http://<ip>/x peer <ip>"),
    (Private.ADDRESS, "2001:db8::ff00:42:8329", "<ip>"),
    (Private.ADDRESS, "[fe80::1]", "[<ip>]"),
    (Private.ADDRESS, "fd12:3456:789a:1:0:0:0:1", "<ip>"),
    (Private.ADDRESS, "::ffff:192.0.2.7", "<ip>"),
    (Private.MAC, "link/ether 02:42:ac:11:00:02", "link/ether <mac>"),
    (Private.MAC, "mac:3C-7C-3F-1A-2B-4D", "mac:<mac>"),
    (Private.MAC, "3c7c.3f1a.2b4d", "<mac>"),
    (Private.MAC, "3c:7c:3f:1a:2b:4d:00:01", "<mac>"),
    (Private.UUID, "GPU-8a3c1f22-1b2c-3d4e-5f60-718293a4b5c6", "<gpu-uuid>"),
    (Private.UUID, "MIG-8a3c1f22-1b2c-3d4e-5f60-718293a4b5c6,", "<gpu-uuid>,"),
    (Private.SERIAL, "    Serial Number                  : 1654922009999", None),
    (Private.SERIAL, "board PF3XQ1Z9", "board <serial>"),
    (Private.SERIAL, "asset tag=AB-12345", "asset tag=<serial>"),
    (Private.TOKEN, "correct-horse-9", "<secret>"),
    (Private.TOKEN, "ghp_0123456789abcdefABCD", "<secret>"),
    (Private.TOKEN, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "<secret>"),
    (Private.TOKEN, "https://me:pw@example.org/x", "https://<secret>@example.org/x"),
    (Private.TOKEN, "Authorization: Bearer abc.def12345", "Authorization: Bearer <secret>"),
    (Private.TOKEN, "PASSWORD=hunter --token ab12cd34", "PASSWORD=<secret> --token <secret>"),
    (Private.TOKEN, "?x=1&X-Amz-Signature=0123456789&y", "?x=1&X-Amz-Signature=<secret>&y"),
    (Private.TOKEN, "-----BEGIN RSA PRIVATE KEY-----\nMIIab\n-----END RSA PRIVATE KEY-----", "<secret>"),
    (Private.TOKEN, "cut: QWERTYUIOPASDFGHJKLZ\n-----END PRIVATE KEY-----", "cut: <secret>"),
    (Private.EMAIL, "some.body+x@mail.example.org", "<email>"),
    (Private.VARIABLE, "blue-falcon", "<environment>"),
]


@pytest.mark.parametrize(("kind", "text", "wanted"), PRIVATE, ids=[text[:40] for _, text, _ in PRIVATE])
def test_private_text_is_taken_out(kind: Private, text: str, wanted: str | None) -> None:
    found = redact(text, SECRETS)
    assert found.text == (wanted or text[: text.rindex(" ")] + f" {PLACEHOLDERS[kind]}")
    assert kind in found.counts


def test_every_kind_is_in_the_table() -> None:
    assert {kind for kind, _, _ in PRIVATE} == set(Private) == set(PLACEHOLDERS)


@pytest.mark.parametrize(
    "text",
    [
        "TensorRT 10.7.0.23 against 8.6.1.6 and 10.16.0.72",
        "| 10.7.0.23 | PASS | 8.5.3.1 |",
        "sdpa-scale/explicit@10.9.0.34#nvidia-h200",
        "sdpa-scale/explicit@9.2.0.post12.dev5#nvidia-h200",
        "tensorrt_cu12-10.16.1.11-cp310-none-manylinux_2_28_x86_64.whl",
        "tensorrt==10.16.1.11 libnvinfer.so.10.16.1.11 cudnn 9.6.0.74",
        "10.1.2.3 is a version that is known",
        "127.0.0.1:5000 ::1 0.0.0.0",
        "nvcr.io/nvidia/pytorch@sha256:96990c82825613c3bdeebb66675c7c91b0123f64a5895623316dc5b824e0d7a9",
        "blue-falcon/image",
        "2026-11-20T15:22:55.342Z 12:34:56 run 20261120t151555-441b86a0",
        "max_abs max(1) domain main() max",
        "c10::bad std::abs a::b nvinfer1::ca",
        "1373.3945 -0.2232 6x1568x384 1e-05 0x7f3a",
        "q@k.T x@w @pytest.fixture git@github.com",
        "max_tokens: 2048 token: Embedding api_key: none password:",
        "/usr/local/nvidia/lib64 /projects /opt/trtmatrix/job",
        "serial execution of streams",
        "threading.local torch._inductor.internal gpu.json --env USER=trtmatrix",
        "sm80_xmma_gemm_f16f16_f16f16_f16_nn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16",
        "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff",
    ],
)  # fmt: skip
def test_what_only_looks_private_stays(text: str) -> None:
    assert redact(text, SECRETS).text == text


def test_json_stays_json_and_is_looked_at_decoded() -> None:
    text = r"""{"path": "\/home\/x\/a", "u": "\u0077ilhelmina", "serial": 1654922009999, "n": [1.5, 1000000],
      "library": "10.16.0.72", "password": "hunter\"2", "USER": "zbigniew",
      "key": "-----BEGIN PRIVATE KEY-----\nMIIa"}"""
    found = redact_json(text, SECRETS)
    assert json.loads(found.text) == {
        "path": "<home>/a", "u": "<user>", "serial": "<serial>", "n": [1.5, 1000000],
        "library": "10.16.0.72", "password": "<secret>", "USER": "<user>", "key": "<secret>",
    }  # fmt: skip
    assert redact_json('{"cut": "/home/x', SECRETS).text == '{"cut": "<home>'


def test_code_is_touched_in_strings_and_comments_alone() -> None:
    code = "wilhelmina = max(1, 2)  # by wilhelmina\npassword = 'hunter2'\nx = f'/home/x/{max}'\n"
    wanted = "wilhelmina = max(1, 2)  # by <user>\npassword = '<secret>'\nx = f'<home>/{max}'\n"
    assert redact_code(code, SECRETS).text == wanted
    assert redact_code("no python '/home/x", SECRETS).text == "no python '<home>"


@pytest.mark.parametrize("file", sorted(Path(trtprobe.__file__).parent.glob("*.py")), ids=lambda f: f.name)
def test_the_probe_has_nothing_private(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert redact_code(source, SECRETS).text == source


def test_published_records_have_nothing_private() -> None:
    results = Path(__file__).parents[2] / "results"
    for file in sorted(results.rglob("*.json"))[::7]:
        record = json.loads(file.read_text(encoding="utf-8"))
        record["gpu"].pop("host", None)  # a hash of a node's name, which a bundle leaves out all the same
        assert redact_json(json.dumps(record), Secrets()).counts == {}, file


def test_a_script_keeps_the_home_of_an_image() -> None:
    assert redact("COPY a /root/b", SECRETS, script=True).text == "COPY a /root/b"


def test_markdown_shows_placeholders() -> None:
    assert as_markdown("in <home>/x by <user>, <b>bold</b>") == "in [home]/x by [user], <b>bold</b>"


PIECES = st.sampled_from(
    [text for _, text, _ in PRIVATE]
    + list(PLACEHOLDERS.values())
    + ["/", "@", ":", ".", "=", " ", "\n", "\\n", "10."]
)
TEXTS = st.lists(st.one_of(PIECES, st.text(max_size=6)), max_size=8).map("".join)


@given(TEXTS)
@example("authorization: bearer <secret>")
@example("password=<secret> /home/<user>/x <user>@<host>")
@settings(max_examples=400, deadline=None)
def test_what_was_taken_out_once_is_left_alone(text: str) -> None:
    once = redact(text, SECRETS)
    again = redact(once.text, SECRETS)
    assert again.text == once.text
    assert again.counts == {}


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False), st.lists(TEXTS))))
@settings(max_examples=200, deadline=None)
def test_json_of_any_kind_stays_json(data: dict[str, object]) -> None:
    found = json.loads(redact_json(json.dumps(data), SECRETS).text)
    numbers = [value for value in data.values() if isinstance(value, float)]
    assert [value for value in found.values() if isinstance(value, float)][: len(numbers)] == numbers or len(
        found
    ) < len(data)


@given(TEXTS)
@settings(max_examples=200, deadline=None)
def test_code_of_any_kind_stays_code(text: str) -> None:
    source = f"a = {text!r}  # {text.splitlines()[0] if text.splitlines() else ''!r}\n"
    ast.parse(redact_code(source, SECRETS).text)


VERSIONS = st.tuples(
    st.sampled_from([8, 9, 11]), st.integers(0, 20), st.integers(0, 9), st.integers(0, 255)
).map(lambda parts: ".".join(map(str, parts)))
DIGESTS = st.text("0123456789abcdef", min_size=32, max_size=64)


@given(VERSIONS, DIGESTS, st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_versions_digests_and_figures_stay(version: str, digest: str, figure: float) -> None:
    text = f"{version} | {digest} | sha256:{digest} | image@sha256:{digest} | {figure!r} | trt-{version}"
    assert redact(text, SECRETS).text == text
