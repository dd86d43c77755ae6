"""The command lines of Polygraphy and trtexec that do what the repro asks of the build. Pure.

Polygraphy's options are those of :data:`POLYGRAPHY_VERSION`. trtexec's, by release: ``--stronglyTyped`` from
9, ``--builderOptimizationLevel`` from 8.6, no precision flags from 11 on (``api_changes.yaml`` has what goes;
https://github.com/NVIDIA/TensorRT/blob/main/samples/common/sampleOptions.cpp).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trtmatrix.core.bundle.facts import LOADER, MODEL, Failure, Recipe, Shape
from trtmatrix.core.bundle.loader_script import bin_name
from trtmatrix.core.factors import PASS_FACTOR
from trtmatrix.core.model import Product, release_of

POLYGRAPHY_VERSION = "0.53.6"
WORKSPACE_GIB = 4
"""What our own builds allow (``trtprobe.backends.tensorrt_gpu.WORKSPACE``)."""

WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Commands:
    """Shell lines, each a command; ``notes``: what they do not show, and why there are none."""

    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def polygraphy_command(failure: Failure) -> Commands:
    """Return ``polygraphy run`` lines: against the reference first, then beside ONNX Runtime."""
    recipe = failure.recipe
    if recipe is None:
        return Commands(notes=(NOT_BY_OTHERS,))
    runner = _runner(failure, recipe)
    load = ["--data-loader-script", LOADER]
    notes, lines = [], []
    if recipe.has_reference and recipe.outputs:
        compare, note = _comparison(failure, recipe)
        notes += note
        lines.append(_join("python3", LOADER, "reference", "reference.json"))
        lines.append(
            _join("polygraphy", "run", MODEL, *runner, *load, "--load-outputs", "reference.json", *compare)
        )
    if failure.product is not Product.ONNXRUNTIME:
        if recipe.plugins:
            notes.append("not beside ONNX Runtime: the graph has one of TensorRT's plugins")
        else:
            compare, _ = _comparison(failure, recipe)
            marked = ["--onnx-outputs", *_all_outputs(recipe)] if recipe.marked else []
            words = [*runner, "--onnxrt", *marked, *load, *compare]
            lines.append(_join("polygraphy", "run", MODEL, *words))
    if failure.product is Product.TENSORRT_RTX:
        lines = [
            line.replace("polygraphy run", "POLYGRAPHY_USE_TENSORRT_RTX=1 polygraphy run") for line in lines
        ]
    return Commands(lines=tuple(lines), notes=tuple(notes))


NOT_BY_OTHERS = (
    "neither polygraphy nor trtexec can show it: what fails is not one engine's output for given inputs, "
    "or the graph is made inside the container. The script is the only way"
)


def trtexec_command(failure: Failure) -> Commands:
    """Return ``trtexec`` lines, with the first sample's inputs; none where it cannot show the failure."""
    recipe = failure.recipe
    if recipe is None:
        return Commands(notes=(NOT_BY_OTHERS,))
    if failure.product is not Product.TENSORRT:
        return Commands(notes=(f"trtexec builds with TensorRT, and this is {failure.product_name}",))
    if odd := [name for name in recipe.inputs.values() if set(name) & set(",'\"")]:
        return Commands(
            notes=(f"trtexec cannot be given the input {odd[0]}: its name has a comma or a quote",)
        )
    release = _Release(failure)
    lines = [_join("python3", LOADER, "bins", ".", *(["--int32"] if release.before("10") else []))]
    inputs = ",".join(f"{name}:{bin_name(recipe, name)}" for name in recipe.inputs.values())
    words = [f"--onnx={MODEL}", *_trtexec_precision(recipe, release)]
    if recipe.level is not None and not release.before("8.6"):
        words.append(f"--builderOptimizationLevel={recipe.level}")
    words += [f"--memPoolSize=workspace:{WORKSPACE_GIB * 1024}", *_trtexec_shapes(recipe)]
    words += [f"--loadInputs={inputs}"] if inputs else []
    words += ["--iterations=1", "--warmUp=0", "--duration=0", "--exportOutput=trtexec.json"]
    words += ["--profilingVerbosity=detailed", "--exportLayerInfo=trtexec-layers.json"]
    lines.append(_join("trtexec", *words))
    if recipe.has_reference and recipe.outputs:
        lines.append(_join("python3", LOADER, "compare", "trtexec.json"))
    return Commands(lines=tuple(lines), notes=tuple(_trtexec_notes(recipe)))


def command_file(failure: Failure, commands: Commands, needs: str) -> str:
    """Return commands as a file of POSIX sh; empty where there are none; it fails where one of them does."""
    if not commands.lines:
        return ""
    library = f"{failure.product_name} {failure.environment.library or failure.version}"
    lines = [
        "#!/bin/sh",
        f"# {failure.cell}: the same as reproduce.sh, where {library} and {needs} are installed.",
    ]
    lines += [f"# {note}" for note in commands.notes]
    lines += ['cd -- "$(dirname -- "$0")" || exit', "failed=0", "set -x"]
    lines += [*(f"{line} || failed=1" for line in commands.lines), 'exit "$failed"']
    return "\n".join(lines) + "\n"


POLYGRAPHY_NEEDS = f"polygraphy=={POLYGRAPHY_VERSION}, onnx and onnxruntime (pip)"
TRTEXEC_NEEDS = "its trtexec"


class _Release:
    """The library's release."""

    def __init__(self, failure: Failure) -> None:
        self.release = release_of(failure.environment.library or failure.version)

    def before(self, other: str) -> bool:
        """Whether it is older; a pre-release of another counts as that one."""
        return self.release.release < release_of(other).release


