#!/bin/bash
# trtmatrix: the tasks of array 5f1c2a, version 10.7.0. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

array_folder=/shared/lab/arrays/5f1c2a
scratch=''
image_folder=/shared/lab/images/9d0e
minutes=40
warned=60
gpu_slug=nvidia-h200
gpu_name='NVIDIA H200'
gpu_gres=gpu:h200:1
gpu_facts='name,uuid,compute_cap,memory.total,driver_version,mig.mode.current,clocks.sm,clocks.mem,power.limit'
driver_least=550.54.14
compat=TRTMATRIX_CUDA_COMPAT=/usr/local/cuda/compat/lib.real:/usr/local/cuda/compat
suite_folders=(
    /shared/lab/suite/77aa/trtprobe
    /shared/lab/suite/77aa/repros
    /shared/lab/cases
)
probe=(
    python3
    -B
    /opt/trtmatrix/trtprobe
    supervise
    --job=/opt/trtmatrix/job
    --cases=/opt/trtmatrix/cases
    --repros=/opt/trtmatrix/repros
    --out=/opt/trtmatrix/out
)
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

task=${SLURM_ARRAY_TASK_ID:?this is the script of an array of Slurm}
array=${SLURM_ARRAY_JOB_ID:-$job}
try=$array_folder/tries/$task.$attempt
final=$array_folder/ran/$task.$attempt
ran=$final.$job
said=$array_folder/said.$task.$attempt.$array.txt
proc_gpus=/proc/driver/nvidia/gpus
code='' oom='' local='' container='' next=0 told_start=-1
signs=()

# A job that comes too late runs nothing: the array was cancelled or closed, or this attempt given up.
end_if_unwanted() {
    local mark
    for mark in "$array_folder/stopping" "$array_folder/over" "$try/gone.json"; do
        if [[ -e $mark ]]; then
            echo "trtmatrix: task $task is not wanted any more: $mark; nothing to do"
            exit 0
        fi
    done
}

# The work of one attempt is done once, however often Slurm starts it: the first to make the link has it.
# Making a link is one step on every file system, NFS too.
begin() {
    end_if_unwanted
    if ! ln -s -T -- "$job" "$try/taken" 2>/dev/null; then
        local other
        other=$(readlink -- "$try/taken") || { echo "trtmatrix: $try cannot be written to" >&2; exit 1; }
        if [[ $other != "$job" || -e $ran || -e $final ]]; then
            echo "trtmatrix: attempt $attempt at task $task is job $other's; nothing to do"
            exit 0
        fi
    fi
    mkdir -p -- "$ran" || exit 1
    trap 'leave' EXIT
    trap 'told_to_end' TERM INT
    printf '%s\n' "job=$array" "task=$task" "attempt=$attempt" "id=$job" "node=$node" "time=$(now)" |
        leave_file started || exit 1
    sign "$ran/alive" 10
}

# Touches a file every so many seconds, beside all that the script waits for, as long as the script lives: a
# child whose parent was killed gets another one, though the parent may not have been buried yet.
sign() {
    keep_signing "$1" "$2" </dev/null >/dev/null 2>&1 &
    signs+=("$!")
    disown "$!"
}

keep_signing() {
    local me=$BASHPID second=0
    while [[ $(<"/proc/$me/status") == *$'\nPPid:\t'"$$"$'\n'* ]]; do
        ((second++ % $2 == 0)) && touch -- "$1"
        sleep 1
    done
}

