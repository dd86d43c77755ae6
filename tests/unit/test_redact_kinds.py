"""What stands in logs of builds, containers, clusters, tracebacks and pip is taken out; figures are not."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtmatrix.core.redact import Secrets, redact, redact_code, redact_json
from trtmatrix.core.variables import Values
from trtmatrix.effects.private import known_secrets, own_words

ANY = Secrets(words=own_words())
HEX40 = "0123456789abcdef0123456789abcdef01234567"

TAKEN = [
    ('password: "correct zebra battery staple" x', 'password: "<secret>" x'),
    (r"{\"password\": \"correct zebra\"}", r"{\"password\": \"<secret>\"}"),
    ("--password 'my long zebra' -x", "--password '<secret>' -x"),
    ("passwd zebra2zz", "passwd <secret>"),
    ("curl -s -u admin:zebra2zz https://x.y", "curl -s -u <secret> https://x.y"),
    ("pwd=zebra2 MYSQL_PWD=zebrazz PWD_ADMIN=zebra22", "pwd=<secret> MYSQL_PWD=<secret> PWD_ADMIN=<secret>"),
    ("X-Api-Key: abcdefabcdefabcdef", "X-Api-Key: <secret>"),
    ("api_key=abcdefabcdefabcdef", "api_key=<secret>"),
    ("Cookie: session=abcdef; x=1", "Cookie: <secret>"),
    ("https://hooks.slack.com/services/T0/B0/XXXX", "https://hooks.slack.com/services/<secret>"),
    ("https://discord.com/api/webhooks/123/AbCdE", "https://discord.com/api/webhooks/<secret>"),
    (f"wandb login {HEX40}", "wandb login <secret>"),
    (f"api key {HEX40}", "api key <secret>"),
    ("ngc key: bnZhcGkxMjM0NTY3ODkw", "ngc key: <secret>"),
    ("AccountKey=abc123def456ghi789==;E=x", "AccountKey=<secret>;E=x"),
    ("sk_live_0123456789abcdefghij", "<secret>"),
    ("dop_v1_0123456789abcdef0123456789abcdef", "<secret>"),
    ("glc_eyJvIjoiMTIzNDU2IiwibiI6InRlc3QifQ==", "<secret>"),
    ("xapp-1-A0123-456-abcdef", "<secret>"),
    ("docker login -u zed -p Zebrapw r.io", "docker login -u zed -p <secret> r.io"),
    ("machine x.y login zed password zebra", "machine x.y login zed password <secret>"),
    ('"auth": "Ym9iOmh1bnRlcjI="', '"auth": "<secret>"'),
    ("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ zed@zebra7", "<secret>"),
    ("x?X-Goog-Credential=abcdefgh1&Policy=eyJTdGF0ZW1", "x?X-Goog-Credential=<secret>&Policy=<secret>"),
    ("/mnt/nfs/home/asmith/x /home2/asmith/x", "<home>/x <home>/x"),
    ("/nfs/home/asmith /data/home/asmith/x", "<home> <home>/x"),
    ("/net/home/asmith /gpfs/users/asmith/w /users/asmith/a", "<home> <home>/w <home>/a"),
    ("/scratch/asmith/a/model.onnx", "<workspace>/model.onnx"),
    (r"\\zebra3\share\asmith at \\\\zebra3\\share\\x", "<workspace> at <workspace>"),
    (r"C:\Users\Alice Zebra\models", r"<home>\models"),
    ("s3://zebra-models/secret/m.onnx", "<workspace>"),
    ("GPU UUID: 11111111222233334444555555555555", "GPU UUID: <gpu-uuid>"),
    ("--gpus device=GPU-8a3c1f22", "--gpus device=<gpu-uuid>"),
    ("HWaddr 001B44113AB7", "HWaddr <mac>"),
    ("Port GUID: 0x506b4b0300c0ffee", "Port GUID: <mac>"),
    ("machine-id: 0123456789abcdef0123456789abcdef", "machine-id: <serial>"),
    ("https_proxy=http://zed:pw@zebraproxy.acme.com:3128", "https_proxy=http://<secret>@<host>:3128"),
    ("indexes: https://pypi.org/simple, https://zebra.acme.com/s", "indexes: https://pypi.org/simple, https://<host>/s"),
    ("HTTPSConnectionPool(host='zebra.acme.com', port=443)", "HTTPSConnectionPool(host='<host>', port=443)"),
    ("bind uid=zed,ou=People,dc=acme failed", "bind <user> failed"),
    ("Default principal: zed@ZEBRA", "Default principal: <user>"),
    ("hostname: 3f2a9b1c7d4e", "hostname: <host>"),
    ("root@3f2a9b1c7d4e:/workspace# x", "root@<host>:/workspace# x"),
    ("(base) zedd@zebra7:~/x$ python", "(base) <user>@<host>:~/x$ python"),
    ("host zebra17.corp.example.com: down", "host <host>: down"),
    ("Submitted batch job 8837261", "Submitted batch job <environment>"),
    ("slurm-8837261.out", "slurm-<environment>.out"),
    ("SLURM_JOB_NODELIST=zebra[017-020]", "SLURM_JOB_NODELIST=<host>"),
    (r"user: ZEBRA\asmith", "user: <user>"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), TAKEN, ids=[text[:40] for text, _ in TAKEN])
def test_is_taken_out(text: str, wanted: str) -> None:
    assert redact(text, ANY).text == wanted
    assert redact(wanted, ANY).counts == {}


@pytest.mark.parametrize(
    "text",
    [
        f"git commit {HEX40}", f"wandb at git commit {HEX40}", f"HEAD is now at {HEX40}",
        "pwd=/opt/build PWD=/data", "docker run -u 1000:1000 -p 8080:80 --user 0:0 x",
        "[V] [TRT] Parsing node: node_of_gpu_0/conv1_1 [Conv]", "host: Ubuntu 22.04 host=false",
        "node: /model/layers.0/attn/MatMul_12 on layer1.conv2.net", "the user: it may be asked",
        "XDG_CACHE_HOME=/tmp/home/.cache", r"\\d+\\w+ \\nfoo\\nbar", "c=3,o=4,l=5 dc=0.1",
        "GPU-accelerated MIG-enabled",
        "tar -xzf streams-torch-late-1.3.tar.gz at attention-1a2b-1.31.1.tar.gz",
        "from https://docs.nvidia.com/x https://git-scm.com/docs", "password authentication failed",
        "/usr/local/lib/python3.10/dist-packages/torch/x.py /usr/src/tensorrt /opt/conda/lib",
    ],
)  # fmt: skip
def test_stays(text: str) -> None:
    assert redact(text, ANY).text == text


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ({"user": "zeddy", "n": 3}, {"user": "<user>", "n": 3}),
        ({"hostname": ["zzz9", "b2x"]}, {"hostname": ["<host>", "<host>"]}),
        ({"serials": ["1320521012345"]}, {"serials": ["<serial>"]}),
        ({"mac": "001b44113ab7", "x": "001b44113ab7"}, {"mac": "<mac>", "x": "001b44113ab7"}),
        ({"password": {"a": ["xyzzy"]}, "b": "free"}, {"password": {"a": ["<secret>"]}, "b": "free"}),
        ({"api_key": {"v": "abcdefgh1234"}}, {"api_key": {"v": "<secret>"}}),
        ({"host": {"os": "Ubuntu 22"}, "node": "M_3"}, {"host": {"os": "Ubuntu 22"}, "node": "M_3"}),
    ],
)  # fmt: skip
def test_names_of_json_say_what_lies_below(data: object, wanted: object) -> None:
    assert json.loads(redact_json(json.dumps(data), ANY).text) == wanted


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ('password = """zeb\nra"""\n', 'password = """<secret>"""\n'),
        ('TOKEN = "abc" \\\n "def12345"\n', 'TOKEN = "<secret>" \\\n "<secret>"\n'),
        ('TOKEN = (\n "abc"\n "def12345")\n', 'TOKEN = (\n "<secret>"\n "<secret>")\n'),
        ('def f(secret: Any) -> Secrets:\n    """Documented."""\n', None),
    ],
)
def test_strings_of_python_are_whole(code: str, wanted: str | None) -> None:
    found = redact_code(code, ANY).text
    assert found == (wanted or code)
    ast.parse(found)
    assert redact_code(found, ANY).counts == {}


def test_environments_of_clusters() -> None:
    secrets = known_secrets(environment={
        "SLURM_JOB_ID": "8837261", "OMP_PLACES": "zebrasecret", "LC_NAME": "Zebra Inc",
        "ZEBRA_VERSION": "zebralib",
        "SLURM_JOB_NODELIST": "zebra[017-018]", "PROJ": "/mnt/lustre/projx/jane",
    })  # fmt: skip
    text = "8837261 zebrasecret zebralib zebra018 /mnt/lustre/projx/other 0.8837261 88372610"
    wanted = "<environment> <environment> <environment> <host> <workspace>/other 0.8837261 88372610"
    assert redact(text, secrets).text == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_PROC_BIND", "spread"), ("OMP_PLACES", "{0:4}:2"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("CUDA_MODULE_LOADING", "LAZY"), ("LC_ALL", "de_DE.UTF-8"), ("NV_LIBNPP_VERSION", "12.3.1.54-1"),
        ("NVIDIA_REQUIRE_CUDA", "cuda>=12.6 brand=tesla,driver>=535,driver<536"),
    ],
)  # fmt: skip
def test_settings_of_libraries_say_nothing(name: str, value: str) -> None:
    found = Values(frozenset())
    found.add(name, value)
    assert (found.tokens, found.values, found.hosts) == ([], [], [])


@given(
    st.lists(st.sampled_from([one for pair in TAKEN for one in pair] + [" ", "\n", ": ", "/"]), max_size=5)
)
@settings(max_examples=150, deadline=None)
def test_once_is_enough(pieces: list[str]) -> None:
    once = redact("".join(pieces), ANY).text
    assert redact(once, ANY).text == once
    assert json.loads(redact_json(json.dumps({"x": once}), ANY).text)
