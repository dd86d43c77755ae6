"""The rules by which tokens, keys and passwords are known: by how they look or what they are called. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trtmatrix.core.privacy import Private
from trtmatrix.core.redact_base import HARMLESS, IS, LEFT, Rule, said

_TOKEN = Private.TOKEN

PREFIXED = (
    r"gh[opsur]_[A-Za-z0-9]{16,}", r"github_pat_\w{20,}",
    r"gl(?:pat|ptt|rt|dt|cbt|imt|soat|ft|agent)-[\w-]{16,}",
    r"hf_[A-Za-z0-9]{16,}", r"sk-[A-Za-z0-9_-]{16,}", r"nvapi-[\w-]{16,}",
    r"(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}", r"xox[a-z]-[\w-]{8,}", r"xapp-[\w-]{8,}", r"AIza[\w-]{30,}",
    r"npm_[A-Za-z0-9]{20,}", r"pypi-[\w-]{16,}", r"dckr_(?:pat|oat)_[\w-]{16,}", r"ya29\.[\w-]{16,}",
    r"SG\.[\w-]{16,}\.[\w-]{16,}", r"wandb_v1_\w{16,}", r"[srp]k_(?:live|test)_[A-Za-z0-9]{8,}",
    r"whsec_[\w+/=]{16,}", r"do[opr]_v1_[0-9a-f]{16,}", r"glc_[\w+/=-]{12,}", r"glsa_\w{16,}",
    r"hv[sbr]\.[\w-]{20,}",
    r"ATATT[\w=-]{20,}", r"gsk_[A-Za-z0-9]{20,}", r"r8_[A-Za-z0-9]{20,}", r"dapi[0-9a-f]{32}",
    r"lin_api_\w{16,}",
    r"sh(?:pat|pss|pca)_[0-9a-fA-F]{16,}", r"AGE-SECRET-KEY-1[0-9A-Z]{16,}", r"AKCp[A-Za-z0-9]{20,}",
    r"eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?",
)  # fmt: skip
"""Tokens that are known by how they start: of GitHub, GitLab, Hugging Face, OpenAI and Anthropic, NVIDIA,
AWS, Slack, Google, npm, PyPI, Docker, SendGrid, Weights & Biases, Stripe, DigitalOcean, Grafana, Vault,
Atlassian, Groq, Replicate, Databricks, Linear, Shopify, age, JFrog; and JSON Web Tokens."""

_KEY = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
_CUT = r"(?<![\w+/=])(?:[\w+/=]{16,}(?:\s|\\n)+){1,200}"
KEY_BLOCK = rf"-----BEGIN {_KEY}.*?(?:-----END {_KEY}|\Z)|{_CUT}-----END {_KEY}"
"""A private key; also one whose start was cut off, as a log's is."""

PUBLIC_KEY = r"(?:ssh|ecdsa)-[\w@.-]{3,40} AAAA[\w+/=]{20,}(?: [\w.-]{1,64}@[\w.-]{1,253})?"
"""An SSH key with its comment, which is the user and the host that made it."""

