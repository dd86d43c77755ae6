#!/bin/sh
# Shows the failure of this archive again: attention-1a2b/fp32-0f1e@onnxruntime-1.31.1#cpu: your model attention.onnx
#
#   sh reproduce.sh [options of repro.py, see --help]
#
# Exit code: 1 the failure comes back, 0 it does not, 125 cannot say (and why), 130 and 143 interrupted.
# The failure was seen outside of any container, so that is where this runs.
# What may be set in the environment:
#   REPRODUCE_OUT  the folder that is written to, result.json goes there (default: ./out)
#   PYTHON         an interpreter that has onnxruntime and numpy (default: python3); one is made by
#                  python3 -m venv env && env/bin/pip install onnxruntime==1.31.1 numpy
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

: "${PYTHON:=python3}"
command -v "$PYTHON" >/dev/null || stop "there is no $PYTHON: set PYTHON to one with onnxruntime and numpy" \
  "(pip install onnxruntime==1.31.1 numpy)"
"$PYTHON" -B "$here/repro.py" --files "$here" --out "$out" "$@"
code=$?
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
