#!/bin/bash
# trtmatrix: the tasks of array 5f1c2a, version 10.7.0. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

# (Here stands common-task-told.sh.)
create_words=(
    --rm
    --init
    --network=none
    --read-only
    --cap-drop=ALL
    --security-opt=no-new-privileges
    --memory=34359738368
    --memory-swap=34359738368
    --pids-limit=1024
    --ulimit=fsize=8589934592
    --log-driver=json-file
    --log-opt=max-size=1048576
    --workdir=/tmp
    '--tmpfs=/tmp:rw,exec,nosuid,nodev,size=8589934592,mode=1777'
    --label=io.trtmatrix=1
    --label=io.trtmatrix.owner=slurm
    --label=io.trtmatrix.version=10.7.0
    --env=HOME=/tmp/home
    --env=USER=trtmatrix
    --env=LOGNAME=trtmatrix
    --env=TMPDIR=/tmp
    --env=XDG_CACHE_HOME=/tmp/home/.cache
    --env=TORCHINDUCTOR_CACHE_DIR=/tmp/home/inductor
    --env=TRITON_CACHE_DIR=/tmp/home/triton
    --env=CUDA_CACHE_PATH=/tmp/home/cuda
    --env=ORT_DISABLE_TELEMETRY=1
    --env=PYTHONDONTWRITEBYTECODE=1
    '--mount=type=bind,source=/shared/lab/suite/77aa/trtprobe,target=/opt/trtmatrix/trtprobe,readonly'
    '--mount=type=bind,source=/shared/lab/suite/77aa/repros,target=/opt/trtmatrix/repros,readonly'
    '--mount=type=bind,source=/shared/lab/cases,target=/opt/trtmatrix/cases,readonly'
)
emptied=(
    /tmp
    /dev/shm
)
gpu_access=TOOLKIT
container_name=trtmatrix-5f1c2a

# (Here stands common-base.sh.)

# (Here stands common-task.sh.)

unstarted_seconds=600

image_ready() {
    read_image
    local lock said
    docker version >/dev/null 2>"$local/said" ||
        give_up runtime "Docker does not answer on $node: $(<"$local/said")"
    find_image && return
    # Two tasks of one node load an image once. On the shared folder, since /tmp may be private to a job.
    exec {lock}>>"$image_folder/loading.$node" && attend flock "$lock"
    if ! find_image; then
        [[ -r $image_file ]] || give_up image "$image_file cannot be read on $node"
        attend docker load --input "$image_file" >"$local/said" 2>&1 ||
            give_up image "$node cannot load $image_file: $(tail -c 500 "$local/said")"
        # An engine that keeps its images in another way knows the same one by another ID.
        said=$(sed -n 's/^Loaded image\( ID\)\{0,1\}: //p' "$local/said" | tail -n 1)
        find_image || docker tag "$said" "$image_tag" 2>/dev/null
        find_image || give_up image "$image_file was loaded on $node, and $image_id is not there"
    fi
    exec {lock}>&-
}

find_image() {
    local name
    for name in "$image_id" "$image_tag"; do
        image=$(docker image inspect --format '{{.Id}}' "$name" 2>/dev/null) && return 0
    done
    return 1
}

container_start() {
    local words=("${create_words[@]}") user
    user=$(id -u):$(id -g)
    docker info --format '{{.SecurityOptions}}' 2>/dev/null | grep -q name=rootless && user=0:0
    words+=("--user=$user" "--name=$container_name.$job" "--label=io.trtmatrix.slurm=$job")
    words+=("--label=io.trtmatrix.cluster=${SLURM_CLUSTER_NAME:-}")
    words+=("--mount=type=bind,source=$job_folder,target=/opt/trtmatrix/job,readonly" "--mount=type=bind,source=$out,target=/opt/trtmatrix/out")
    driver_is_old && words+=("--env=$compat")
    give_gpu
    remove_unstarted
    container=$container_name.$job
    attend docker create "${words[@]}" "${gpu_words[@]}" "--entrypoint=${probe[0]}" \
        "$image" "${probe[@]:1}" >"$local/said" 2>&1 ||
        not_made
    touch -- "$job_folder/heartbeat"
    started_at=$(date +%s)
    docker start --attach "$container" 2>&1 </dev/null | tail -c 65536 >"$local/whole" &
    waiting=$!
}

# One whose script was killed before it was started would stay for ever: no heartbeat ends it, nor --rm.
remove_unstarted() {
    local one made
    for one in $(timeout -k 2 25 docker ps --all --quiet --filter status=created \
        --filter "label=io.trtmatrix.slurm" --filter "label=io.trtmatrix.cluster=${SLURM_CLUSTER_NAME:-}"); do
        made=$(docker inspect --format '{{.Created}}' "$one" 2>/dev/null) || continue
        (($(date +%s) - $(date -d "$made" +%s) > unstarted_seconds)) &&
            timeout -k 2 25 docker rm --force --volumes "$one" >/dev/null 2>&1
    done
}

# An engine finds a folder by its own eyes: those of the node, and of the time when it was started.
not_made() {
    local said unseen='bind source path does not exist: ' path
    said=$(tail -c 1000 "$local/said")
    path=${said#*"$unseen"} path=${path%%$'\n'*} path=${path%.}
    if [[ $said == *"$unseen$local"* ]]; then
        give_up files "Docker on $node does not see $local, which this job made: is ${local%/*} private to \
a job (job_container/tmpfs)? Name a folder of the node's own disk by scratch: in the site's file"
    elif [[ $said == *"$unseen"* && -e $path ]]; then
        give_up files "Docker on $node does not see $path, which this job sees: was it mounted later?"
    fi
    give_up runtime "$node cannot make the container: $said"
}

give_gpu() {
    local device
    gpu_words=()
    case $gpu_access in
        TOOLKIT) gpu_words=("--gpus=device=$gpu") ;;
        CDI) gpu_words=("--device=nvidia.com/gpu=$place") ;;
        NODES)
            for device in "/dev/nvidia$minor" /dev/nvidiactl /dev/nvidia-uvm; do
                [[ -e $device ]] && gpu_words+=("--device=$device")
            done
            [[ -e /dev/nvidia$minor ]] || give_up gpu "/dev/nvidia$minor is not there on $node"
            ;;
    esac
}

container_running() { kill -0 "$waiting" 2>/dev/null; }

container_result() {
    local action number until
    wait "$waiting"
    waiting=''
    tail -n 100 "$local/whole" | tail -c 4000 >"$local/log"
    until=$(date +%s.%N)
    while read -r action number; do
        case $action in
            oom) oom=1 ;;
            die) code=$number ;;
        esac
    done < <(timeout -k 2 30 docker events --since "$started_at" --until "$until" \
        --filter "container=$container" --format '{{.Action}} {{.Actor.Attributes.exitCode}}')
    [[ -n $code ]] || give_up runtime "$node cannot start the container: $(tail -c 1000 "$local/log")"
}

# Also where a creation was cut off: by name. Nothing is left once this has come back.
container_remove() {
    [[ -n $container ]] || return 0
    timeout -k 2 25 docker rm --force --volumes "$container" >/dev/null 2>&1
    if [[ -n $local && -s $local/whole && ! -s $local/log ]]; then
        tail -n 100 "$local/whole" | tail -c 4000 >"$local/log"
    fi
}

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
trap - ERR
check_environment

# (Here stands common-task-main.sh.)
