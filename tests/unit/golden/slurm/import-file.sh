#!/bin/bash
# trtmatrix: the import of /shared/our own/it's.sif. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

images=/shared/lab/images
image_key=9d0e
reference=''
source_file='/shared/our own/it'\''s.sif'
image_ids=(
    ''
)
image_uris=(
    docker://
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='""'
file_json='"/shared/our own/it'\''s.sif"'

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

find_apptainer() {
    apptainer=$(command -v apptainer || command -v singularity) ||
        give_up runtime "neither apptainer nor singularity is there on $node: see the site's setup"
}

have_image() {
    image_id=$image_config
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        image_file=$source_file
        know_file "$source_file"
        publish_image "$source_file"
        return
    fi
    find_apptainer
    attend "$apptainer" pull "$new/image.sif" "${image_uris[0]}" >"$ran/said" 2>&1 ||
        give_up image "$node cannot pull ${image_uris[0]}: $(tail -c 1000 "$ran/said")"
    image_file=$image_folder/image.sif
    know_file "$new/image.sif"
    publish_image "$new/image.sif"
}

begin

stage='the lines of setup in the settings of the site were run'
module load apptainer

stage='the image was fetched'
have_image
exit 0
