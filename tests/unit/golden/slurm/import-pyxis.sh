#!/bin/bash
# trtmatrix: the import of nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

images=/shared/lab/images
image_key=9d0e
reference=nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab
source_file=''
image_ids=(
    sha256:abababababababababababababababababababababababababababababababab
)
image_uris=(
    'docker://nvcr.io#nvidia/tensorrt@sha256:abababababababababababababababababababababababababababababababab'
    'docker://nvcr.io#nvidia/tensorrt:sha256:abababababababababababababababababababababababababababababababab'
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='"nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab"'
file_json='"/shared/lab/images/9d0e/image.sqsh"'

job=${SLURM_JOB_ID:?this is the script of a job of Slurm}
attempt=${1:?usage: sbatch … SCRIPT ATTEMPT}
node=${SLURMD_NODENAME:-$(hostname)}
began=$(date +%s)
time_over=${SLURM_JOB_END_TIME:-$((began + 60 * minutes))}
trouble='' detail='' waiting='' pausing='' ran=''
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

# Slurm sends TERM when the job is cancelled or preempted, and because of --signal before its time is over.
# That one may come a minute early: https://slurm.schedmd.com/sbatch.html#OPT_signal
told_to_end() {
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
image_file='' image_id=''

leave() {
    local status=$?
    trap '' TERM INT
    trap - EXIT
    [[ -n $waiting ]] && kill "$waiting" 2>/dev/null
    [[ -n $new ]] && rm -rf -- "$new"
    if [[ -z $trouble && $status != 0 ]]; then
        trouble=runtime detail="the script ended with code $status while: $stage"
    fi
    [[ -s $ran/said ]] && tail -n 100 -- "$ran/said" | tail -c 4000 | leave_file log
    rm -f -- "$ran/said"
    printf '%s\n' "code=$status" "oom=" "trouble=$trouble" "detail=$(plain "$detail")" "time=$(now)" |
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
    mkdir -p -- "$new" || give_up files "$images cannot be written to"
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
    local uri
    image_id=$image_config
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        image_file=$source_file
        know_file "$source_file"
        publish_image "$source_file"
        return
    fi
    command -v enroot >/dev/null || give_up runtime "enroot is not there on $node: see the site's setup"
    for uri in "${image_uris[@]}"; do
        attend enroot import --output "$new/image.sqsh" "$uri" >"$ran/said" 2>&1 && break
        # Releases differ in how they write a digest.
        grep -q 'Invalid image reference' "$ran/said" || break
    done
    [[ -s $new/image.sqsh ]] || give_up image "$node cannot import $uri: $(tail -c 1000 "$ran/said")"
    image_file=$image_folder/image.sqsh
    know_file "$new/image.sqsh"
    publish_image "$new/image.sqsh"
}

begin

stage='the lines of setup in the settings of the site were run'
module load pyxis

stage='the image was fetched'
have_image
exit 0
