#!/bin/sh
# Checks every byte of the pack beside which it lies, then loads it: images, suite, wheels. Nothing is started
# that a network could be reached by. It needs GNU coreutils, findutils and tar; for images docker or podman.
usage="usage: sh unpack [FOLDER] [--into DIR] [--check] [--python PATH] [--no-images] [--no-venv]

  FOLDER         the pack's folder (default: this one)
  --into DIR     where the suite goes (default: ./trtmatrix)
  --check        check every byte, load nothing
  --python PATH  the Python that the suite is to run with
  --no-images    leave the container engine alone
  --no-venv      make no environment

exit codes: 1 the pack is damaged, 2 it cannot be used here as asked for, 3 a tool failed, 130 interrupted"
set -eu
export LC_ALL=C

refuse() { # CODE WORDS: they may hold names out of the pack
    printf 'unpack: %s\n' "$2" | tr -c '[:print:]\n' '?' >&2
    exit "$1"
}

folder=$(dirname "$0") into=trtmatrix check='' python='' images=yes venv=yes
while [ $# -gt 0 ]; do
    case $1 in
        --into | --python) [ $# -gt 1 ] || refuse 2 "$1: name something" ;;
    esac
    case $1 in
        --into) into=$2 && shift ;;
        --into=*) into=${1#*=} ;;
        --python) python=$2 && shift ;;
        --python=*) python=${1#*=} ;;
        --check) check=yes ;;
        --no-images) images='' ;;
        --no-venv) venv='' ;;
        --help | -h) printf '%s\n' "$usage" && exit 0 ;;
        -*) refuse 2 "$1 is not known: sh unpack --help" ;;
        *) folder=$1 ;;
    esac
    shift
done
case $into in /*) ;; *) into=$PWD/$into ;; esac
case $folder in /*) ;; *) folder=$PWD/$folder ;; esac

# --- Whether every byte is as it was written

plain() { [ -f "$folder/$1" ] && [ ! -L "$folder/$1" ] && [ -r "$folder/$1" ]; }
of() { printf '%s\n' "$manifest" | sed -n "s/^$1 //p"; }
sum_of() { sha256sum <"$folder/$1" | cut -d ' ' -f 1; }

[ -d "$folder" ] || refuse 2 "$folder: there is no such folder"
plain manifest.txt || refuse 1 "$folder: no manifest.txt: this is no pack, or writing it was cut off: pack again"
for name in manifest.txt SHA256SUMS; do
    plain $name && [ "$(wc -c <"$folder/$name")" -le 1000000 ] || refuse 1 "$folder: $name cannot be used"
done
manifest=$(cat "$folder/manifest.txt")
[ "$(of schema)" = 4 ] || refuse 1 "$folder: manifest.txt is of schema $(of schema), and this program reads 4"
if printf '%s\n' "$manifest" | grep -Evq '^[a-z]+ [A-Za-z0-9._:/@+ -]*$'; then
    refuse 1 "$folder: manifest.txt cannot be used"
fi
names="files.tar manifest.txt unpack"
[ -z "$(of image)" ] || names="files.tar images.tar manifest.txt unpack"
listed=$(sed 's/^[0-9a-f]\{64\}  //' "$folder/SHA256SUMS" | tr '\n' ' ')
[ "$listed" = "$names " ] || refuse 1 "$folder: SHA256SUMS and manifest.txt do not name the same files"
problems=''
for path in "$folder"/* "$folder"/.[!.]*; do # folders may be there: what a system makes on a disk
    name=${path##*/}
    case " $names SHA256SUMS " in *" $name "*) continue ;; esac
    if [ -e "$path" ] && [ ! -d "$path" ]; then
        problems="$problems
  $name is extra: it is none of this pack's, move it away"
    fi
done
while read -r digest name; do
    if ! plain "$name"; then
        problems="$problems
  $name is missing, or cannot be read"
    elif [ "$(sum_of "$name")" != "$digest" ]; then
        problems="$problems
  $name differs from its digest in SHA256SUMS"
    fi
