"""Sorts what variables of the environment hold: passwords, paths, hosts, and what says nothing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

PUBLIC_HOSTS = (
    "localhost", "nvidia.com", "nvcr.io", "docker.io", "docker.com", "github.com", "ghcr.io", "quay.io",
    "pypi.org", "pythonhosted.org", "pytorch.org", "python.org", "huggingface.co", "debian.org",
    "ubuntu.com", "anaconda.org", "conda-forge.org", "microsoft.com", "google.com", "googleapis.com",
    "gitlab.com", "git-scm.com", "kernel.org", "wikipedia.org", "arxiv.org", "readthedocs.io", "onnx.ai",
    "apache.org",
    "gnu.org", "intel.com", "redhat.com", "k8s.io", "npmjs.org", "gcr.io", "onnxruntime.ai", "example.org",
)  # fmt: skip
"""Hosts whose names, and those below them, say nothing of anybody."""

STANDARD = re.compile(
    r"/|/(?:usr|bin|sbin|lib|lib32|lib64|etc|dev|proc|sys|run|var|boot|snap|opt|nix)(?:/.*)?"
    r"|/(?:tmp|home|root|Users|mnt|media|srv|work|workspace|data|src|app|job|out)/?"
)
"""Folders that many hosts have."""

SYSTEM = re.compile(r"/[^/]*|/usr/[^/]+|/var/[^/]+|/home/[^/]+|/Users/[^/]+")
"""Folders that hold more than one user's work."""

HARMLESS = re.compile(
    r"(?i)(?:term|terminfo|colorterm|shell|shlvl|_|ls_colors|lscolors|less|lessopen|lessclose"
    r"|lesscharset|pager|editor|visual"
    r"|tz|debian_frontend|histsize|histfilesize|histcontrol|columns|lines|ps1|ps2|mail|oldpwd|pwd|home"
    r"|user|username"
    r"|sudo_user|hosttype|ostype|machtype|logname|hostname|path|manpath|infopath|gpg_key|python_sha256"
    r"|xdg_(?:session_(?:id|type|class)|current_desktop|seat|vtnr))"
)
"""Variables whose values say nothing, or are looked at by other ways (paths)."""

_LOCALE = r"(?:C|POSIX|[A-Za-z]{2,3}(?:_[A-Z]{2})?)(?:[.@][\w-]+)*(?::[A-Za-z_:.]+)?"
_NUMBER = (
    r"v?\d[\d.]*(?:[-+~._](?:\d[\d.]*|rc\d*|post\d*|dev\d*|ga|cuda[\d.]+|cu\d+|ubuntu[\d.]+|deb\d+\w*))*"
)
_PACKAGE = r"(?:lib|cuda|nv|nsight|tensorrt|cudnn|nccl)[a-z0-9-]*"
TUNED = (
    (r"LANG|LANGUAGE|LC_(?:ALL|CTYPE|NUMERIC|TIME|COLLATE|MONETARY|MESSAGES|PAPER|NAME|ADDRESS|TELEPHONE"
     r"|MEASUREMENT|IDENTIFICATION)", _LOCALE),
    (r"\w+_VERSION", _NUMBER),
    (r"NV_(?:CUDA|LIB|NVML|NVPROF|NVTX|CUDNN|NCCL|TENSORRT)\w*", rf"(?:{_PACKAGE}|{_NUMBER}"
    r"|{_PACKAGE}[=-]{_NUMBER})"),
    (r"(?:OMP|GOMP|KMP)_(?:NUM_THREADS|SCHEDULE|DYNAMIC|NESTED|PROC_BIND|PLACES|STACKSIZE|WAIT_POLICY"
     r"|MAX_ACTIVE_LEVELS|THREAD_LIMIT|CANCELLATION|DISPLAY_ENV|DISPLAY_AFFINITY|DEFAULT_DEVICE"
     r"|MAX_TASK_PRIORITY"
     r"|TARGET_OFFLOAD|TOOL|CPU_AFFINITY|SPINCOUNT|AFFINITY|BLOCKTIME|HW_SUBSET|INIT_AT_FORK"
     r"|DUPLICATE_LIB_OK)"
     r"|MKL_(?:NUM_THREADS|DYNAMIC|THREADING_LAYER|INTERFACE_LAYER|SERVICE_FORCE_INTEL|DEBUG_CPU_TYPE"
     r"|CBWR|VERBOSE)",
     r"(?i)(?:[\d\s,:(){}*+-]|\b\d+[bkmgct]?\b|\b(?:true|false|yes|no|cores|threads|sockets|ll_caches"
     r"|numa_domains|spread|close"
     r"|master|primary|static|dynamic|guided|auto|active|passive|mandatory|disabled|enabled|default"
     r"|verbose|monotonic"
     r"|nonmonotonic|gnu|intel|tbb|sequential|lp64|ilp64|granularity|fine|compact|scatter|balanced|none"
     r"|infinite"
     r"|infinity|avx2?|avx512|sse\d?|compatible|strict)\b|[=,])*"),
    (r"CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS|MODULE_LOADING|MODULE_DATA_LOADING)",
     r"[\d,\s-]*|(?i:lazy|eager|default|fastest_first|pci_bus_id|nodevfiles|void|all|none)"),
    (r"NVIDIA_(?:VISIBLE_DEVICES|DRIVER_CAPABILITIES|DISABLE_REQUIRE|TF32_OVERRIDE|PRODUCT_NAME)",
     r"(?i)[\d,\s]*|(?:(?:all|none|void|true|false|compute|utility|graphics|video|display|compat32|ngx"
     r"|tensorrt|cuda"
     r"|pytorch|triton server|triton)\b,?)*"),
    (r"NVIDIA_REQUIRE_\w+", r"(?:(?:cuda|driver|arch|brand)[<>=!]+[\d.]*[a-z]*\d*[, ]*)*"),
    (r"PYTHON(?:HASHSEED|DONTWRITEBYTECODE|UNBUFFERED|IOENCODING|UTF8|FAULTHANDLER|NOUSERSITE)",
     r"(?i)\d*|random|utf-?8(?::\w+)?|ascii|true|yes"),
    (r"DISPLAY", r"(?:localhost)?:\d+(?:\.\d+)?"),
)  # fmt: skip
"""Variables of systems and libraries by their real names, and what they hold unless somebody wrote else."""

