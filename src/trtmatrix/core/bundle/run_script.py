"""``reproduce.sh``: one ``docker run`` over an archive's files; the image is found, pulled or built. Pure."""

from __future__ import annotations

import shlex

from trtmatrix.core.bundle.facts import RAN, SCRIPT, SUMS, Failure, Image
from trtmatrix.core.bundle.filling import fill
from trtmatrix.core.container import SCRATCH, Limits, tmpfs_options
from trtmatrix.core.model import Product

CANNOT_SAY = 125
"""The exit code where nothing was shown, as git's bisect has it."""

PYTHON_NEEDS = {
    Product.TENSORRT: "tensorrt", Product.TENSORRT_RTX: "tensorrt-rtx", Product.ONNXRUNTIME: "onnxruntime",
}  # fmt: skip

_HEAD = """\
#!/bin/sh
# Shows the failure of this archive again: @WHAT@
#
#   sh reproduce.sh [options of @SCRIPT@, see --help]
#
# Exit code: 1 the failure comes back, 0 it does not, 125 cannot say (and why), 130 and 143 interrupted.
# @WHERE@
# What may be set in the environment:
#   REPRODUCE_OUT  the folder that is written to, result.json goes there (default: ./out)
@SETTINGS@
#   UNCHECKED=1    do not compare the files with @SUMS@, after a change of your own
set -u

say() { printf 'reproduce.sh: %s\\n' "$*" >&2; }
stop() { say "$@"; exit 125; }

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 125
: "${REPRODUCE_OUT:=./out}"
mkdir -p -- "$REPRODUCE_OUT" && out=$(CDPATH='' cd -- "$REPRODUCE_OUT" && pwd) && [ -w "$out" ] ||
  stop "cannot write to $REPRODUCE_OUT: set REPRODUCE_OUT to a folder of yours"
rm -f -- "$out/result.json" "$out/@RAN@"  # one of an earlier run says nothing of this one

if [ -z "${UNCHECKED:-}" ]; then
  if command -v sha256sum >/dev/null; then sums=sha256sum; else sums='shasum -a 256'; fi
  # shellcheck disable=SC2086 # a command and its options
  differing=$(cd "$here" && LC_ALL=C $sums -c @SUMS@ 2>&1) || {
    printf '%s\\n' "$differing" | grep -v ': OK$' >&2
    stop "files differ from @SUMS@ (above): unpack the archive again, or set UNCHECKED=1 if you changed them"
  }
fi

"""

_BARE = """\
: "${PYTHON:=python3}"
command -v "$PYTHON" >/dev/null || stop "there is no $PYTHON: set PYTHON to one with @NEEDS@ and numpy" \\
  "(pip install @NEEDS@==@VERSION@ numpy)"
"$PYTHON" -B "$here/@SCRIPT@" --files "$here" --out "$out" "$@"
code=$?
"""

_CONTAINER = """\
: "${DOCKER:=docker}" "${IMAGE:=}" "${GPU_OPTIONS=@GPU@}" "${RUN_AS:=$(id -u):$(id -g)}"
reference=@REFERENCE@
id=@ID@
made=@MADE@  # what an image that is built from image/ is called here, so that it is built once

command -v "$DOCKER" >/dev/null || stop "there is no $DOCKER here: install Docker, or set DOCKER=podman"
told=$("$DOCKER" version 2>&1) || stop "$DOCKER does not answer; is it started, and may you use it? $told"
case $told in
  *"Podman Engine"*)
    printf '%s\\n' "$told" | grep -q '^Client: *Podman' ||
      stop "the engine is Podman, and to Docker's client each of its containers ends with 0: set DOCKER=podman" ;;
esac

is_here() { [ -n "$1" ] && "$DOCKER" image inspect "$1" >/dev/null 2>&1; }

@BUILD@
if [ -n "$IMAGE" ]; then
  say "in $IMAGE, as IMAGE asks; the failure was seen in @NAME@"
elif is_here "$reference"; then
  IMAGE=$reference
elif is_here "$id"; then
  IMAGE=$id
elif is_here "$made"; then
  use_made
elif [ -n "$reference" ] && say "pulling $reference" && "$DOCKER" pull "$reference" >&2; then
  IMAGE=$reference
else
  [ -z "$reference" ] || say "it cannot be pulled (NGC: $DOCKER login nvcr.io, user \\$oauthtoken)"
  build_image
fi

name=reproduce-$$-$(date +%s)
client='' making=0
# shellcheck disable=SC2329 # the traps call it
is_there() { "$DOCKER" container inspect "$name" >/dev/null 2>&1; }
# shellcheck disable=SC2329 # the traps call it
cleanup() {
  trap '' HUP INT TERM
  say "interrupted: the container is removed"
  # One that is in the making appears a little later, also where its client is gone; one that is removed while
  # it is being started may come back.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    status=$("$DOCKER" container inspect --format '{{.State.Status}}' "$name" 2>/dev/null) || status=none
    case $status in
      none) if [ "$making" = 0 ]; then break; fi ;;
      created) if [ -z "$client" ]; then break; fi ;;
      *) break ;;
    esac
    sleep 1
  done
  for _ in 1 2 3 4 5; do  # its own end may be removing it just now
    "$DOCKER" rm -f "$name" >/dev/null 2>&1
    is_there || break
    sleep 1
  done
  # It hands signals on and may wait for a container that is no more.
  if [ -n "$client" ]; then kill -9 "$client" 2>/dev/null; fi
  exit "$1"
}
trap 'cleanup 129' HUP
trap 'cleanup 130' INT
trap 'cleanup 143' TERM

bind() { printf 'type=bind,"src=%s",dst=%s' "$(printf %s "$1" | sed 's/"/""/g')" "$2"; }
set -- -B /archive/@SCRIPT@ --files /archive --out /out "$@"
set -- --mount "$(bind "$here" /archive),readonly" --mount "$(bind "$out" /out)" \\
  --entrypoint python3 "$IMAGE" "$@"
case $GPU_OPTIONS in *--gpus*) ;; *) set -- --env NVIDIA_VISIBLE_DEVICES=void "$@" ;; esac
making=1
# shellcheck disable=SC2086 # several options
"$DOCKER" create --rm --init --name "$name" --network none --read-only --cap-drop ALL \\
  --security-opt no-new-privileges --security-opt label=disable --pids-limit @PROCESSES@ \\
  --user "$RUN_AS" --workdir @SCRATCH@ --tmpfs @TMPFS@ \\
@ENVIRONMENT@
  $GPU_OPTIONS "$@" >/dev/null || stop "the container cannot be made: see above"
making=0
ran=$("$DOCKER" container inspect --format '{{.Image}}' "$name" 2>/dev/null) || ran=''
"$DOCKER" start --attach "$name" &
client=$!
wait "$client"
code=$?
rm -f -- "$out/@RAN@"  # whatever was put there from inside
printf '%s\\n' "$ran" >"$out/@RAN@"
"""

