#!/bin/bash
# trtmatrix: the import of nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

images=/shared/lab/images
scratch=''
image_key=9d0e
reference=nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab
source_file=''
image_ids=(
    sha256:abababababababababababababababababababababababababababababababab
)
image_uris=(
    nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='"nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab"'
file_json='"/shared/lab/images/9d0e/image.tar"'

job=${SLURM_JOB_ID:?this is the script of a job of Slurm}
attempt=${1:?usage: sbatch … SCRIPT ATTEMPT}
node=${SLURMD_NODENAME:-$(hostname)}
began=$(date +%s)
time_over=${SLURM_JOB_END_TIME:-$((began + 60 * minutes))}
trouble='' detail='' waiting='' pausing='' ran='' said='' kind=runtime
stage='the script began'

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# One line, whatever a message holds.
plain() {
    local text=${1//[$'\n\r']/ }
    printf '%s' "${text:0:2000}"
}

# A file of ours is whole or not there: it is written under another name, on the same file system.
leave_file() {
    cat >"$ran/.$1" && mv -f -T -- "$ran/.$1" "$ran/$1"
}

# Says what kept the script from its work, and ends.
give_up() {
    trouble=$1 detail=$2
    echo "trtmatrix: $trouble: $detail" >&2
    exit 1
}

# What a line of setup comes to counts, not what happens within a file that it reads. Such a failure is told,
# since what follows runs in another environment than the site's: without its modules, or with another PATH.
setup_failed() {
    ((${#BASH_SOURCE[@]} > 2)) && return
    give_up setup "a line of setup failed on $node with code $1: $2 (where it may fail: add || true)"
}

# Because of --export=NONE the node makes the environment, that of a login, and says little where it cannot:
# a job then has Slurm's own variables alone.
check_environment() {
    kind=runtime
    [[ -n ${HOME:-} ]] || give_up setup \
        "$node gave the job no environment of a login: HOME is empty; does 'su - $(id -un)' work there?"
}

# Sets base: where a job's own files lie on its node. Variables in what the site names are the job's.
find_base() {
    local name
    base=${scratch:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}
    while [[ $base =~ \$(\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*)) ]]; do
        name=${BASH_REMATCH[2]}${BASH_REMATCH[3]}
        [[ -n ${!name:-} && ${!name} != *[$]* ]] ||
            give_up setup "scratch: $scratch: $name is not set on $node"
        base=${base/"${BASH_REMATCH[0]}"/"${!name}"}
    done
    [[ $base == /* && $base != *[,:\"]* ]] ||
        give_up files "$base on $node is no folder that a container can be given: name one by scratch:"
}

# One line for the file that tells how it ended; last, where the rest of what was said lies.
told() { printf '%s' "$(plain "$detail")${trouble:+${said:+; see $said}}"; }

# Slurm sends TERM when the job is cancelled or preempted, and because of --signal before its time is over.
# That one may come a minute early: https://slurm.schedmd.com/sbatch.html#OPT_signal
told_to_end() {
    [[ $BASHPID == "$$" ]] || exit 0 # a child that has just been made still has the script's traps
    trap '' TERM INT
    trouble=cancelled detail="told to end while: $stage"
    if (($(date +%s) >= time_over - warned - 65)); then
        trouble='time' detail="the time limit of $minutes minutes came while: $stage"
    fi
    exit 143
}

# Runs a command that may take long, such that TERM is obeyed at once: bash waits for one in the foreground.
attend() {
    "$@" &
    waiting=$!
    wait "$waiting"
    local status=$?
    waiting=''
    return "$status"
}

pause() {
    sleep 0.5 &
    pausing=$!
    wait "$pausing"
    pausing=''
}

image_folder=$images/$image_key
ran=$image_folder.$attempt
new=$images/.$image_key.$attempt.$job
image_file='' image_id='' work=''

leave() {
    local status=$?
    [[ $BASHPID == "$$" ]] || exit 0
    trap '' TERM INT
    trap - EXIT
    [[ -n $waiting ]] && kill "$waiting" 2>/dev/null
    [[ -n $work ]] && rm -rf -- "$work"
    rm -rf -- "$new"
    if [[ -z $trouble && $status != 0 ]]; then
        trouble=$kind detail="the script ended with code $status while: $stage"
    fi
    [[ -s $ran/said ]] && tail -n 100 -- "$ran/said" | tail -c 4000 | leave_file log
    rm -f -- "$ran/said"
    printf '%s\n' "code=$status" "oom=" "trouble=$trouble" "detail=$(told)" "time=$(now)" |
        leave_file ended
    exit "$status"
}

begin() {
    mkdir -p -- "$ran" || exit 1
    trap 'leave' EXIT
    trap 'told_to_end' TERM INT
    printf '%s\n' "job=$job" "task=" "attempt=$attempt" "id=$job" "node=$node" "time=$(now)" |
        leave_file started || exit 1
    if [[ -e $image_folder/facts ]]; then
        echo "trtmatrix: $image_folder is there; nothing to do"
        exit 0
    fi
    # What a killed import left: none lives as long as that.
    find "$images" -mindepth 1 -maxdepth 1 -type d -name '.*' -mmin "+$((minutes + 60))" \
        -exec rm -rf -- {} + 2>/dev/null
    mkdir -p -- "$new" || give_up files "$images cannot be written to"
}

# Sets work, a folder for what comes and goes while an image is made: on the shared folder, which has room for
# images; or on the node's own disk, where the site names one. No import is as old as what is removed there.
make_work() {
    work=$new.work
    if [[ -z $scratch ]]; then
        mkdir -m 700 -- "$work" || give_up files "$images cannot be written to"
        return
    fi
    find_base
    find "$base" -mindepth 1 -maxdepth 1 -user "$(id -u)" -name 'trtmatrix-import.*' \
        -mmin "+$((minutes + 60))" -exec rm -rf -- {} + 2>/dev/null
    work=$(mktemp -d "$base/trtmatrix-import.$job.XXXXXX") ||
        give_up files "no folder can be made in $base on $node: name another by scratch: in the site's file"
}

# An image's own file is as good as its ID, where no other is known.
know_file() {
    [[ -n $image_id ]] && return
    attend sha256sum -- "$1" >"$ran/said" || give_up files "$1 cannot be read"
    image_id=sha256:$(cut -d ' ' -f 1 "$ran/said")
}

# The folder appears whole; another import that was first is as good. $1: the file as it is called by now.
publish_image() {
    local bytes
    bytes=$(stat -L -c %s -- "$1") || give_up files "$1 cannot be read"
    [[ $image_id =~ ^sha256:[0-9a-f]{64}$ ]] || give_up image "$image_id is no ID of an image"
    printf '{"reference": %s, "id": "%s", "file": %s, "bytes": %s}\n' \
        "$reference_json" "$image_id" "$file_json" "$bytes" >"$new/image.json"
    printf '%s\n' "file=$image_file" "id=$image_id" "reference=$reference" "bytes=$bytes" >"$new/facts" ||
        give_up files "$new cannot be written to"
    chmod -R u=rwX,go=rX -- "$new"
    mv -T -- "$new" "$image_folder" 2>"$ran/said" || [[ -e $image_folder/facts ]] ||
        give_up files "$(<"$ran/said")"
}

have_image() {
    local name=$reference id
    docker version >/dev/null 2>"$ran/said" ||
        give_up runtime "Docker does not answer on $node: $(<"$ran/said")"
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        attend docker load --input "$source_file" >"$ran/said" 2>&1 ||
            give_up image "$node cannot load $source_file: $(tail -c 500 "$ran/said")"
        name=$(sed -n 's/^Loaded image\( ID\)\{0,1\}: //p' "$ran/said" | tail -n 1)
    else
        for id in "${image_ids[@]}" "$reference"; do
            [[ -n $id ]] && docker image inspect "$id" >/dev/null 2>&1 && name=$id && break
        done
        if [[ $name == "$reference" ]] && ! docker image inspect "$reference" >/dev/null 2>&1; then
            attend docker pull "$reference" >"$ran/said" 2>&1 ||
                give_up image "$node cannot pull $reference: $(tail -c 1000 "$ran/said")"
        fi
    fi
    image_id=$(docker image inspect --format '{{.Id}}' "$name" 2>"$ran/said") ||
        give_up image "$node has no image $name: $(<"$ran/said")"
    if [[ -n ${image_ids[0]} ]]; then
        local known=''
        for id in "${image_ids[@]}"; do [[ $id == "$image_id" ]] && known=1; done
        [[ -n $known ]] || give_up image "$name is $image_id on $node, not the image of matrix.lock"
    fi
    docker tag "$image_id" "trtmatrix/slurm:${image_id#sha256:}"
    if [[ -n $source_file ]]; then
        image_file=$source_file
        publish_image "$source_file"
        return
    fi
    image_file=$image_folder/image.tar
    attend docker save --output "$new/image.tar" "trtmatrix/slurm:${image_id#sha256:}" 2>"$ran/said" ||
        give_up files "$node cannot save the image below $images: $(tail -c 500 "$ran/said")"
    publish_image "$new/image.tar"
}

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
trap - ERR
check_environment

stage='the image was fetched'
have_image
exit 0