# On every path: nothing runs any more, what is finished is on the shared folder, the rest is gone.
leave() {
    local status=$?
    [[ $BASHPID == "$$" ]] || exit 0
    trap '' TERM INT
    trap - EXIT
    container_remove
    [[ -n $waiting ]] && kill "$waiting" 2>/dev/null
    [[ -n $pausing ]] && kill "$pausing" 2>/dev/null
    if [[ -z $trouble && -z $code ]]; then
        trouble=$kind detail="the script ended with code $status while: $stage"
    fi
    collect || { [[ -n $trouble ]] || trouble=files; detail+=" $ran cannot be written to"; }
    collect_rest
    [[ -n $local && -s $local/log ]] && leave_file log <"$local/log"
    kill -KILL "${signs[@]}" 2>/dev/null # one that has just begun would take TERM for this script
    printf '%s\n' "code=$code" "oom=$oom" "trouble=$trouble" "detail=$(told)" "time=$(now)" |
        leave_file ended && mv -T -- "$ran" "$final" 2>/dev/null
    [[ -n $local ]] && rm -rf -- "$local"
    [[ $status == 0 && -n $trouble ]] && status=1
    exit "$status"
}

# Folders that a killed job left behind lie there without a sign of life.
make_local() {
    local old
    find_base
    for old in "$base"/trtmatrix-slurm.*; do
        [[ -d $old && ! -L $old && -O $old && -n $(find "$old/job/heartbeat" -mmin +30 2>/dev/null) ]] &&
            rm -rf -- "$old"
    done
    local=$(mktemp -d "$base/trtmatrix-slurm.$job.XXXXXX") ||
        give_up files "no folder can be made in $base on $node: name another by scratch: in the site's file"
    job_folder=$local/job out=$local/out
    if ! { mkdir -- "$job_folder" "$out" "$local/scratch" && cp -R -- "$try/job/." "$job_folder/" &&
        printf '%s\n' "${emptied[@]}" >"$job_folder/scratch" && touch -- "$job_folder/heartbeat"; }; then
        give_up files "$try/job cannot be copied to $local"
    fi
    # The probe ends itself where this stops: it hangs on nothing that the shared folder may keep waiting.
    sign "$job_folder/heartbeat" 1
    local folder
    for folder in "${suite_folders[@]}"; do
        [[ -d $folder ]] || give_up files "$folder is not there on $node"
    done
}

# Copies what has come out: first what a cell left, last its record, each whole or not at all.
collect() {
    [[ -n $local ]] || return 0
    while [[ -e $out/$next.record.json ]]; do
        publish "$next.started.json" && publish "$next" && publish "$next.record.json" || return 1
        next=$((next + 1))
    done
    if ((told_start < next)) && [[ -e $out/$next.started.json ]]; then
        publish "$next.started.json" || return 1
        told_start=$next
    fi
}

publish() {
    [[ -e $out/$1 && ! -e $ran/$1 ]] || return 0
    rm -rf -- "$ran/.$1" && cp -R -P -- "$out/$1" "$ran/.$1" && mv -T -- "$ran/.$1" "$ran/$1"
}

# What is no cell's own: the surface of the bindings, where it was asked for.
collect_rest() {
    [[ -n $local ]] || return 0
    local file name
    for file in "$out"/*.json; do
        name=${file##*/}
        [[ -f $file && ! -L $file && ! $name =~ ^[0-9]+\. ]] && publish "$name"
    done
}

