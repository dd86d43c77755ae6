"""What a task's script does whatever starts its container, as text of bash.

The functions ``image_ready``, ``container_start``, ``container_running``, ``container_result`` and
``container_remove`` are each runtime's own.
"""

from __future__ import annotations

from trtmatrix.core.slurm.layout import GONE, OVER, STOPPING, ran_folder, said_file, try_folder

_ATTEMPT = ("$array_folder", "$task", "$attempt")
FOLDERS = rf"""
task=${{SLURM_ARRAY_TASK_ID:?this is the script of an array of Slurm}}
array=${{SLURM_ARRAY_JOB_ID:-$job}}
try={try_folder(*_ATTEMPT)}
final={ran_folder(*_ATTEMPT)}
ran=$final.$job
said={said_file(*_ATTEMPT, "$array")}
proc_gpus=/proc/driver/nvidia/gpus
code='' oom='' local='' container='' next=0 told_start=-1
signs=()
"""

UNWANTED = rf"""
# A job that comes too late runs nothing: the array was cancelled or closed, or this attempt given up.
end_if_unwanted() {{
    local mark
    for mark in "$array_folder/{STOPPING}" "$array_folder/{OVER}" "$try/{GONE}"; do
        if [[ -e $mark ]]; then
            echo "trtmatrix: task $task is not wanted any more: $mark; nothing to do"
            exit 0
        fi
    done
}}
"""

BEGIN = r"""
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
"""

SIGNS = r"""
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
"""

END = r"""
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
"""

WORK = r"""
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
"""

MAIN = r"""
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
"""

PARTS = (FOLDERS, UNWANTED, BEGIN, SIGNS, END, WORK)
"""What is defined before ``MAIN``, in order."""
