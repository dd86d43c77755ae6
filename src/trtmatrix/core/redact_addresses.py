"""Tells addresses of networks from versions, times and names of C++, which look alike. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection

IPV4 = re.compile(r"(?:(?<![\w.])|(?<=\\[nrt]))(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
IPV6 = re.compile(
    r"(?<![A-Za-z0-9_])(?=[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?:(?<=:)(?:\d{1,3}\.){3}\d{1,3})?(?<!:)(?![A-Za-z0-9_]|\.\d)"
)
_PAIR = "[0-9A-Fa-f]{2}"
_NOT_BEFORE = rf"(?<![^0-9A-Za-z]{_PAIR}[:-])(?<![0-9A-Za-z])"
MACS = (
    re.compile(rf"{_NOT_BEFORE}{_PAIR}(?::{_PAIR}){{5}}(?::{_PAIR}:{_PAIR})?(?![0-9A-Za-z]|:{_PAIR})"),
    re.compile(
        rf"{_NOT_BEFORE}(?=[0-9-]*[A-Fa-f]){_PAIR}(?:-{_PAIR}){{5}}(?:-{_PAIR}-{_PAIR})?(?![0-9A-Za-z]"
        rf"|-{_PAIR})"
    ),
    re.compile(
        r"(?i)(?<![0-9a-z.])(?=[0-9.]*[a-f])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![0-9a-z]|\.[0-9a-z])"
    ),
)
"""MAC addresses (and those of InfiniBand, of 8 pairs) with colons, with hyphens, and as Cisco writes them."""
PLAIN_MAC = re.compile(
    r"(?i)(?<![a-z])(?:macs?(?:[ _-]?addr(?:ess)?(?:es)?)?|hwaddr|ether|lladdr|bssid|(?:hardware"
    r"|physical)[ _-]address)"
    r"[\"']?\s{0,10}[:=]?\s{0,10}\[?[\"']?(?P<v>[0-9a-f]{12})(?![0-9a-z])"
)
"""Twelve digits that a word before them calls an address."""
GUID = re.compile(
    r"(?i)(?<![a-z])(?:(?:port|node|sys(?:tem)?[ _]?image)[ _]?)?guid[\"']?\s{0,10}[:=]?\s{0,10}[\"']?"
    r"(?P<v>(?:0x)?[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![0-9a-z])"
)
"""How InfiniBand's tools name a port."""

RELEASES = frozenset({
    "10.0.0.6", "10.0.1.6", "10.1.0.27", "10.2.0.19", "10.3.0.26", "10.3.0.30", "10.4.0.26", "10.5.0.18",
    "10.6.0.26", "10.7.0.23", "10.8.0.40", "10.8.0.43", "10.9.0.34", "10.10.0.31", "10.11.0.33",
    "10.12.0.36", "10.13.0.35", "10.13.2.6", "10.13.3.9", "10.14.1.48", "10.15.1.29", "10.16.0.72",
    "10.16.1.11",
})  # fmt: skip
"""TensorRT's releases that could be addresses of private networks: https://pypi.org/project/tensorrt/#history."""

_VERSION_BEFORE = re.compile(
    r"(?i)(?:version|release|tensorrt|\btrt|rtx|cudnn|cuda|driver|cublas\w*|nvinfer\w*|onnx\w*|bindings"
    r"|library|lib\w*"
    r"|python|torch|numpy|wheel|\bv|[=<>~!]=|\.so\.?)[\"'`)]{0,2}[\s:=|(@_-]{0,8}[\"'`]?(?:is\s)?v?$"
)
_ADDRESS_BEFORE = re.compile(
    r"(?i)(?://|\binet6?|addr(?:ess)?|\bip(?:v4)?|\bhost(?:name)?|gateway|peer|remote|server|client"
    r"|listen\w*(?: on)?|connect\w*(?: to)?|dns|nameserver|route|proxy|ping|ssh)"
    r"[\"']?[\s:=(]{0,4}[\"']?(?:[\w.<>-]+@)?$"
)
_VERSION_AFTER = re.compile(r"(?i)-(?:py|cp|cu|none|\d+\+)|\.(?:whl|so|tar|deb|dev|post)|(?:rc|a|b)\d|\+")
_ADDRESS_AFTER = re.compile(r":\d{2,5}(?![\w.])|/\d{1,2}(?![\w./])")


def private_ipv4(versions: Collection[str]) -> Callable[[re.Match[str]], bool]:
    """Return what says whether a match of IPV4 is somebody's address, and no version.

    ``versions``: those that are known. Four numbers are a version where the text before says so, and where
    they are as small as TensorRT's; what stands after ``//`` or before a port is an address in any case.
    """

    def is_private(match: re.Match[str]) -> bool:
        quad = match.group()
        numbers = [int(number) for number in quad.split(".")]
        if max(numbers) > 255 or any(len(n) > 1 and n[0] == "0" for n in quad.split(".")):
            return False
        if numbers[0] in {0, 127} or quad == "255.255.255.255":
            return False
        before = match.string[max(0, match.start() - 48) : match.start()]
        after = match.string[match.end() : match.end() + 8]
        if _ADDRESS_BEFORE.search(before) or _ADDRESS_AFTER.match(after):
            return True
        if quad in versions or quad in RELEASES:
            return False
        if _VERSION_BEFORE.search(before) or _VERSION_AFTER.match(after):
            return False
        return not _is_small(numbers, before, after)

    return is_private


def _is_small(numbers: list[int], before: str, after: str) -> bool:
    """Whether four numbers are as small as a version's; those from 10 on only in a cell's id or a path."""
    first, second, third, _ = numbers
    if not (1 <= first <= 15 and second <= 20 and third <= 9):
        return False
    in_path = before.endswith("/") and after.startswith("/")
    return first != 10 or in_path or (before.endswith("@") and after.startswith("#"))


def is_private_ipv6(match: re.Match[str]) -> bool:
    """Whether a match of IPV6 is an address of somebody: no time, no name of C++, not the host itself."""
    text = match.group()
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return False
    if address.is_loopback or address.is_unspecified:
        return False
    if address.ipv4_mapped is not None:
        return not address.ipv4_mapped.is_loopback
    groups = [group for group in text.split(":") if group]
    if "::" not in text:
        return any(len(group) >= 3 for group in groups)
    return len(groups) >= 3 or bool(re.match(r"(?i)(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3}):", text))
