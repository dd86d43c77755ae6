"""Finds trtexec's options, pins of packages, images and names of C++ in texts that are read line by line."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from trtmatrix.api.scan_names import Findings, Names, Place
from trtmatrix.api.types import ApiChange, ChangeKind, numbers_of

Places = Callable[[int], Place]
IMAGES = {
    "23.05": "8.6.1", "24.01": "8.6.1", "24.02": "8.6.3", "24.04": "8.6.3", "24.05": "10.0.1",
    "24.06": "10.1", "24.07": "10.2", "24.08": "10.3", "24.09": "10.4", "24.10": "10.5", "24.11": "10.6",
    "24.12": "10.7",
    "25.01": "10.8", "25.02": "10.8", "25.03": "10.9", "25.05": "10.10", "25.06": "10.11", "25.10": "10.13",
    "25.12": "10.14", "26.03": "10.16", "26.06": "11.0", "26.07": "11.1", "26.08": "11.2",
}  # fmt: skip
"""Months of NGC's images and the TensorRT in them; between two months it is between the two."""
_IMAGE = re.compile(r"nvcr\.io/nvidia/(?:tensorrt|pytorch|tritonserver|tensorflow):(\d\d\.\d\d)[\w.-]*")
_WHEEL = r"(?<![\w./-])(?:nvidia[-_])?tensorrt(?:[-_](?:cu1\d|libs|bindings|lean|dispatch))*(?:\[[^]]*\])?"
_PIN = re.compile(
    rf"({_WHEEL})(?:[\"']?\s*[=:]\s*[\"'])?[\"']?\s*\(?((?:[=<>!~]{{1,3}}\s*\d[\w.*]*\s*,?\s*)+)"
)
_LOCKED = re.compile(rf"^name = \"({_WHEEL})\"\nversion = \"([\d.]+)", re.MULTILINE)
_LIBRARY = r"(?:python3-)?\w*nv(?:infer|onnxparsers?|parsers)(?:-plugin)?"
_APT = re.compile(rf"({_LIBRARY}[\w-]*|tensorrt-(?:dev|libs))=(\d+\.[\d.]+)")
_NUMBERED = re.compile(rf"\b({_LIBRARY})(\d+)(?![\w=.-])")
_FORMER = re.compile(r"\bpip3? install\b.*(?<![\w./-])(nvidia-tensorrt)(?![\w=<>~!.-])")
"""The name that NVIDIA's wheels had up to 8.4: nothing later has it."""
_TRTEXEC = r"(?:[\w./~${}()-]*/)?(?:trtexec(?:\.exe)?|\$[({]?\w*TRT_?EXEC\w*[)}]?)(?=[\s\"',]|$)"
_CALLED = re.compile(rf"(?:^|[\s;&|(`\"'=@!\[:]){_TRTEXEC}", re.IGNORECASE)
_COMMAND = re.compile(rf"(?:^|[;&|]|\bsudo|\btime|=\S+)\s*{_TRTEXEC}", re.IGNORECASE)
_SAID = re.compile(r"^\s*[@!-]*\s*(?:RUN\s+)?(?:echo|printf|which|COPY)\b|\bcat\s*>")
_TELLS = re.compile(
    r"print|log\w*|debug|info|warn\w*|error|critical|exception|add_argument|\w*Error|Field|option"
)
_SET = re.compile(r"^\s*(?:export\s+|ARG\s+|ENV\s+|local\s+)?(\w+)\s*\+?[:?]?=")
_OPTION = re.compile(r"(?<![\w=-])--\w+")
_CPP_NAMES = {
    "getNumBindings": "getNbBindings", "executeAsyncV2": "enqueueV2", "getBindingDtype": "getBindingDataType",
    "buildEngine": "buildEngineWithConfig", "getBindingShape": "getBindingDimensions",
    "setBindingShape": "setBindingDimensions", "getProfileShape": "getProfileDimensions",
    "executeAsync": "enqueue",
}  # fmt: skip
"""Names of C++ that are not the Python ones in another spelling."""
_ALSO = {"max_batch_size", "max_workspace_size", "fp16_mode", "int8_mode", "build_engine", "execute_async"}


def scan_script(text: str, place: Places, names: Names, findings: Findings, why: str = "") -> None:
    """Find trtexec's options on lines that call it, and in variables that those lines name."""
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
                    findings.add(place(number), change, why)


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


