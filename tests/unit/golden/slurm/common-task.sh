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
    kill "${signs[@]}" 2>/dev/null # not KILL: each ends its own sleep, for which Slurm would wait
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
