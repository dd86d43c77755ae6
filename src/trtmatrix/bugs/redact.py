"""What goes out of this host: fields that are known to be harmless, and texts without what is private.

Facts of a record go out by an allow-list (:func:`allowed_facts`): what is not named there, or does not look
as such a fact looks, is left out. Texts (messages of a product, a repro's own words, names in a graph) are
searched for values that this host knows of itself, and for what looks private anywhere (:class:`Redactor`).
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto

    from trtmatrix.judge.record import Record

VERSION = r"v?\d+(?:[.+_-]?[A-Za-z0-9]+){0,8}"
ALLOWED: Mapping[str, str] = {
    **dict.fromkeys(
        ("library", "bindings", "driver", "driver_cuda", "cuda", "cudnn", "python", "numpy", "torch",
         "torch_tensorrt"), VERSION,
    ),
    "gpu": r"[A-Za-z0-9 ()/.-]{1,64}", "compute": r"\d{1,2}\.\d", "variant": r"[A-Za-z0-9 .,-]{1,40}",
    "machine": r"x86_64|aarch64|amd64|arm64|ppc64le",
    "date": r"\d{4}-\d\d-\d\d", "image_id": r"(?:sha256:)?[0-9a-f]{64}",
    "image": r"(?:(?:nvcr\.io|docker\.io|ghcr\.io|quay\.io)/)?[a-z0-9_-]+(?:/[a-z0-9_-]+)*(?::[\w.-]+)?"
    r"(?:@sha256:[0-9a-f]{64})?",
}  # fmt: skip
"""Facts that go out, each with what it looks like; all others stay here."""

HARMLESS = re.compile(
    r"PATH|PWD|OLDPWD|HOME|SHLVL|_|TERM|COLORTERM|SHELL|PAGER|EDITOR|VISUAL|TZ|LANG|LANGUAGE|LC_\w+|LS_COLORS|DISPLAY"
    r"|DEBIAN_FRONTEND|(?:CUDA|CUDNN|NV|NVIDIA|OMP|MKL|PYTHON)_?[A-Z0-9_]+|XDG_\w+|\w+_VERSION"
)
"""Variables whose values say nothing, or are paths or names that are found by other ways."""

SENSITIVE = re.compile(r"(?i)pass|secret|token|key|auth|cred|cookie|serial|session|private|license|dsn")
"""A variable of such a name holds something that is private however short it is."""

EVERYBODY = frozenset(
    ("root", "user", "admin", "nobody", "ubuntu", "debian", "docker", "runner", "localhost", "localdomain",
     "none")
)  # fmt: skip
SERIALS = tuple(
    Path(file) for file in (
        "/etc/machine-id", "/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/product_uuid",
        "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/chassis_serial",
    )
)  # fmt: skip

_HEX = "[0-9A-Fa-f]"
LOOKS_PRIVATE: tuple[tuple[str, str], ...] = (
    ("token", r"-----BEGIN[^\n]*(?:\n[^\n]+)*?-----END[^\n]*|\beyJ[\w-]{8,}(?:\.[\w-]+){1,2}"
     r"|\b(?:gh[pousr]_|github_pat_|glpat-|nvapi-|sk-|hf_|xox[abprs]-|AKIA|pypi-|dckr_pat_)[\w-]{8,}"),
    ("token", r"(?<=://)[^/\s@]+@"),
    ("token", r"(?i)\b(?:bearer|basic) [\w.+/=-]{8,}|\b(?:password|passwd|secret|token|api[_-]?key"
     r"|authorization)[\"']?\s*[=:]\s*[\"']?[^\s\"',;]+"),
    ("serial number", r"(?i)\b(?:\w+_)?serial(?:[ _]?(?:number|no))?\b\s*[=:]\s*[\"']?[\w-]{4,}"),
    ("e-mail address", r"[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}"),
    ("UUID", rf"\b(?:(?:GPU|MIG)-)?{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}\b"),
    ("MAC address", rf"\b{_HEX}{{2}}(?:[:-]{_HEX}{{2}}){{5,7}}\b|\b{_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}\b"),
    ("IP address", rf"(?<![\w:])(?=[:A-Fa-f]*\d)(?=[:\dA-Fa-f]*::){_HEX}{{1,4}}:[:\dA-Fa-f]*{_HEX}(?![\w:])"
     rf"|(?<![\w:])(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}(?![\w:])"
     r"|(?<![\w.-])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w-]|\.\d)"),
    ("path", r"(?<![\w.<])/(?:home|Users|root)/[\w.+@/-]+|\b[A-Za-z]:\\(?:[^\\\s\"']+\\)*[^\\\s\"']*"),
)  # fmt: skip
"""What looks private on any host, the surest first."""

A_PATH = (
    r"(?<![\w.</])/(?!(?:usr|lib|lib64|opt|etc|proc|sys|dev|bin)/)(?:[\w.+@-]+/)+[\w.+@-]*"
    r"|(?<![\w/.])~[\w-]*/[\w./-]+"
)
"""What is a path in a text; in a graph it may be the name of a node, as torch's exporter writes it."""


