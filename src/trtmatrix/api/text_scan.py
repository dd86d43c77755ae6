"""Finds trtexec's options, pins of packages, images and names of C++ in texts that are read line by line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trtmatrix.api.scan_names import Names, Page
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

_WHEEL = r"(?<![\w./-])(?:nvidia[-_])?tensorrt(?:[-_](?:cu1\d|libs|bindings|lean|dispatch))*(?:\[[^]]*\])?"
_LIBRARY = r"(?:python3-)?\w*nv(?:infer|onnxparsers?|parsers)(?:-plugin)?"
_PINS = [
    rf"({_WHEEL})(?:[\"']?[ \t]*[=:][ \t]*[\"'])?[\"']?[ \t]*\(?"
    r"((?:[=<>!~]{1,3}[ \t]*\d[\w.*]*[ \t]*,?[ \t]*)+)",
    rf"^\W*name\W+({_WHEEL})\"?\n\s*version\W+(\d[\d.]+)",  # lock files of poetry, uv, PDM, conda-lock
    rf"\"({_WHEEL})\": \{{[^}}]*\"version\": \"(==[\d.]+)",  # Pipfile.lock
    rf"({_LIBRARY}[\w-]*|tensorrt-(?:dev|libs))=(\d+\.[\d.]+)",  # apt
    rf"\b(({_LIBRARY}\d+))(?![\w=.-])",
    r"\bpip3? install\b.*(?<![\w./-])(nvidia-tensorrt)()(?![\w=<>~!.-])",  # the wheels' name up to 8.4
]
_WORDS = ("tensorrt", "nvinfer", "nvonnxparser", "nvparsers", "nvcr.io", "version", "}")
"""Of lines that a pin, or the version of one, can stand in."""
_PIN = [re.compile(pattern, re.MULTILINE) for pattern in _PINS]
_IMAGE = re.compile(r"nvcr\.io/nvidia/(?:tensorrt|pytorch|tritonserver|tensorflow):(\d\d\.\d\d)[\w.-]*")
_TRTEXEC = r"(?:[\w./~${}()-]*/)?(?:trtexec(?:\.exe)?|\$[({]?\w*TRT_?EXEC\w*[)}]?)(?=[\s\"',]|$)"
_CALLED = re.compile(rf"(?:^|[\s;&|(`\"'=@!\[:]){_TRTEXEC}", re.IGNORECASE)
_COMMAND = re.compile(rf"(?:^|[;&|]|\bsudo|\btime|=\S+)\s*{_TRTEXEC}", re.IGNORECASE)
_SAID = re.compile(r"^\s*[@!-]*\s*(?:RUN\s+)?(?:echo|printf|which|COPY)\b|\bcat\s*>")
_TELLS = re.compile(
    r"print|log\w*|debug|info|warn\w*|error|critical|exception|add_argument|\w*Error|Field|option"
)
_SET = re.compile(r"^\s*(?:export\s+|ARG\s+|ENV\s+|local\s+)?(\w+)\s*\+?[:?]?=")
_OPTION = re.compile(r"(?<![\w=-])--\w+")


def scan_script(text: str, page: Page, names: Names, why: str = "") -> None:
    """Find trtexec's options on lines that call it, and in variables that those lines name."""
    if "trtexec" not in text:
        return
    held: dict[str, list[tuple[int, str]]] = {}
    programs = ["TRTEXEC"]
    for command in _commands(text):
        whole = " ".join(line for _, line in command)
        if (assigned := _SET.match(whole)) is not None:
            (number, first), *rest = command
            held.setdefault(assigned[1], []).extend([(number, first[assigned.end() :]), *rest])
            programs += [assigned[1]] * bool(re.search(r"trtexec(\.exe)?[\"']?\s*$", whole))
        called = _CALLED.search(whole) or re.search(rf"\$[{{(]?({'|'.join(programs)})\b", whole)
        if called is None or _SAID.search(whole) or (assigned and not re.search(r"trtexec\S*\s+-", whole)):
            continue
        named = set(re.findall(r"\$[{(]?(\w+)", whole))
        lines = [each for name in sorted(named) for each in held.get(name, ())]
        for number, line in [*command, *lines]:
            before = line[: max(0, called.start())] if number == command[0][0] else ""
            for option in _OPTION.findall(re.split(r"[;|]|&&", line.removeprefix(before).lstrip("; |&"))[0]):
                if (change := names.flags.get(option)) is not None:
                    page.note(number, change, why)


def _commands(text: str) -> Iterator[list[tuple[int, str]]]:
    """Return the lines of each command, numbered, without comments and texts that ``cat`` writes."""
    command: list[tuple[int, str]] = []
    end = ""
    for number, line in enumerate(text.split("\n"), 1):
        if end or (command and line.lstrip().startswith("#")):
            end = "" if line.strip() == end else end
            continue
        written = re.search(r"\bcat\b.*<<-?\s*['\"]?(\w+)", line)
        end = written[1] if written else ""
        command.append((number, re.sub(r"(^|\s)#.*", "", line)))
        opened = re.match(r"\s*\w+\+?=\(", command[0][1]) and ")" not in line
        if not opened and not re.search(r"(\\|\^|&&|:\s*[>|]-?)\s*$", line):
            yield command
            command = []
    yield command


