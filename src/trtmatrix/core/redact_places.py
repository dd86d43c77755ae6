"""The rules by which folders of people are known on any host: homes, shared file systems, shares. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtmatrix.core.privacy import Private
from trtmatrix.core.redact_base import PATH, SLASH, Rule

_NAME = r"(?!<)(?:[\w.+-]|%(?!2[Ff])[0-9A-Fa-f]{2})+"
_SYSTEM = "usr|lib|lib64|opt|etc|proc|sys|dev|bin|boot"
HOME = (
    rf"{PATH}(?!/tmp/|/(?:{_SYSTEM})/(?!home/))(?:/[\w.+-]{{1,64}}){{0,3}}?{SLASH}(?:home\d*|[Uu]sers"
    rf"|people){SLASH}{_NAME}"
)
"""``/home/x``, also below a mount (``/mnt/nfs/home/x``) and where homes are many (``/home2/x``)."""
WINDOWS = (
    r"(?i)\b[A-Z]:\\{1,2}(?:Users"
    r"|Documents and Settings)\\{1,2}(?!<)[^\\\s\"'<>]+(?:(?: [^\\\s\"'<>]+){1,3}(?=\\))?"
)
ROOT_HOME = rf"{PATH}/root(?![\w-])"
_SHARED = (
    r"scratch|gpfs|lustre|beegfs|weka(?:fs)?|cephfs|ceph|nfs|net|afs|fsx|efs|ptmp|pscratch|mnt|media|Volumes"
    r"|run/media|autofs"
)
SHARED = rf"{PATH}/(?:{_SHARED})\d*/{_NAME}(?:/[\w.+%-]+(?=/))*"
"""A folder on a file system that people share: each name below its root may be a user's or a project's."""
UNC = (
    r"(?<![\\\w:])(?:\\\\[A-Za-z0-9][\w.-]+\\(?:[\w.-]{2,}|\w)\$?(?:\\[\w.$-]+)*"
    r"|\\\\\\\\[A-Za-z0-9][\w.-]+\\\\[\w.-]+\$?(?:\\\\[\w.$-]+)*)"
)
r"""A share of Windows, ``\\server\share``, also where it is escaped."""
BUCKET = r"(?<![\w+.-])(?:s3[an]?|gs|gcs|abfss?|wasbs?|hdfs|oss|cos|swift|ceph|az)://(?!<)[^\s\"'<>,;()\[\]]+"
"""What lies in somebody's store of objects."""


def place_rules(*, script: bool) -> Iterator[Rule]:
    """Yield the rules; ``script``: of a text that is run, in which ``/root`` is no home."""
    yield Rule(kind=Private.HOME, pattern=re.compile(HOME))
    yield Rule(kind=Private.HOME, pattern=re.compile(WINDOWS), needs="\\")
    if not script:
        yield Rule(kind=Private.HOME, pattern=re.compile(ROOT_HOME), needs="/root")
    yield Rule(kind=Private.WORKSPACE, pattern=re.compile(UNC), needs="\\\\")
    yield Rule(kind=Private.WORKSPACE, pattern=re.compile(BUCKET), needs="://")
    yield Rule(kind=Private.WORKSPACE, pattern=re.compile(SHARED), needs="/")
