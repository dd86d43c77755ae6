#!/bin/bash
# trtmatrix: the tasks of array 5f1c2a, version 10.7.0. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

# (Here stands common-task-told.sh.)
exec_words=(
    exec
    --containall
    --cleanenv
    --no-home
    --no-privs
    --nv
    --pwd=/tmp
    --bind=/shared/lab/suite/77aa/trtprobe:/opt/trtmatrix/trtprobe:ro
    --bind=/shared/lab/suite/77aa/repros:/opt/trtmatrix/repros:ro
    --bind=/shared/lab/cases:/opt/trtmatrix/cases:ro
)
emptied=(
    /tmp
)
environment=(
    HOME=/tmp/home
    USER=trtmatrix
    LOGNAME=trtmatrix
    TMPDIR=/tmp
    XDG_CACHE_HOME=/tmp/home/.cache
    TORCHINDUCTOR_CACHE_DIR=/tmp/home/inductor
    TRITON_CACHE_DIR=/tmp/home/triton
    CUDA_CACHE_PATH=/tmp/home/cuda
    ORT_DISABLE_TELEMETRY=1
    PYTHONDONTWRITEBYTECODE=1
)

# (Here stands common-base.sh.)

# (Here stands common-task.sh.)

# (Here stands common-child.sh.)

find_apptainer() {
    apptainer=$(command -v apptainer || command -v singularity) ||
        give_up runtime "neither apptainer nor singularity is there on $node: see the site's setup"
}

out_inside=/opt/trtmatrix/out

# What a profile, a module or a user has set for other containers is nothing for these: each option may be
# given as a variable too, and what begins with APPTAINERENV_ is set inside in spite of --cleanenv. What says
# how and where an image is opened stays. Names: https://apptainer.org/docs/user/main/appendix.html.
forget_settings() {
    local name
    for name in "${!APPTAINER@}" "${!SINGULARITY@}"; do
        case $name in
            *_CACHEDIR | *_TMPDIR | *_CONFIGDIR | *_UNSQUASH | *_USERNS) ;;
            *) unset "$name" ;;
        esac
    done
}

container_start() {
    local words=("${exec_words[@]}") alone
    find_apptainer
    forget_settings
    # /etc/localtime and /etc/hosts are the least of what a site binds into every container.
    attend "$apptainer" exec --help >"$local/help" 2>&1
    grep -q bind-paths "$local/help" && words+=(--no-mount=bind-paths)
    words+=("--bind=$job_folder:/opt/trtmatrix/job:ro" "--bind=$out:/opt/trtmatrix/out" "--bind=$local/scratch:/tmp")
    # Some installations give no user a network namespace, not even an empty one.
    alone=("${words[@]}" --net --network=none)
    if attend "$apptainer" "${alone[@]}" "$image_file" true >"$local/whole" 2>&1; then
        words=("${alone[@]}")
    else
        echo "trtmatrix: the network cannot be taken away here: $(tail -n 1 "$local/whole")"
    fi
    inside_words
    run_child "$apptainer" "${words[@]}" "$image_file" "${inside[@]}"
}

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
module load apptainer
trap - ERR
check_environment

# (Here stands common-task-main.sh.)
