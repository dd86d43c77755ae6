#!/bin/sh
# Shows the failure of this archive again: sdpa-scale/control-lost-scale-tf32@8.6.0#nvidia-h200: lost √scale in fused attention
#
#   sh reproduce.sh [options of repro.py, see --help]
#
# Exit code: 1 the failure comes back, 0 it does not, 125 cannot say (and why), 130 and 143 interrupted.
# It runs in a container without network that sees this folder (read-only) and REPRODUCE_OUT alone.
# What may be set in the environment:
#   REPRODUCE_OUT  the folder that is written to, result.json goes there (default: ./out)
#   IMAGE          another image, of another release say: the same files are run in it
#   GPU_OPTIONS    how the container gets its GPU (default: --gpus device=0)
#   DOCKER         the engine's command (default: docker; podman where that is the engine)
#   RUN_AS         user and group inside (default: yours; with a rootless engine 0:0)
#   UNCHECKED=1    do not compare the files with SHA256SUMS, after a change of your own
set -u

say() { printf 'reproduce.sh: %s\n' "$*" >&2; }
stop() { say "$@"; exit 125; }

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 125
: "${REPRODUCE_OUT:=./out}"
mkdir -p -- "$REPRODUCE_OUT" && out=$(CDPATH='' cd -- "$REPRODUCE_OUT" && pwd) && [ -w "$out" ] ||
  stop "cannot write to $REPRODUCE_OUT: set REPRODUCE_OUT to a folder of yours"
rm -f -- "$out/result.json" "$out/image-id.txt"  # one of an earlier run says nothing of this one

if [ -z "${UNCHECKED:-}" ]; then
  if command -v sha256sum >/dev/null; then sums=sha256sum; else sums='shasum -a 256'; fi
  # shellcheck disable=SC2086 # a command and its options
  differing=$(cd "$here" && LC_ALL=C $sums -c SHA256SUMS 2>&1) || {
    printf '%s\n' "$differing" | grep -v ': OK$' >&2
    stop "files differ from SHA256SUMS (above): unpack the archive again, or set UNCHECKED=1 if you changed them"
  }
fi

: "${DOCKER:=docker}" "${IMAGE:=}" "${GPU_OPTIONS=--gpus device=0}" "${RUN_AS:=$(id -u):$(id -g)}"
reference=''
id=sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc
made=reproduce:cccccccccccc  # what an image that is built from image/ is called here, so that it is built once

command -v "$DOCKER" >/dev/null || stop "there is no $DOCKER here: install Docker, or set DOCKER=podman"
told=$("$DOCKER" version 2>&1) || stop "$DOCKER does not answer; is it started, and may you use it? $told"
case $told in
  *"Podman Engine"*)
    printf '%s\n' "$told" | grep -q '^Client: *Podman' ||
      stop "the engine is Podman, and to Docker's client each of its containers ends with 0: set DOCKER=podman" ;;
esac

is_here() { [ -n "$1" ] && "$DOCKER" image inspect "$1" >/dev/null 2>&1; }

build_image() {
  say "building trtmatrix/tensorrt:8.6.0 from image/, once"
  if ! (cd "$here" && sh image/build.sh) >&2; then
    stop "it cannot be built: see above, or set IMAGE to one with tensorrt 8.6.0"
  fi
  is_here trtmatrix/tensorrt:8.6.0 || stop "the build left no image trtmatrix/tensorrt:8.6.0"
  "$DOCKER" tag trtmatrix/tensorrt:8.6.0 "$made" || stop "it cannot be called $made"
  use_made
}
use_made() {
  IMAGE=$made
  built=$("$DOCKER" image inspect --format '{{.Id}}' "$IMAGE")
  [ "${built#sha256:}" = "${id#sha256:}" ] || \
    say "$made is built from image/; its id is $built, not $id as where the failure was seen"
}

if [ -n "$IMAGE" ]; then
  say "in $IMAGE, as IMAGE asks; the failure was seen in trtmatrix/tensorrt:8.6.0"
elif is_here "$reference"; then
  IMAGE=$reference
elif is_here "$id"; then
  IMAGE=$id
elif is_here "$made"; then
  use_made
elif [ -n "$reference" ] && say "pulling $reference" && "$DOCKER" pull "$reference" >&2; then
  IMAGE=$reference
else
  [ -z "$reference" ] || say "it cannot be pulled (NGC: $DOCKER login nvcr.io, user \$oauthtoken)"
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
set -- -B /archive/repro.py --files /archive --out /out "$@"
set -- --mount "$(bind "$here" /archive),readonly" --mount "$(bind "$out" /out)" \
  --entrypoint python3 "$IMAGE" "$@"
case $GPU_OPTIONS in *--gpus*) ;; *) set -- --env NVIDIA_VISIBLE_DEVICES=void "$@" ;; esac
making=1
# shellcheck disable=SC2086 # several options
"$DOCKER" create --rm --init --name "$name" --network none --read-only --cap-drop ALL \
  --security-opt no-new-privileges --security-opt label=disable --pids-limit 1024 \
  --user "$RUN_AS" --workdir /tmp --tmpfs /tmp:rw,exec,nosuid,nodev,size=8589934592,mode=1777 \
  --env HOME=/tmp/home \
  --env USER=user \
  --env LOGNAME=user \
  --env TMPDIR=/tmp \
  --env XDG_CACHE_HOME=/tmp/home/.cache \
  --env CUDA_CACHE_PATH=/tmp/home/cuda \
  --env TORCHINDUCTOR_CACHE_DIR=/tmp/home/inductor \
  --env TRITON_CACHE_DIR=/tmp/home/triton \
  --env ORT_DISABLE_TELEMETRY=1 \
  $GPU_OPTIONS "$@" >/dev/null || stop "the container cannot be made: see above"
making=0
ran=$("$DOCKER" container inspect --format '{{.Image}}' "$name" 2>/dev/null) || ran=''
"$DOCKER" start --attach "$name" &
client=$!
wait "$client"
code=$?
rm -f -- "$out/image-id.txt"  # whatever was put there from inside
printf '%s\n' "$ran" >"$out/image-id.txt"
# Python ends in 1 too where it cannot even read the script: without a result nothing was run.
case $code in
  0 | 1)
    if [ -f "$out/result.json" ]; then
      say "details: $out/result.json"
    else
      say "repro.py ended with exit code $code and left no result in $out, which says nothing of the failure"
      code=125
    fi
    ;;
  125) say "nothing can be said: see above" ;;
  *) say "repro.py ended with exit code $code, which says nothing of the failure"; code=125 ;;
esac
exit "$code"
