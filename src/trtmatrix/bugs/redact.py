"""What goes out of this host: fields that are known to be harmless, and texts without what is private.

Facts of a record go out by an allow-list (:func:`allowed_facts`): what is not named there, or does not look
as such a fact looks, is left out. Texts (messages of a product, a repro's own words, names in a graph) are
searched for values that this host knows of itself, and for what looks private anywhere (:class:`Redactor`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import pwd
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto

    from trtmatrix.judge.record import Record

VERSION = r"v?\d+(?:[.+_-]?[A-Za-z0-9]+){0,8}"
ALLOWED: Mapping[str, str] = {
    **dict.fromkeys(("library", "driver", "cuda", "cudnn", "python", "torch"), VERSION),
    "gpu": r"[A-Za-z0-9 ()/.-]{1,64}", "compute": r"\d{1,2}\.\d",
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
USER_VARIABLES = ("USER", "LOGNAME", "SUDO_USER", "USERNAME")
HOST_VARIABLES = ("HOSTNAME", "HOST", "SLURMD_NODENAME", "NODE_NAME")
EVERYBODYS_FOLDER = (
    r"/?|/(?:usr|lib|lib64|opt|etc|proc|sys|dev|bin|sbin|run|var)(?:/.*)?|/[^/]*|/(?:home|Users)/?"
)
_HEX = "[0-9A-Fa-f]"
LOOKS_PRIVATE: tuple[tuple[str, str], ...] = (
    ("token", r"-----BEGIN[^\n]*(?:\n[^\n]+)*?-----END[^\n]*|\beyJ[\w-]{8,}(?:\.[\w-]+){1,2}"
     r"|\b(?:gh[pousr]_|github_pat_|glpat-|nvapi-|sk-|hf_|xox[abprs]-|AKIA|pypi-|dckr_pat_)[\w-]{8,}"),
    ("token", r"(?<=://)[^/\s@]+@"),
    ("token", r"(?i)\b(?:bearer|basic) [\w.+/=-]{8,}|\b(?:password|passwd|secret|token|api[_-]?key"
     r"|authorization)[\"']?\s*[=:]\s*[\"']?[^\s\"',;]+"),
    ("serial number", rf"\b{_HEX}{{32}}\b"),
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


NOTES = frozenset(
    ("doc_string", "producer_name", "producer_version", "metadata_props", "value_info",
     "quantization_annotation", "training_info", "configuration", "device_configurations")
)  # fmt: skip
"""Fields of ONNX's messages that decide nothing of what is computed: torch's exporter writes stack traces of
the model's own code into ``metadata_props``. https://github.com/onnx/onnx/blob/main/onnx/onnx.proto."""


def allowed_facts(record: Record) -> dict[str, str]:
    """Return the facts of a record that go out, by their names in :data:`ALLOWED`, as texts."""
    facts = {
        **record.observed, **{name: record.gpu.get(name) for name in ("compute", "driver")},
        "gpu": record.gpu.get("name"), "date": record.started[:10], "image_id": record.digests.get("image"),
    }  # fmt: skip
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

    @classmethod
    def of_host(cls, files: Iterable[Path | None], keep: Iterable[str]) -> Redactor:
        """Return one that knows this host, and the folders of these files."""
        folders = [file.resolve().parent for file in files if file]
        return cls(known=known_values(folders), keep=frozenset(filter(None, keep)))

    def clean(self, file: str, text: str, *, is_name: bool = False) -> str:
        """Return a text of a file without what is private; ``[user name]`` or the like stands there instead.

        ``is_name``: it is the name of a node or tensor, which may look like a path.
        """
        wanted = "|".join(map(re.escape, sorted(self.keep, key=len, reverse=True)))
        parts = re.split(rf"(?<![\w.])({wanted})(?![\w.])", text) if wanted else [text]
        patterns = list[tuple[str, str]]()
        for value in sorted(self.known, key=lambda value: (-len(value), value)):
            word = r"(?i)(?<![A-Za-z0-9]){}(?![A-Za-z0-9])" if len(value) < 8 else "(?i){}"
            patterns.append((self.known[value], word.format(re.escape(value))))
        patterns += [*LOOKS_PRIVATE, *([] if is_name else [("path", A_PATH)])]
        for place in (place for place, part in enumerate(parts) if part not in self.keep):
            for kind, pattern in patterns:
                parts[place], count = re.subn(pattern, f"[{kind}]", parts[place])
                if count:
                    self.taken[file, kind] += count
        return "".join(parts)

    def told(self, file: str) -> str:
        """Return in words what was taken out of a file."""
        found = {kind: count for (name, kind), count in sorted(self.taken.items()) if name == file}
        return ", ".join(f"{kind} {count}×" for kind, count in found.items())