def allowed_facts(record: Record) -> dict[str, str]:
    """Return the facts of a record that go out, by their names in :data:`ALLOWED`, as texts."""
    data = record.data
    engine = (data.get("builds") or [data])[0].get("engine") or {}
    facts = {
        **record.observed, **{name: engine.get(name) for name in ("gpu", "compute", "driver_cuda")},
        **{name: record.gpu[name] for name in ("compute", "driver", "variant") if record.gpu.get(name)},
        "date": record.started[:10], "image_id": record.digests.get("image"),
    }  # fmt: skip
    facts["gpu"] = record.gpu.get("name") or facts["gpu"]
    return {name: fact for name in ALLOWED if (fact := allowed(name, facts.get(name)))}


def allowed(name: str, fact: object) -> str:
    """Return a fact as text where it looks as a fact of that name does, else nothing."""
    text = str(fact) if isinstance(fact, str | int | float) else ""
    return text if re.fullmatch(ALLOWED[name], text) else ""


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Takes out of texts what is private. ``known``: value → kind; ``keep``: texts that are wanted.

    ``taken`` counts by file and kind what was replaced: the user is shown it.
    """

    known: Mapping[str, str]
    keep: frozenset[str] = frozenset()
    taken: Counter[tuple[str, str]] = field(default_factory=Counter)

    def clean(self, file: str, text: str, *, is_name: bool = False) -> str:
        """Return a text of a file without what is private; ``[user name]`` or the like stands there instead.

        ``is_name``: it is the name of a node or tensor, which may look like a path.
        """
        wanted = "|".join(map(re.escape, sorted(self.keep, key=len, reverse=True)))
        parts = re.split(rf"(?<![\w.])({wanted})(?![\w.])", text) if wanted else [text]
        return "".join(part if part in self.keep else self._clean(file, part, is_name) for part in parts)

    def _clean(self, file: str, text: str, is_name: bool) -> str:
        for value in sorted(self.known, key=lambda value: (-len(value), value)):
            kind = self.known[value]
            ends = r"(?<![A-Za-z0-9]){}(?![A-Za-z0-9])" if len(value) < 8 else "{}"
            text = self._replace(file, kind, ends.format(re.escape(value)), text, re.IGNORECASE)
        for kind, pattern in LOOKS_PRIVATE:
            text = self._replace(file, kind, pattern, text)
        return text if is_name else self._replace(file, "path", A_PATH, text)

    def _replace(self, file: str, kind: str, pattern: str, text: str, flags: int = 0) -> str:
        def instead(_: re.Match[str]) -> str:
            self.taken[(file, kind)] += 1
            return f"[{kind}]"

        return re.sub(pattern, instead, text, flags=flags)

    def told(self, file: str) -> str:
        """Return in words what was taken out of a file."""
        found = {kind: count for (name, kind), count in sorted(self.taken.items()) if name == file}
        return ", ".join(f"{kind} {count}×" for kind, count in found.items())


def known_values(
    folders: Iterable[Path] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what this host and its user are known by, each with its kind.

    ``folders``: of the project, the cache, a model. ``environment``: this process's where not given. What
    cannot be told from ordinary text is left out: short values, words of this program's own, numbers.
    """
    variables = dict(os.environ if environment is None else environment)
    found: dict[str, str] = {}
    for name in _hosts(variables):
        _add(found, "host name", name)
    for name in _users(variables):
        _add(found, "user name", name)
    for name, value in variables.items():
        secret = bool(SENSITIVE.search(name))
        for text in (value, *re.split(r"[\s,;:=]+", value) * secret) * (not HARMLESS.fullmatch(name)):
            _add(found, "token" if secret else "environment value", text, ordinary=secret)
        for path in re.split(r"[\s:;,=]+", value):
            _add_folder(found, path)
    for path in (*map(str, folders), str(Path.cwd()), str(Path.home()), variables.get("HOME", "")):
        _add_folder(found, path)
        _add_folder(found, os.path.realpath(path) if path else "")
    for text in _serials():
        if len(text) >= 6 and len(set(text)) > 3:
            _add(found, "serial number", text)
    return found