_TAIL = """\
# Python ends in 1 too where it cannot even read the script: without a result nothing was run.
case $code in
  0 | 1)
    if [ -f "$out/result.json" ]; then
      say "details: $out/result.json"
    else
      say "@SCRIPT@ ended with exit code $code and left no result in $out, which says nothing of the failure"
      code=125
    fi
    ;;
  125) say "nothing can be said: see above" ;;
  *) say "@SCRIPT@ ended with exit code $code, which says nothing of the failure"; code=125 ;;
esac
exit "$code"
"""

_NO_BUILD = """\
build_image() {
  stop "the image @NAME@ (id @SHORT@) is not here, is in no registry, and this archive does not say how it" \\
    "was built: load it, or set IMAGE to one with @NEEDS@ @VERSION@"
}
use_made() { IMAGE=$made; }
"""

_BUILD = """\
build_image() {
  say "building @NAME@ from image/, once"
  if ! (cd "$here" && @LINE@) >&2; then
    stop "it cannot be built: see above, or set IMAGE to one with @NEEDS@ @VERSION@"
  fi
  is_here @TAG@ || stop "the build left no image @TAG@"
  "$DOCKER" tag @TAG@ "$made" || stop "it cannot be called $made"
  use_made
}
use_made() {
  IMAGE=$made
  built=$("$DOCKER" image inspect --format '{{.Id}}' "$IMAGE")
  [ "${built#sha256:}" = "${id#sha256:}" ] || \\
    say "$made is built from image/; its id is $built, not $id as where the failure was seen"
}
"""

_SETTINGS = """\
#   IMAGE          another image, of another release say: the same files are run in it
#   GPU_OPTIONS    how the container gets its GPU (default: @GPU@)
#   DOCKER         the engine's command (default: docker; podman where that is the engine)
#   RUN_AS         user and group inside (default: yours; with a rootless engine 0:0)"""

_PYTHON_SETTING = """\
#   PYTHON         an interpreter that has @NEEDS@ and numpy (default: python3); one is made by
#                  python3 -m venv env && env/bin/pip install @NEEDS@==@VERSION@ numpy"""


def render_reproduce(failure: Failure) -> str:
    """Return ``reproduce.sh``, in POSIX sh; without an image it asks for an interpreter with the product."""
    image = failure.image
    where = (
        "It runs in a container without network that sees this folder (read-only) and REPRODUCE_OUT alone."
    )
    if image is None:
        where = "The failure was seen outside of any container, so that is where this runs."
    text = _HEAD + (_BARE if image is None else _CONTAINER) + _TAIL
    text = text.replace("@SETTINGS@", _SETTINGS if image else _PYTHON_SETTING)
    text = text.replace("@BUILD@", _BUILD if image and image.build else _NO_BUILD)
    values = {
        "WHERE": where, "WHAT": _comment(f"{failure.cell}: {failure.title}"), "SCRIPT": SCRIPT, "SUMS": SUMS,
        "RAN": RAN,
        "NEEDS": PYTHON_NEEDS[failure.product], "VERSION": _comment(failure.environment.library),
        "GPU": "--gpus device=0" if failure.environment.gpu else "", "SCRATCH": SCRATCH,
        "PROCESSES": str(Limits().processes), "TMPFS": f"{SCRATCH}:{tmpfs_options(Limits())}",
        "ENVIRONMENT": _environment(), **_image_values(image),
    }  # fmt: skip
    return fill(text, values)


def _image_values(image: Image | None) -> dict[str, str]:
    if image is None:
        return {}
    return {
        "REFERENCE": shlex.quote(image.reference), "ID": shlex.quote(image.id), "LINE": image.build,
        "TAG": shlex.quote(image.tag), "NAME": _comment(image.name), "SHORT": image.id[:19],
        "MADE": shlex.quote(f"reproduce:{image.id.removeprefix('sha256:')[:12] or 'image'}"),
    }  # fmt: skip


def _environment() -> str:
    """Return what our own containers are given: HOME, USER and caches in scratch."""
    home = f"{SCRATCH}/home"
    given = {
        "HOME": home, "USER": "user", "LOGNAME": "user", "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": f"{home}/.cache", "CUDA_CACHE_PATH": f"{home}/cuda",
        "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor", "TRITON_CACHE_DIR": f"{home}/triton",
        "ORT_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    return "\n".join(f"  --env {name}={value} \\" for name, value in given.items())


def _comment(text: str) -> str:
    """Return a text that can stand in a comment, and between double quotes."""
    return "".join(c for c in " ".join(text.split()) if c not in '"$`\\')