def known_values(
    folders: Iterable[Path] = (), environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return what this host and its user are known by, each with its kind.

    ``folders``: of the project, the cache, a model. ``environment``: this process's where not given. What
    cannot be told from ordinary text is left out: short values, numbers, versions, a word in small letters.
    """
    variables = dict(os.environ if environment is None else environment)
    home = variables.get("HOME", "")
    hosts = [platform.node(), *(variables.get(name, "") for name in HOST_VARIABLES)]
    hosts += [part for host in hosts for part in host.split(".", 1)]
    users = [variables.get(name, "") for name in USER_VARIABLES]
    users += [home.rstrip("/").rpartition("/")[2]] if home.count("/") > 1 else []
    with contextlib.suppress(KeyError):
        account = pwd.getpwuid(os.getuid())
        users += [account.pw_name, account.pw_gecos.partition(",")[0]]
    found = dict.fromkeys(hosts, "host name") | dict.fromkeys(users, "user name")
    found = {n: kind for n, kind in found.items() if len(n) > 2 and n.lower() not in EVERYBODY}
    for name, value in variables.items():
        if not HARMLESS.fullmatch(name):
            secret = bool(SENSITIVE.search(name))
            for text in (value.strip(), *re.split(r"[\s,;:=]+", value) * secret):
                if len(text) > 3 and not re.fullmatch(rf"{VERSION}|[a-z]+|[\W\d]+", text):
                    found.setdefault(text, "token" if secret else "environment value")
    paths = [path for value in variables.values() for path in re.split(r"[\s:;,=]+", value)]
    paths += [*map(str, folders), str(Path.cwd()), str(Path.home())]
    for folder in (each for path in paths if path for each in (path.rstrip("/"), os.path.realpath(path))):
        if folder.startswith("/") and not re.fullmatch(EVERYBODYS_FOLDER, folder):
            found.setdefault(folder, "path")
    return found


def clean_graph(model: ModelProto, redactor: Redactor, file: str) -> dict[str, str]:
    """Take everything out of a graph but what it computes; returns the new names of tensors.

    :data:`NOTES` go, wherever they stand; names of nodes and tensors are searched.
    """
    renamed: dict[str, str] = {}

    def rename(name: str) -> str:
        if name not in renamed and name and redactor.clean(file, name, is_name=True) != name:
            renamed[name] = f"tensor_{len(renamed)}"
        return renamed.get(name, name)

    def clean(message: Any) -> None:  # noqa: ANN401 - protobuf's messages have no types
        for part, value in message.ListFields():
            if part.name in NOTES:
                message.ClearField(part.name)
            elif part.message_type is not None:
                for inner in [value] if hasattr(value, "ListFields") else value:
                    clean(inner)
        kind = type(message).__name__
        if kind == "GraphProto":
            message.name = "graph"
        elif kind in {"TensorProto", "ValueInfoProto"}:
            message.name = rename(message.name)
        elif kind in {"NodeProto", "FunctionProto"}:
            for names in (message.input, message.output):
                names[:] = map(rename, names)
        if kind == "NodeProto":
            message.name = redactor.clean(file, message.name, is_name=True)

    model.ClearField("domain")
    clean(model)
    return renamed