done <"$folder/SHA256SUMS"
[ -z "$problems" ] || refuse 1 "$folder: is not the pack $(of pack) as it was made; nothing was loaded:$problems
  copy what is named again from where the pack was made, then start this once more"
echo "the pack $(of pack) is whole"
[ -z "$check" ] || exit 0

# --- What can be known to fail: the engine, the suite's folder, its Python

as_registries_say() { sed 's/x86_64/amd64/; s/aarch64/arm64/' | tr '[:upper:]' '[:lower:]'; }
check_platform() { # WHAT FOUND WAY-OUT
    [ "$2" = "$(of platform)" ] || refuse 2 "the $1 of this pack are for $(of platform), and this host's are of $2: \
pack on a host of that platform, or $3"
}
id_of() { # of an image, by its ID or name; nothing where it is not here
    timeout 60 "$engine" image inspect --format '{{.Id}}' "$1" 2>/dev/null | sed -n 's/^\(sha256:\)\{0,1\}\([0-9a-f]\)/sha256:\2/p'
}
held() { # ID MANIFEST: Docker's own store calls an image by the one, containerd's by the other
    for id in "$1" "$2"; do
        [ "$id" = - ] || [ "$(id_of "$id")" != "$id" ] || { echo "$id" && return; }
    done
}

engine='' why="as asked for"
if [ -n "$images" ] && [ -n "$(of image)" ]; then
    why="neither docker nor podman is installed here"
    case ${DOCKER_HOST:-unix://} in
        unix://*) ;;
        *) refuse 2 "DOCKER_HOST=$DOCKER_HOST is reached over a network, and this opens no connection: unset it, \
set it to unix://SOCKET, or --no-images" ;;
    esac
    for command in docker podman; do
        if [ -z "$engine" ] && command -v $command >/dev/null; then
            for format in '{{.OSType}}/{{.Architecture}}' '{{.Host.OS}}/{{.Host.Arch}}'; do
                if [ -z "$engine" ] && system=$(timeout 60 $command info --format "$format" 2>/dev/null); then
                    engine=$command
                fi
            done
            why="$command does not answer this user: start it; for rights, sudo usermod -aG docker \$USER and \
log in again, or start this by sudo"
        fi
    done
fi
if [ -n "$engine" ]; then
    check_platform images "$(echo "$system" | as_registries_say)" --no-images
    while read -r id digest names; do
        for name in $names; do
            here=$(id_of "$name")
            case $here in
                '' | "$id" | "$digest") ;;
                *) refuse 2 "$name is another image here ($here), and loading would take its name: remove or \
rename it first: docker tag $name OTHER && docker rmi $name" ;;
            esac
        done
    done <<LINES
$(of image)
LINES
fi

tar -tvf "$folder/files.tar" >/dev/null 2>&1 || refuse 1 "the pack's files are no tar that can be read"
if odd=$(tar -tPvf "$folder/files.tar" | grep -v '^[-d]'); then
    refuse 1 "the pack holds what is no plain file: $odd"
fi
if odd=$(tar -tPf "$folder/files.tar" | grep -E '^/|(^|/)\.\.(/|$)'); then
    refuse 1 "the pack holds what is no plain file: $odd"