# A GPU's name as cells have it: "NVIDIA H200" and "H200" give nvidia-h200.
slug_of() {
    local text
    text=$(printf '%s' "$1" | LC_ALL=C tr "[:upper:]" "[:lower:]" | LC_ALL=C tr -c -s "a-z0-9." "-")
    while [[ $text == [-.]* ]]; do text=${text#?}; done
    while [[ $text == *[-.] ]]; do text=${text%?}; done
    [[ $text == nvidia* || $text == tesla* || $text == quadro* ]] || text=nvidia-$text
    printf '%s' "$text"
}

ask_gpus() { timeout -k 2 25 nvidia-smi "$@"; }

# What the driver says of every GPU, in the order of their places on the bus, with UUIDs and minor numbers.
# Its own files tell of all, nvidia-smi of those that the job may see.
tell_gpus() {
    local file told=''
    for file in "$proc_gpus"/*/information; do
        [[ -r $file ]] && cat -- "$file" && told=1
    done
    [[ -n $told ]] || ask_gpus -q
}

# Sets gpu (what nvidia-smi and the toolkit know it by), minor and place (its number among all of the node's).
find_gpu() {
    local rows row number name value uuid='' count=0
    rows=$(ask_gpus --query-gpu=index,uuid --format=csv,noheader 2>&1) ||
        give_up gpu "nvidia-smi fails on $node: $rows"
    number=${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-}}
    number=${number%%[,-]*}
    if [[ ${CUDA_VISIBLE_DEVICES:-} == MIG-* ]]; then
        give_up gpu "$node gave a part of a GPU ($CUDA_VISIBLE_DEVICES); the site's gres must name whole ones"
    elif [[ $rows != *$'\n'* ]]; then
        row=$rows
    elif [[ $number =~ ^[0-9]+$ ]]; then
        row=$(grep -m 1 "^$number," <<<"$rows") ||
            give_up gpu "$node gave GPU $number, and nvidia-smi there knows ${rows//$'\n'/; }"
    else
        give_up gpu "$node has several GPUs and SLURM_JOB_GPUS is empty: does the site's gres ask for one?"
    fi
    place=${row%%,*} gpu=${row##*, }
    minor=${number:-$place}
    while IFS=: read -r name value; do
        value=${value//[[:space:]]/}
        case ${name#"${name%%[![:space:]]*}"} in
            'GPU UUID'*) uuid=$value ;;
            'Device Minor'* | 'Minor Number'*)
                [[ $uuid == "$gpu" ]] && minor=$value place=$count
                count=$((count + 1))
                ;;
        esac
    done < <(tell_gpus 2>/dev/null)
    describe_gpu
}

# Leaves what nvidia-smi says of it; an old driver refuses a question as a whole for one field that it lacks.
describe_gpu() {
    local line name field value
    if ! line=$(ask_gpus -i "$gpu" --query-gpu="$gpu_facts" --format=csv,noheader,nounits 2>/dev/null); then
        line=''
        for field in ${gpu_facts//,/ }; do
            value=$(ask_gpus -i "$gpu" --query-gpu="$field" --format=csv,noheader,nounits 2>/dev/null) ||
                value='[N/A]'
            line+=${line:+, }$value
        done
    fi
    printf '%s\n' "$line" | leave_file gpu.csv || give_up files "$ran cannot be written to"
    name=${line%%,*}
    [[ $(slug_of "$name") == "$gpu_slug" ]] ||
        give_up gpu "$node gave '$name', wanted was $gpu_name: is $gpu_gres the right gres for it?"
    driver=$(cut -d, -f5 <<<"$line")
    driver=${driver// /}
}

# Whether the image's own driver library is to go first: the host's is older than its CUDA needs.
driver_is_old() {
    [[ -n $driver_least && $driver =~ ^[0-9.]+$ ]] || return 1
    [[ $driver != "$driver_least" &&
        $(printf '%s\n%s\n' "$driver" "$driver_least" | sort -V | head -n 1) == "$driver" ]]
}

# Sets image_file, image_id and image_tag, by which an engine knows the image whatever ID it gives it.
read_image() {
    local name value bytes=''
    image_file='' image_id=''
    [[ -r $image_folder/facts ]] || give_up image "$image_folder is not there: has its import failed?"
    while IFS='=' read -r name value; do
        case $name in
            file) image_file=$value ;;
            id) image_id=$value ;;
            bytes) bytes=$value ;;
        esac
    done <"$image_folder/facts"
    image_tag=trtmatrix/slurm:${image_id#sha256:}
    [[ ! -e $image_file || $(stat -L -c %s -- "$image_file") == "$bytes" ]] ||
        give_up image "$image_file has changed since it was imported: remove $image_folder to import it anew"
}

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

stage='the GPU was looked for'
find_gpu
stage='files were copied to the node'
make_local
stage='the image was made available'
image_ready
stage='the container was started'
container_start
stage='cells were run'
while container_running; do
    collect
    pause
done
container_result
exit 0