def _runner(failure: Failure, recipe: Recipe) -> list[str]:
    """Return Polygraphy's runner with what the build is asked for."""
    if failure.product is Product.ONNXRUNTIME:
        return ["--onnxrt", "--graph-optimization-level", "ORT_DISABLE_ALL"]
    release, words = _Release(failure), ["--trt"]
    is_rtx = failure.product is Product.TENSORRT_RTX
    typed = is_rtx or _is_typed(recipe, release)
    words += [] if recipe.precision == "fp32" else ["--tf32"]
    if typed and not is_rtx and release.before("11"):
        words.append("--strongly-typed")
    if not typed:
        words += ["--fp16"] if recipe.precision in {"fp16", "fp16-flag"} else []
        words += [f"--{word}" for word in recipe.quantized]
    if recipe.level is not None and (is_rtx or not release.before("8.6")):
        words += ["--builder-optimization-level", str(recipe.level)]
    words += ["--pool-limit", f"workspace:{WORKSPACE_GIB}G"]
    if recipe.keep_fp32:
        words += [
            "--precision-constraints",
            "obey",
            "--trt-network-postprocess-script",
            f"{LOADER}:keep_fp32",
        ]
    if recipe.marked:
        words += ["--trt-outputs", *_all_outputs(recipe)]
    for which, flag in enumerate(("--trt-min-shapes", "--trt-opt-shapes", "--trt-max-shapes")):
        shapes = [f"{name}:[{','.join(map(str, shape[which]))}]" for name, shape in recipe.profile.items()]
        words += [flag, *shapes] if shapes else []
    return words


def _all_outputs(recipe: Recipe) -> list[str]:
    """Return the graph's outputs and the tensors that are marked, each once."""
    return list(dict.fromkeys((*recipe.outputs.values(), *recipe.marked)))


def _is_typed(recipe: Recipe, release: _Release) -> bool:
    """Whether the network is strongly typed: a graph typed in float16, from 9 on; every graph from 11 on."""
    return not release.before("11") or (recipe.precision == "fp16" and not release.before("9"))


def _comparison(failure: Failure, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return Polygraphy's options that tell right from wrong as far as an error's size does, and notes.

    A signal-to-noise ratio in dB is −20·log10 of the relative L2 error: what a right engine may be off.
    """
    notes: list[str] = []
    if "atol" in failure.params:
        return ["--atol", f"{failure.params['atol']:g}", "--rtol", f"{failure.params['rtol']:g}"], notes
    limits = _limits(failure, recipe)
    words = ["--compare", "snr"]
    if limits:
        words += ["--snr-threshold", *(f"{name}:{ratio:.1f}" for name, ratio in limits.items())]
    small = [line.floors for line in failure.outputs if line.floors is not None]
    if failure.outputs and small and max(small) < PASS_FACTOR:
        notes.append(
            f"the error is only {max(small):.3g} noise floors: by its size alone it passes here; "
            "the script tells it by its shape"
        )
    if any(line.nan for line in failure.outputs):
        words.append("--validate")
    return words, notes


def _limits(failure: Failure, recipe: Recipe) -> Mapping[str, float]:
    """Return by the graph's outputs the least ratio in dB of what passes: the least of its samples."""
    found: dict[str, float] = {}
    for line in failure.outputs:
        key = line.name if line.name in recipe.outputs else line.name.rpartition(".s")[0]
        if key not in recipe.outputs or not line.rel_l2 or not line.floors:
            continue
        if not (math.isfinite(line.rel_l2) and math.isfinite(line.floors)):
            continue
        ratio = -20 * math.log10(PASS_FACTOR * line.rel_l2 / line.floors)
        name = recipe.outputs[key]
        found[name] = min(ratio, found.get(name, math.inf))
    return found


def _trtexec_precision(recipe: Recipe, release: _Release) -> list[str]:
    words = ["--noTF32"] if recipe.precision == "fp32" else []
    if _is_typed(recipe, release):
        return words + (["--stronglyTyped"] if release.before("11") else [])
    words += ["--fp16"] if recipe.precision in {"fp16", "fp16-flag"} else []
    return words + [f"--{word}" for word in recipe.quantized]


def _trtexec_shapes(recipe: Recipe) -> Iterable[str]:
    """Yield the profile, and the first sample's shapes of what is dynamic."""
    if not recipe.profile:
        return
    for which, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        yield f"{flag}={_shapes({name: shape[which] for name, shape in recipe.profile.items()})}"
    given = {name: recipe.shapes[name] for name in recipe.profile if name in recipe.shapes}
    if given:
        yield f"--shapes={_shapes(given)}"


def _shapes(shapes: Mapping[str, Shape]) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())


def _trtexec_notes(recipe: Recipe) -> Iterable[str]:
    if recipe.marked:
        yield f"trtexec cannot mark inner tensors as outputs, and this case does: {', '.join(recipe.marked)}"
    if recipe.keep_fp32:
        yield f"trtexec keeps layers in FP32 by name, and this case by type: {', '.join(recipe.keep_fp32)}"
    if recipe.samples > 1:
        yield f"of {recipe.samples} samples trtexec is given the first"


def _join(*words: str) -> str:
    """Return one command, folded at options where it is long."""
    lines, line = [], ""
    for group in _groups(words):
        if line and len(line) + 1 + len(group) > WIDTH:
            lines.append(line)
            line = "  " + group
        else:
            line = f"{line} {group}" if line else group
    return " \\\n".join([*lines, line])


def _groups(words: Sequence[str]) -> list[str]:
    """Return an option with its values as one, so that no line ends between them."""
    found: list[str] = []
    for word in words:
        if found and not word.startswith("-") and found[-1].startswith("--") and "=" not in found[-1]:
            found[-1] += " " + shlex.quote(word)
        else:
            found.append(shlex.quote(word))
    return found