def _add(found: dict[str, str], kind: str, value: str, *, ordinary: bool = False) -> None:
    """Note a value, unless it is everybody's; ``ordinary``: also where it is a word or a number."""
    value = value.strip()
    if len(value) < (4 if ordinary else 3) or value.lower() in EVERYBODY:
        return
    words = re.findall(r"[A-Za-z0-9]+", value) if kind == "environment value" else [value]
    telling = [word for word in words if not word.isdigit() and word.lower() not in own_words()]
    secret = ordinary and len(value) >= 6 and value.lower() not in own_words()  # keyring: "subprocess"
    if (telling and not re.fullmatch(VERSION, value)) or secret:
        found.setdefault(value, kind)


def _add_folder(found: dict[str, str], path: str) -> None:
    """Note a folder that is not one that many hosts have."""
    shared = r"/?|/(?:usr|lib|lib64|opt|etc|proc|sys|dev|bin|sbin|run|var)(?:/.*)?|/[^/]*|/(?:home|Users)/?"
    path = path.rstrip("/")
    if path.startswith("/") and not re.fullmatch(shared, path):
        found.setdefault(path, "path")


def _users(variables: Mapping[str, str]) -> Iterator[str]:
    yield from (variables.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME"))
    home = variables.get("HOME", "")
    yield home.rstrip("/").rpartition("/")[2] if home.count("/") > 1 else ""
    try:
        import pwd

        account = pwd.getpwuid(os.getuid())
    except (ImportError, KeyError):
        return
    yield account.pw_name
    yield account.pw_gecos.partition(",")[0]


def _hosts(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield this host's names, and the domains that it is in."""
    names = [
        platform.node(),
        *(variables.get(name, "") for name in ("HOSTNAME", "HOST", "SLURMD_NODENAME", "NODE_NAME")),
    ]
    for name in names:
        yield name
        first, _, domain = name.partition(".")
        yield first
        if "." in domain:
            yield domain
    try:
        lines = Path("/etc/resolv.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for words in map(str.split, lines):
        yield from (word for word in words[1:] if words[0] in {"search", "domain"} and "." in word.strip("."))


def _serials() -> Iterator[str]:
    """Yield serial numbers of this machine and its GPUs, where they can be read."""
    from trtmatrix.launchers.gpu import find_gpus

    for file in SERIALS:
        try:
            yield file.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
    yield from (gpu.uuid or "" for gpu in find_gpus().gpus)


@lru_cache(maxsize=1)
def own_words() -> frozenset[str]:
    """Return the words of this program's own text in lower case: they say nothing of anybody."""
    words: set[str] = set()
    for file in Path(__file__).resolve().parents[1].rglob("*.py"):
        words.update(re.findall(r"[a-z0-9]+", file.read_text(encoding="utf-8", errors="replace").lower()))
    return frozenset(words)


def clean_graph(model: ModelProto, redactor: Redactor, file: str) -> dict[str, str]:
    """Take everything out of a graph but what it computes; returns the new names of tensors.

    Doc strings, metadata, producer and notes on shapes go; names of nodes and tensors are searched.
    """
    for name in ("doc_string", "producer_name", "producer_version", "domain"):
        model.ClearField(name)
    del model.metadata_props[:]
    renamed: dict[str, str] = {}
    for graph in _graphs(model.graph):
        graph.ClearField("doc_string")
        del graph.value_info[:], graph.quantization_annotation[:]
        graph.name = "graph"
        for part in (*graph.node, *graph.input, *graph.output, *graph.initializer):
            part.ClearField("doc_string")
        for node in graph.node:
            node.name = redactor.clean(file, node.name, is_name=True)
            for names in (node.input, node.output):
                names[:] = [_rename(name, redactor, file, renamed) for name in names]
        for tensor in (*graph.input, *graph.output, *graph.initializer):
            tensor.name = _rename(tensor.name, redactor, file, renamed)
    for function in model.functions:
        function.ClearField("doc_string")
    return renamed


def _rename(name: str, redactor: Redactor, file: str, renamed: dict[str, str]) -> str:
    """Return a tensor's name, or another for it where it holds something private."""
    if name not in renamed and name and redactor.clean(file, name, is_name=True) != name:
        renamed[name] = f"tensor_{len(renamed)}"
    return renamed.get(name, name)


def _graphs(graph: Any) -> Iterator[Any]:  # noqa: ANN401 - of protobuf
    """Yield a graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            attribute.ClearField("doc_string")
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs(inner)
