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

own_cgroups=/proc/self/cgroup cgroups=/sys/fs/cgroup

image_ready() {
    read_image
    [[ -r $image_file ]] || give_up image "$image_file cannot be read on $node"
}

# What the container's first shell does: it leaves a mark, which tells a probe that failed from a container
# that could not be started; and it forgets what a scheduler, a launcher or a runtime says of this job, by
# which two runs of a cell would differ. It has no more than a shell and env.
# shellcheck disable=SC2016 # it is the shell inside that reads this
first='echo began >"$0"
for name in $(env | while IFS="=" read -r name rest; do
    case $name in
        *[!A-Za-z0-9_]*) ;;
        SLURM* | SRUN_* | SBATCH_* | PMI* | OMPI_* | PRTE_* | APPTAINER* | SINGULARITY*) echo "$name" ;;
    esac
done); do
    unset "$name"
done
exec "$@"'

# Sets inside: what is run in the container.
inside_words() {
    inside=(sh -c "$first" "$out_inside/began" env "${environment[@]}")
    [[ $gpu == GPU-* ]] && inside+=("CUDA_VISIBLE_DEVICES=$gpu") || inside+=("CUDA_VISIBLE_DEVICES=$place")
    driver_is_old && inside+=("$compat")
    inside+=("${probe[@]}")
}

# How many processes of this job the kernel has killed for memory. A cgroup of version 2 counts those below it
# too, one of version 1 its own alone: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html. Where Slurm
# makes none for a job, nobody else's are counted.
oom_kills() {
    local controllers path own='' base='' name count total=0
    while IFS=: read -r _ controllers path; do
        [[ $path == */job_* ]] || continue
        own=${path%%/step_*}
        case ,$controllers, in
            *,memory,*) base=$cgroups/memory$own && break ;;
            ,,) base=$cgroups$own ;;
        esac
    done <"$own_cgroups"
    while read -r name count; do
        [[ $name == oom_kill ]] && total=$((total + count))
    done < <(
        if [[ -r $base/memory.events ]]; then
            cat -- "$base/memory.events"
        elif [[ -n $base ]]; then
            find "$base" -name memory.oom_control -exec cat -- {} +
        fi 2>/dev/null
    )
    echo "$total"
}

# Slurm's own word for it: a step's cgroup is gone when the step is over.
slurm_says_oom() {
    grep -Eiq '^(srun|slurmstepd)[^:]*: (error: )?.*(oom[_-]kill|out of memory|out-of-memory)' "$local/whole"
}

# Runs the words in the background; what they say is kept on the node's disk.
run_child() {
    killed_before=$(oom_kills)
    touch -- "$job_folder/heartbeat"
    "$@" </dev/null >"$local/whole" 2>&1 &
    waiting=$!
}

container_running() { kill -0 "$waiting" 2>/dev/null; }

container_result() {
    wait "$waiting"
    local status=$?
    waiting=''
    tail -n 100 "$local/whole" | tail -c 4000 >"$local/log"
    [[ -e $out/began ]] || give_up runtime "$node cannot start the container: $(tail -c 1000 "$local/log")"
    code=$status
    if (($(oom_kills) > killed_before)) || slurm_says_oom; then oom=1; fi
}

container_remove() {
    [[ -n $local && -s $local/whole && ! -s $local/log ]] && tail -c 4000 "$local/whole" >"$local/log"
    [[ -n $waiting ]] || return 0
    kill -TERM "$waiting" 2>/dev/null
    for _ in {1..50}; do
        kill -0 "$waiting" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$waiting" 2>/dev/null
    waiting=''
}

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