def scan_commands(tree: ast.Module, place: Places, names: Names, findings: Findings) -> None:
    """Find trtexec's options in Python statements that run it, put a command together, or tell of it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Raise) or hasattr(node, "body"):
            continue
        telling = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
        telling = [each for each in telling if _TELLS.fullmatch(ast.unparse(each.func).rpartition(".")[2])]
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        told = {id(inner) for each in [*telling, *[node] * docstring] for inner in ast.walk(each)}
        texts = sorted(
            (each.lineno, each.col_offset, each.end_lineno or each.lineno, each.value, id(each) not in told)
            for each in ast.walk(node)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        )
        said = [text for *_, text, is_said in texts if is_said]
        runs = any(map(_COMMAND.search, said)) and not _SAID.match(said[0])
        given = runs or bool(said and said[0].lstrip().startswith("--"))
        for first, _, last, text, is_said in texts:
            for line in range(first, last + 1):
                shown = place(line).text
                example = re.search(r"--(fp16|int8|best|saveEngine|verbose)\b", shown)
                for option in _OPTION.findall(text) if example or (given and is_said) else ():
                    if option in shown and option in names.flags:
                        why = "" if runs else "an option in a file that speaks of trtexec"
                        findings.add(place(line), names.flags[option], why)


def scan_pins(text: str, place: Places, names: Names, findings: Findings) -> None:
    """Find packages and images that hold another TensorRT than the version moved to, where that is known."""
    target = ".".join(map(str, numbers_of(names.after)[:3]))

    def note(number: int, name: str, says: str, why: str = "") -> None:
        change = ApiChange(
            name=name, kind=ChangeKind.CHANGED, note=f"{says} {names.after}", source="this line itself",
            replacement=f"one of TensorRT {names.after}",
        )  # fmt: skip
        findings.add(place(number), change, why)

    for number, line in enumerate(text.split("\n") if target else [], 1):
        if "tensorrt" not in line and "nv" not in line:
            continue
        code = re.sub(r"(^|\s)(#|//).*", "", line)
        for found in [*_PIN.finditer(code), *_APT.finditer(code)]:
            pin = re.sub(r"[\s,]+$", "", found[2])
            if not _allows(pin, target):
                note(number, f"pin {found[1]}{'' if pin[0] in '=<>!~' else '='}{pin}", "does not allow")
        for found in _NUMBERED.finditer(code):
            if int(found[2]) != numbers_of(target)[0]:
                note(number, f"pin {found[0]}", "is not of")
        if (former := _FORMER.search(code)) is not None:
            note(number, f"pin {former[1]}", "is a name that no wheel has of")
        for found in _IMAGE.finditer(code):
            says, why = _judge_image(found[1], target)
            if says:
                note(number, f"image {found[0]}", f"{says}, not", why)
    for found in _LOCKED.finditer(text if target else ""):
        if not _allows(found[2], target):
            note(text.count("\n", 0, found.start()) + 2, f"pin {found[1]}=={found[2]}", "does not allow")


def _allows(pin: str, target: str) -> bool:
    """Say whether a pin allows the version moved to; an exact one in the numbers that it has, of three."""
    exact = re.fullmatch(r"={0,3}\s*(\d[\d.]*).*", pin)
    try:
        if exact and "," not in pin:
            return f"{target}.".startswith(".".join(exact[1].rstrip(".").split(".")[:3]) + ".")
        return SpecifierSet(pin).contains(target, prereleases=True)
    except InvalidSpecifier:
        return True


def _judge_image(month: str, target: str) -> tuple[str, str]:
    """Say what an image of a month holds, where it is or may be another release, and why only maybe."""
    low = max((numbers_of(version)[:2] for known, version in IMAGES.items() if known <= month), default=(0,))
    high = min(
        (numbers_of(version)[:2] for known, version in IMAGES.items() if known >= month), default=(99,)
    )
    wanted = numbers_of(target)[:2]
    if low == high == wanted:
        return "", ""
    says = f"holds TensorRT {'.'.join(map(str, low))}" if low != (0,) else "holds an older TensorRT"
    says += " or later" if low not in (high, (0,)) else ""
    return says, "" if high < wanted or low > wanted else f"it {says}, which is not known exactly"


def scan_cpp(text: str, place: Places, names: Names, findings: Findings) -> bool:
    """Find C++ names that are gone, by name alone; say whether the file is about TensorRT at all."""
    if not re.search(r"\b(NvInfer|nvinfer1|nvonnxparser)", text):
        return False
    wanted = _cpp_names(names)
    for number, line in enumerate(text.split("\n"), 1):
        for word in {*re.findall(r"\w{6,}|(?:->|\.)destroy\(", line.partition("//")[0])} & {*wanted}:
            findings.add(place(number), wanted[word], "C++ is searched by name only")
    return True


def _cpp_names(names: Names) -> dict[str, ApiChange]:
    """Return what the names that go are called in C++, with what happens to them."""
    known: dict[str, ApiChange] = {}
    for dotted, change in names.changes.items():
        owner, _, name = dotted.rpartition(".")
        alone = names.is_own(name) or name in _ALSO or not owner
        if change.kind is ChangeKind.CHANGED or " " in dotted or not alone:
            continue
        camel = re.sub(r"_(\w)", lambda found: found[1].upper(), name)
        upper = camel[:1].upper() + camel[1:]
        words = [f"set{upper}", f"get{upper}"]
        if re.match("[A-Z]", name):
            words = [f"k{name}"] if owner else [name] if re.match("I[A-Z]", name) else []
        elif re.match("get|set|is_|add|build|binding|execute|platform|create", name):
            words = [camel]
        for word in (_CPP_NAMES.get(word, word) for word in words):
            known[word] = ApiChange(
                name=f"C++ {word.strip('->.(')}", kind=change.kind, replacement=change.replacement,
                note=f"{dotted} in Python", source=change.source, url=change.url,
            )  # fmt: skip
        if name == "num_bindings":  # it went with the bindings, and has no name in Python
            gone = replace(known["getNbBindings"], name="C++ destroy", replacement="delete", note="")
            known |= {"->destroy(": gone, ".destroy(": gone}
    return known