fi
{ mkdir -p "$(dirname "$into")" && scratch=$(mktemp -d "$(dirname "$into")/.trtmatrix-unpack.XXXXXX"); } ||
    refuse 2 "--into $into: cannot be written: name another folder"
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM HUP
tar -xf "$folder/files.tar" -C "$scratch" --no-same-owner --touch || refuse 3 "tar failed: perhaps the disk is full"
(cd "$scratch" && find . -type f) >"$scratch.list"
trap 'rm -rf "$scratch" "$scratch.list"' EXIT
changed=''
while IFS= read -r file; do
    target=$into/${file#./}
    if [ -e "$target" ] || [ -L "$target" ]; then
        [ -f "$target" ] && cmp -s "$scratch/$file" "$target" || changed="$changed ${file#./}"
    fi
done <"$scratch.list"
[ -z "$changed" ] || refuse 2 "$into: has other files of the same names ($(echo "$changed" | cut -c 2-400)): name an empty \
folder by --into"

if [ -n "$venv" ]; then
    check_platform wheels "$(echo "$(uname -s)/$(uname -m)" | as_registries_say)" --no-venv
    found='' version='' others=$(of python | sed 's/^/python/')
    while IFS= read -r each; do
        if [ -z "$found" ] && version=$("$each" -c 'import sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
            case " $(of python | tr '\n' ' ')" in *" $version "*) found=$each ;; esac
        fi
    done <<LINES
${python:-python3
$others}
LINES
    [ -n "$found" ] || refuse 2 "the wheels of this pack are for Python $(of python | tr '\n' ' ')with its venv: name one by \
--python PATH, pack again with --for-python X.Y, or --no-venv"
    if [ -e "$into/.venv" ] || [ -L "$into/.venv" ]; then
        [ -f "$into/.venv/made-by-trtmatrix-unpack" ] || refuse 2 "$into/.venv: is there, and this script did not make it: name \
an empty folder by --into, move it away, or --no-venv"
    fi
fi

# --- Images, suite, environment

if [ -n "$engine" ]; then
    missing=''
    while read -r id digest names; do
        [ -n "$(held "$id" "$digest")" ] || missing=yes
    done <<LINES
$(of image)
LINES
    if [ -n "$missing" ]; then
        echo "loading the images"
        "$engine" load --quiet --input "$folder/images.tar" >/dev/null || refuse 3 "$engine load failed"
    fi
    while read -r id digest names; do
        here=$(held "$id" "$digest")
        [ -n "$here" ] || refuse 3 "the engine loaded the images, but none has the ID $id ($names): perhaps only one of both \
engines has containerd's image store: switch it on or off here (\"features\": {\"containerd-snapshotter\": …} in daemon.json)"
        for name in $names; do
            [ -n "$(id_of "$name")" ] || timeout 60 "$engine" tag "$here" "$name" || refuse 3 "$engine tag failed"
        done
        echo "  $here  $names"
    done <<LINES
$(of image)
LINES
fi
while IFS= read -r file; do
    if [ ! -e "$into/$file" ]; then
        { mkdir -p "$(dirname "$into/$file")" && mv "$scratch/$file" "$into/$file"; } ||
            refuse 3 "$into/${file#./} cannot be written"
    fi
done <"$scratch.list"
mark=$into/.venv/made-by-trtmatrix-unpack
if [ -n "$venv" ] && [ "$(cat "$mark" 2>/dev/null)" != "$(of pack)" ]; then
    echo "making the suite's environment"
    { rm -rf "$into/.venv" && mkdir "$into/.venv" && : >"$mark"; } || refuse 3 "$into/.venv cannot be written"
    "$found" -m venv --without-pip "$into/.venv" || refuse 3 "$found -m venv failed"
    for pip in "$into"/wheelhouse/pip-*.whl; do :; done
    inner=$into/.venv/bin/python
    "$inner" "$pip/pip" install --isolated --quiet --no-index --no-deps --no-compile --disable-pip-version-check \
        --require-hashes "--find-links=$into/wheelhouse" "--requirement=$into/wheelhouse/suite-$version.txt" ||
        refuse 3 "pip failed"
    site=$("$inner" -c "import sysconfig; print(sysconfig.get_path('purelib'))")
    echo "$into/src" >"$site/trtmatrix-suite.pth"
    of pack >"$mark"
fi
if [ -n "$(of image)" ] && [ -z "$engine" ]; then
    echo "THE IMAGES WERE NOT LOADED ($why); start this again for them"
fi
run="-m trtmatrix run --offline --trt $(of version | tr '\n' ',' | sed 's/,$//')"
echo "next:"
if [ -n "$venv" ]; then
    echo "  cd '$into' && .venv/bin/python $run"
else
    echo "  cd '$into' && PYTHONPATH=src python3 $run   (a Python that has what wheelhouse/suite-X.Y.txt names)"
fi
