"""Writes a repro that runs one case of another with one thing changed at a time; the probe stays as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trtmatrix.core.bundle.changes import Change, changed_id
from trtmatrix.core.model import Case
from trtmatrix.core.tensors import Range

TEMPLATE = '''

# What follows was added to the repro: one of its cases again, with one thing changed in each.

from pathlib import Path as _Path

_CASE = {case}
_CHANGES = {changes}
_BUILDS = {builds}
_HERE = __file__
_KEPT = {{name: globals()[name] for name in ("__file__", "PROFILE") if name in globals()}}
_original = {{name: globals().get(name) for name in ("cases", "prepare", "run", "noise", "emulate")}}


def cases():
    every = list(_original["cases"]())
    yield from every
    base = next(case for case in every if case["id"] == _CASE)
    for name, change in _CHANGES.items():
        params = {{**base["params"], **change.get("params", {{}}), "change": change["is"]}}
        own = {{"id": name, "params": params, "control": None, "defect": ""}}
        builds = {{}} if base.get("processes", 1) > 1 else {{"builds": _BUILDS}}
        yield {{**base, **own, **builds}}


def _of(params):
    """Return the case's own params and what is changed; put in place what the repro looks up."""
    change = next((c for c in _CHANGES.values() if c["is"] == params.get("change")), {{}})
    globals().update(_KEPT)
    if "profile" in change:
        folder = _Path(_HERE).resolve().parent.parent / "batch" / "repros"
        globals().update(PROFILE=change["profile"], __file__=str(folder / _Path(_HERE).name))
    return {{name: value for name, value in params.items() if name != "change"}}, change


def prepare(params):
    plain, change = _of(params)
    made = dict(_original["prepare"](plain))
    if "tensor" in change:
        from trtmatrix.onnxmodel.marking import mark_made

        folder = _Path(_HERE).resolve().parent.parent / "marked"
        made["model"] = mark_made(made["model"], change["tensor"], folder)
    return made


if _original["noise"]:

    def noise(params):
        return _original["noise"](_of(params)[0])


if _original["emulate"]:

    def emulate(params, *args, **options):
        return _original["emulate"](_of(params)[0], *args, **options)


def run(params, files, trt):
    from trtprobe import ends

    plain, change = _of(params)
    built = _Built(trt, change)
    try:
        outputs = _original["run"](plain, files, trt)
    finally:
        built.put_back()
    if change and str(files.model) not in built.models:
        raise ends.Unsupported("the case does not build its graph where it could be changed")
    return {{name: y for name, y in outputs.items() if name != change.get("tensor")}}


class _Built:
    """Changes how a product builds, until it is put back."""

    def __init__(self, trt, change):
        self.trt, self.change, self.models, self.own = trt, change, set(), {{}}
        self.put("build", self.build)
        if "tf32_off" in change:
            self.put("_configure", self.configure)
        if "optimisation" in change:
            self.put("ort", _Optimised(trt.ort, change["optimisation"]))
        if change and hasattr(trt, "ort"):  # an output that is remembered was computed without the change
            self.put("memo", None)

    def put(self, name, value):
        self.own[name] = (name in vars(self.trt), getattr(self.trt, name))
        setattr(self.trt, name, value)

    def put_back(self):
        for name, (was_its_own, value) in self.own.items():
            if was_its_own:
                setattr(self.trt, name, value)
            else:
                delattr(self.trt, name)

    def build(self, model, *args, **options):
        self.models.add(str(model))
        names = ("precision", "level", "plugins", "keep_fp32", "outputs", "profile", "quantized")
        asked = {{**dict(zip(names, args)), **options}}
        if "level" in self.change:
            asked["level"] = self.change["level"]
        return self.own["build"][1](model, **asked)

    def configure(self, config, options):
        self.own["_configure"][1](config, options)
        config.clear_flag(self.trt.trt.BuilderFlag.TF32)


class _Optimised:
    """ONNX Runtime, whose graph optimisation is another where none is asked for."""

    def __init__(self, module, level):
        self._module = module
        self.GraphOptimizationLevel = type("", (), {{
            "ORT_DISABLE_ALL": getattr(module.GraphOptimizationLevel, level)
        }})

    def __getattr__(self, name):
        return getattr(self._module, name)
'''


def write_changed(
    source: str, case: Case, changes: Sequence[Change], builds: int, profile: Mapping[str, Range]
) -> str:
    """Return a repro's source with changed cases added, of so many builds each.

    ``profile``: that of samples with one row more, for a change that has them.
    """
    from trtmatrix.onnxmodel.writing import literal

    specs = {changed_id(case, change): _spec(change, profile) for change in changes}
    added = TEMPLATE.format(case=literal(case.id), changes=literal(specs), builds=builds)
    return source.rstrip("\n") + "\n" + added


def _spec(change: Change, profile: Mapping[str, Range]) -> dict[str, Any]:
    """Return what the added code reads of a change."""
    spec: dict[str, Any] = {"is": change.id}
    if change.params:
        spec["params"] = dict(change.params)
    if change.level is not None:
        spec["level"] = change.level
    if change.tf32_off:
        spec["tf32_off"] = True
    for name in ("optimisation", "tensor"):
        if value := getattr(change, name):
            spec[name] = value
    if change.own_batch:
        spec["profile"] = {name: tuple(map(tuple, shapes)) for name, shapes in profile.items()}
    return spec