PASSWORDS = (
    r"passw(?:or)?ds?|passphrase|passwd|secrets?|(?-i:_PWD|_PW)|account[_-]?key|shared[_-]?access[_-]?key"
)
ADDRESSED = r"(?-i:(?<![A-Za-z_.])pwd(?:_[a-z]\w{0,20})?|PWD_[A-Z]\w{0,20})"
KEYS = (
    r"tokens?|api[ _-]?keys?|apikey|access[_-]?key(?:[_-]?id)?|private[_-]?key|credentials?|auth[_-]?key"
    r"|session[_-]?id|cookie|secret[_-]?key"
)
_LONG = r"api[ _-]?keys?|apikey|access[_-]?key|private[_-]?key|auth[_-]?key|secret[_-]?key"
"""Names of keys whose values are taken without a digit, where they are long."""
_WORTH = r"(?P<v>[^\s\"'<>,;&\\{}()\[\]]{4,})"
_ASSIGNED = r"(?:\\?[\"'])?\]?\s{0,3}[:=]\s{0,3}[rbfuRBFU]{0,2}"
_CALLED = rf"(?P<name>{PASSWORDS}|{KEYS}|{ADDRESSED})"
TRIPLE = rf"(?is){_CALLED}{_ASSIGNED}(?P<q>\"\"\"|''')(?P<v>.{{4,4096}}?)(?P=q)"
QUOTED = (
    rf"(?i){_CALLED}{_ASSIGNED}(?:\"(?P<d>(?:[^\"\\\n]|\\[^\n]){{4,1024}})\"|'(?P<s>(?:[^'\\\n]"
    rf"|\\[^\n]){{4,1024}})'"
    r"|\\\"(?P<e>[^\"\n]{4,1024}?)\\\"|\\'(?P<f>[^'\n]{4,1024}?)\\')"
)
NAMED = rf"(?i){_CALLED}{IS}{_WORTH}"
OPTION = rf"(?i)--?{_CALLED} \\?[\"']?{_WORTH}"
OPTION_QUOTED = rf"(?i)--?{_CALLED} (?P<q>[\"'])(?P<v>[^\"'\n]{{4,512}})(?P=q)"
SPOKEN = (
    r"(?i)(?<![\w-])(?:passwd|password|passphrase|pwd)(?:\s(?:is|was))?[ \t]{1,3}"
    r"[\"']?(?P<v>(?=[^\s\"'<>]*\d)(?=[^\s\"'<>]*[A-Za-z])[^\s\"'<>/(){}\[\],;:=]{6,})"
)
"""Behind a word for it, without a sign between: with a digit in it, as English words have none."""
HEADER = (
    r"(?i)(?<![\w-])(?:x-[a-z-]{0,40}(?:key|token|auth[a-z-]*|secret|signature|session)|private-token"
    r"|job-token|deploy-token)"
    r"[\"']?\s{0,2}[:=]\s{0,3}[\"']?(?P<v>[^\s\"'<>,;]{6,})"
)
COOKIE = r"(?i)(?<![\w-])(?:set-)?cookie[\"']?:\s{0,3}[\"']?(?P<v>[\w.-]{1,64}=[^\n\"'<>]{4,})"
AUTHORIZATION = (
    rf"(?i)authorization{IS}(?:(?:bearer|basic|token|digest|negotiate)\s+)?"
    r"(?P<v>(?!(?:bearer|basic|token|digest|negotiate)\b)[\w.~+/=-]{6,})"
)
BEARER = r"(?i)\bbearer\s+(?P<v>[\w.~+/=-]{12,})"
IN_URL = r"(?<=://)(?!git@)[^\s/@\"'<>\[\]]{1,512}(?=@)"
SIGNED = (
    r"(?i)[?&](?:sig|signature|x-(?:amz|goog)-[a-z-]+|key|code|awsaccesskeyid|googleaccessid|key-pair-id"
    r"|policy"
    r"|access_token|auth|sas|st|se|skoid|sktid)=(?P<v>[^\s\"'<>&]{8,})"
)
"""What is signed or gives access in a URL's query: of S3, Google, CloudFront, Azure."""
CURL = (
    r"(?:\b(?:curl|wget|https?)\b[^\n]{0,300}?\s(?:-u|-U|--user|--proxy-user)[ =]?[\"']?"
    r"(?P<v>[^\s:\"'<>$]{1,64}:[^\s\"'<>$]{3,}))"
)
LOGIN = (
    r"\b(?:(?:docker|podman|nerdctl|oras|crane|helm)\s[^\n]{0,40}?\blogin\b[^\n]{0,200}?\s-p[ =]?"
    r"|sshpass\s+-p\s?|mysql\w*\s[^\n]{0,200}?\s-p)[\"']?(?P<v>[^\s\"'<>$-][^\s\"'<>$]{3,})"
)
WEBHOOK = (
    r"(?i)(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/"
    r"|\.webhook\.office\.com/webhookb2/|outlook\.office(?:365)?\.com/webhook/"
    r"|chat\.googleapis\.com/v1/spaces/"
    r"|api\.telegram\.org/bot)(?P<v>[^\s\"'<>?]{8,})"
)
"""A webhook's address: who knows it may post."""
HEXED = (
    r"(?i)(?:wandb|weights ?& ?biases|comet|neptune|clearml|api[ _-]?key|netrc|\blogin\b)"
    r"(?:(?!commit|git|sha|rev|digest|head|checkout|tree)[^\n]){0,60}?"
    r"(?<![0-9a-z@:/.-])(?P<v>[0-9a-f]{40}|[0-9a-f]{32})(?![0-9a-z])"
)
"""A key that looks like a commit's name: told from one by the words before it."""
SERVICE = (
    r"(?i)\b(?:ngc|nvcr|wandb|docker|registry|hugging ?face|hf|openai|azure|aws|gcp|comet|clearml"
    r"|jenkins|gitlab|github)"
    r"[ _-](?:api[ _-]|access[ _-]|cli[ _-])?key[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?P<v>[\w+/=.-]{12,})"
)
NETRC = r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<v>[^\s<]\S*)"
DOCKER_AUTH = r"(?i)\"(?:auth|identitytoken|registrytoken)\"\s{0,3}:\s{0,3}\"(?P<v>[\w+/=.-]{8,})\""
"""What Docker's configuration file keeps of a login: user and password in base64."""