def scan_commands(nodes: Iterable[ast.AST], page: Page, names: Names) -> None:
    """Find trtexec's options in Python statements that run it, put a command together, or tell of it."""
    for node in nodes:
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise) or hasattr(node, "body"):
            continue
        inside = list(ast.walk(node))
        telling = [each for each in inside if isinstance(each, ast.Call)]
        telling = [each for each in telling if _TELLS.fullmatch(ast.unparse(each.func).rpartition(".")[2])]
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        told = {inner for each in [*telling, *[node] * docstring] for inner in ast.walk(each)}
        texts = [each for each in inside if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        texts.sort(key=lambda each: (each.lineno, each.col_offset))
        said = [str(each.value) for each in texts if each not in told]
        runs = any(map(_COMMAND.search, said)) and not _SAID.match(said[0])
        given = runs or bool(said and said[0].lstrip().startswith("--"))
        for text in texts:
            for line in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                shown = page.lines[line - 1]
                example = re.search(r"--(fp16|int8|best|saveEngine|verbose)\b", shown)
                for option in (
                    _OPTION.findall(str(text.value)) if example or (given and text not in told) else ()
                ):
                    if option in shown and option in names.flags:
                        why = "" if runs else "an option in a file that speaks of trtexec"
                        page.note(line, names.flags[option], why)


def scan_pins(text: str, page: Page, names: Names) -> None:
    """Find packages and images that hold another TensorRT than the version moved to, where that is known."""
    target = ".".join(map(str, numbers_of(names.after)[:3]))
    kept = (line if any(word in line for word in _WORDS) else "" for line in text.split("\n"))
    code = re.sub(r"(^|\s)(#|//).*", lambda found: found[1], "\n".join(kept)) if target else ""

    def note(place: int, name: str, says: str, why: str = "") -> None:
        change = ApiChange(
            name=name, kind=ChangeKind.CHANGED, note=f"{says} {names.after}", source="this line itself",
            replacement=f"one of TensorRT {names.after}",
        )  # fmt: skip
        page.note(code.count("\n", 0, place) + 1, change, why)

    for pattern in _PIN:
        for found in pattern.finditer(code):
            pin = re.sub(r"[\s,]+$", "", found[2])
            numbered = re.search(r"\d+$", pin) if pin == found[1] else None
            if not pin:
                note(found.end(), f"pin {found[1]}", "is a name that no wheel has of")
            elif numbered and int(numbered[0]) != numbers_of(target)[0]:
                note(found.end(), f"pin {pin}", "is not of")
            elif not numbered and not _allows(pin, target):
                equals = "" if pin[0] in "=<>!~" else "=" * (1 + ("\n" in found[0]))
                note(found.end(2), f"pin {found[1]}{equals}{pin}", "does not allow")
    for found in _IMAGE.finditer(code):
        says, why = _judge_image(found[1], target, names.hints["images"])
        if says:
            note(found.end(), f"image {found[0]}", f"{says}, not", why)


def _allows(pin: str, target: str) -> bool:
    """Say whether a pin allows the version moved to; an exact one in the numbers that it has, of three."""
    exact = re.fullmatch(r"={0,3}\s*(\d[\d.]*).*", pin)
    try:
        if exact and "," not in pin:
            return f"{target}.".startswith(".".join(exact[1].rstrip(".").split(".")[:3]) + ".")
        return SpecifierSet(pin).contains(target, prereleases=True)
    except InvalidSpecifier:
        return True


def _judge_image(month: str, target: str, images: dict[str, str]) -> tuple[str, str]:
    """Say what an image of a month holds, where it is or may be another release, and why only maybe."""
    known = {each: numbers_of(version)[:2] for each, version in images.items()}
    low = max((version for each, version in known.items() if each <= month), default=(0,))
    high = min((version for each, version in known.items() if each >= month), default=(99,))
    wanted = numbers_of(target)[:2]
    if low == high == wanted:
        return "", ""
    says = f"holds TensorRT {'.'.join(map(str, low))}" if low != (0,) else "holds an older TensorRT"
    says += " or later" if low not in (high, (0,)) else ""
    return says, "" if high < wanted or low > wanted else f"it {says}, which is not known exactly"


def scan_cpp(text: str, page: Page, names: Names) -> bool:
    """Find C++ names that are gone, by name alone; say whether the file is about TensorRT at all."""
    if not re.search(r"\b(NvInfer|nvinfer1|nvonnxparser)", text):
        return False
    wanted = _cpp_names(names)
    for number, line in enumerate(text.split("\n"), 1):
        for word in {*re.findall(r"\w{6,}|(?:->|\.)destroy\(", line.partition("//")[0])} & {*wanted}:
            page.note(number, wanted[word], "C++ is searched by name only")
    return True


def _cpp_names(names: Names) -> dict[str, ApiChange]:
    """Return what the names that go are called in C++, with what happens to them."""
    known: dict[str, ApiChange] = {}
    for dotted, change in names.changes.items():
        owner, _, name = dotted.rpartition(".")
        alone = names.is_own(name) or name in names.hints["cpp_too"] or not owner
        if change.kind is ChangeKind.CHANGED or " " in dotted or not alone:
            continue
        camel = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
        upper = camel[:1].upper() + camel[1:]
        words = [f"set{upper}", f"get{upper}"]
        if re.match("[A-Z]", name):
            words = [name] if re.match("I[A-Z]", name) else [f"I{name}", f"create{name}"]
            words = [f"k{name}"] if owner else words
        elif re.match("get|set|is_|add|build|binding|execute|platform|create", name):
            words = [camel]
        for word in (names.hints["cpp"].get(word, word) for word in words):
            if word not in known or known[word].kind is not change.kind:  # the worst, and the first of these
                known[word] = replace(change, name=f"C++ {word}", note=f"{dotted} in Python")
        if name == "num_bindings":  # it went with the bindings, and has no name in Python
            gone = replace(change, name="C++ destroy", replacement="delete", note="")
            known |= {"->destroy(": gone, ".destroy(": gone}
    return known
