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