_NAMES = ("pass", "secret", "token", "key", "cred", "session", "cookie", "pwd", "_pw")
"""What one of is in every name of a password or key."""


def token_rules() -> Iterator[Rule]:
    """Yield the rules of tokens and passwords that are known by how they look or what they are called."""
    yield Rule(kind=_TOKEN, pattern=re.compile(KEY_BLOCK, re.DOTALL), needs="PRIVATE KEY")
    yield Rule(kind=_TOKEN, pattern=re.compile(f"{LEFT}(?:{'|'.join(PREFIXED)})"))
    yield Rule(kind=_TOKEN, pattern=re.compile(PUBLIC_KEY), needs=" AAAA")
    yield Rule(kind=_TOKEN, pattern=re.compile(IN_URL), needs="://")
    yield said(_TOKEN, WEBHOOK, "/", words=("hook", "chat.", "telegram"))
    yield said(_TOKEN, AUTHORIZATION, words=("authorization",))
    yield said(_TOKEN, BEARER, accept=_has_digit, words=("bearer",))
    yield said(_TOKEN, SIGNED, "=", words=("?", "&"))
    yield said(_TOKEN, CURL, ":", words=("curl", "wget", "http"))
    yield said(_TOKEN, LOGIN, "-p", words=("login", "sshpass", "mysql"))
    yield said(_TOKEN, NETRC, "machine")
    yield said(_TOKEN, DOCKER_AUTH, '"')
    yield said(_TOKEN, HEADER, accept=_is_value, words=("x-", "-token"))
    yield said(_TOKEN, COOKIE, "=", words=("cookie",))
    yield said(_TOKEN, TRIPLE, accept=_is_secret, words=_NAMES)
    for group in "dsef":
        yield Rule(
            kind=_TOKEN, pattern=re.compile(QUOTED), group=group, accept=_is_quoted_secret, words=_NAMES
        )
    for pattern in (OPTION_QUOTED, NAMED, OPTION):
        yield said(_TOKEN, pattern, accept=_is_secret, words=_NAMES)
    yield said(_TOKEN, SPOKEN, words=("pass", "pwd"))
    yield said(
        _TOKEN, HEXED, words=("wandb", "weights", "comet", "neptune", "clearml", "key", "netrc", "login")
    )
    yield said(_TOKEN, SERVICE, accept=_has_digit, words=("key",))


def _has_digit(match: re.Match[str]) -> bool:
    return any(character.isdigit() for character in match["v"])


def _is_value(match: re.Match[str]) -> bool:
    return match["v"].lower() not in HARMLESS and not match["v"].startswith("$")


def _is_secret(match: re.Match[str]) -> bool:
    """Whether what is called a password or a key is one: a key has digits beside letters."""
    return is_secret(match["name"], match["v"].rstrip(".:"))


def _is_quoted_secret(match: re.Match[str]) -> bool:
    value = match["d"] or match["s"] or match["e"] or match["f"]
    return is_secret(match["name"], value)


_PASSWORDS_END = re.compile(f"(?i)(?:{PASSWORDS})$")
_ADDRESSED_END = re.compile(f"(?:{ADDRESSED}|(?<![A-Za-z_.])PWD)$")
_KEYS_END = re.compile(f"(?i)(?:{KEYS})$")
_LONG_END = re.compile(f"(?i)(?:{_LONG})$")


def is_secret(name: str, value: str) -> bool:
    """Whether a value that is called so is a secret."""
    if value.lower() in HARMLESS or len(value) < 4 or value.startswith(("$", "<")):
        return False
    if _PASSWORDS_END.search(name):
        return True
    if _ADDRESSED_END.search(name):  # the working directory is called so, too
        return not re.match(r"[/~.%\\]|[A-Za-z]:\\", value)
    if not _KEYS_END.search(name):
        return False
    if len(value) >= 16 and _LONG_END.search(name) and re.fullmatch(r"[A-Za-z+/=]+", value):
        return True
    return len(value) >= 8 and any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_HANDED = re.compile(f"(?i)(?:{PASSWORDS}|{KEYS})$")


def is_secret_name(name: str) -> bool:
    """Whether what stands under a name, however deep, may be a secret."""
    return bool(_HANDED.search(name))