JOBS = re.compile(
    r"(?:SLURM|PBS|LSB|SGE|COBALT|FLUX|OAR)_?\w*JOB_?(?:ID|INDEX)|SLURM_JOBID|JOB_ID|CI_(?:JOB|PIPELINE)_ID"
)
"""Numbers by which a cluster's or a build server's people find who ran what."""
NODES = re.compile(
    r"(?:SLURM|PBS|LSB)_?\w*(?:NODELIST|NODENAME|HOSTS?|SUBMIT_HOST)|SLURMD_NODENAME|(?:K8S_)?NODE_?NAME"
)

SENSITIVE = re.compile(r"(?i)pass|secret|token|key|auth|cred|cookie|session|private|salt|license|licence|dsn")


def is_private_host(name: str) -> bool:
    """Whether a name with dots is of a host that is not everybody's."""
    lower = name.lower()
    return "." in lower and not any(lower == host or lower.endswith(f".{host}") for host in PUBLIC_HOSTS)


def is_harmless(name: str, value: str) -> bool:
    """Whether a variable says nothing of anybody: by its name, or as it holds what such a variable does."""
    if HARMLESS.fullmatch(name):
        return True
    return any(re.fullmatch(names, name) and re.fullmatch(holds, value) for names, holds in TUNED)


def _nodes(value: str) -> Iterator[str]:
    """Yield the names in a list as SLURM writes it: ``gpu[01-03,7],x1``."""
    for head, ranges in re.findall(r"([A-Za-z][\w.-]*)(?:\[([\d,-]+)\])?", value):
        if not ranges:
            yield head
            continue
        yield f"{head}[{ranges}]"
        for one in ranges.split(","):
            first, _, last = one.partition("-")
            if first.isdigit() and (last or first).isdigit():
                for number in range(int(first), min(int(last or first), int(first) + 255) + 1):
                    yield f"{head}{number:0{len(first)}d}"


class Values:
    """Sorts what variables hold into tokens, paths, hosts and other values."""

    def __init__(self, words: frozenset[str]) -> None:
        """Start with nothing; ``words`` are those of this program's own text, in lower case."""
        self._words = words
        self.tokens: list[str] = []
        self.values: list[str] = []
        self.paths: list[str] = []
        self.hosts: list[str] = []

    def add(self, name: str, value: str) -> None:
        """Look at one variable."""
        value = value.strip()
        for path in re.split(r"[:;,=\s]", value):
            if re.match("/[^/]", path) and not STANDARD.fullmatch(path.rstrip("/")):
                self.paths.append(path.rstrip("/"))
        if JOBS.fullmatch(name) and re.fullmatch(r"\d{6,12}", value):  # shorter ones look like figures
            self.values.append(value)
        if NODES.fullmatch(name):
            self.hosts += _nodes(value)
            return
        sensitive = bool(SENSITIVE.search(name))
        if is_harmless(name, value) or not self._says_something(value, sensitive=sensitive):
            return
        if "://" in value:
            self._add_address(value)
        (self.tokens if sensitive else self.values).append(value)
        if sensitive:
            self.tokens += [one for one in re.findall(r"[\w+/=.~-]{16,}", value) if not one.startswith("/")]

    def _add_address(self, value: str) -> None:
        """Take hosts and passwords out of a URL."""
        for url in re.findall(r"[\w+.-]+://[^\s\"']+", value):
            try:
                parts = urlsplit(url)
                host, password = parts.hostname or "", parts.password or ""
            except ValueError:
                continue
            if is_private_host(host) and not re.fullmatch(r"[\d.]+", host):
                self.hosts.append(host)
            if len(password) >= 4:
                self.tokens.append(password)

    def _says_something(self, value: str, *, sensitive: bool) -> bool:
        """Whether a value is neither number, version, path, switch nor made of ordinary words."""
        if len(value) < (4 if sensitive else 5) or value.startswith("/"):
            return False
        if re.fullmatch(r"[\d.,:;x+-]+", value):
            return sensitive and len(value) >= 6 and value.isdigit()
        words = re.findall(r"[A-Za-z0-9]+", value)
        return any(word.lower() not in self._words and not word.isdigit() for word in words)
