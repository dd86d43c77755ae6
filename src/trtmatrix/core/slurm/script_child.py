"""What pyxis and Apptainer have in common: the container is a process of the job's own, as text of bash.

So the job's limits are the container's (``--mem``, where the site's cgroups hold jobs to it), and Slurm ends
it with the job. What the image's environment is to be told goes through ``env`` inside: neither lets HOME be
set from outside, and pyxis has the image's own variables win over the caller's.
"""

from __future__ import annotations

CHILD = r"""
image_ready() {
    read_image
    [[ -r $image_file ]] || give_up image "$image_file cannot be read on $node"
}

# Sets inside: what is run in the container. It leaves a mark first, which tells a probe that failed from a
# container that could not be started.
inside_words() {
    # shellcheck disable=SC2016 # it is the shell inside that reads this
    inside=(sh -c 'echo began >"$0" && exec "$@"' "$out_inside/began" env "${environment[@]}")
    [[ $gpu == GPU-* ]] && inside+=("CUDA_VISIBLE_DEVICES=$gpu") || inside+=("CUDA_VISIBLE_DEVICES=$place")
    driver_is_old && inside+=("$compat")
    inside+=("${probe[@]}")
}

# How many processes of this job the kernel has killed for memory: of cgroups of version 2, else 1.
oom_kills() {
    local path file
    path=$(sed -n -e 's/^0:://p' -e 's/^[0-9]*:memory://p' /proc/self/cgroup | tail -n 1)
    path=${path%%/step_*}
    for file in "/sys/fs/cgroup$path/memory.events" "/sys/fs/cgroup/memory$path/memory.oom_control"; do
        [[ -r $file ]] && sed -n 's/^oom_kill //p' "$file" && return
    done
    echo 0
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
    (($(oom_kills) > killed_before)) && oom=1
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
"""
