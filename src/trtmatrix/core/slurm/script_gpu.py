"""How a script on a node finds the GPU that Slurm gave its job, as text of bash.

SLURM_JOB_GPUS holds the numbers of the devices, which no cgroup changes; the numbers of nvidia-smi and of
CUDA begin at 0 again where a job sees its own devices alone. So the device is known by its minor number.
"""

from __future__ import annotations

GPU = r"""
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

# What the driver says of every GPU, in the order of their places on the bus; UUID and minor number are in it.
# Its own files tell of all of them, nvidia-smi of those that the job may see.
tell_gpus() {
    local file told=''
    for file in "$proc_gpus"/*/information; do
        [[ -r $file ]] && cat -- "$file" && told=1
    done
    [[ -n $told ]] || ask_gpus -q
}

# Sets gpu (what nvidia-smi and the toolkit know it by), minor and place (its number among all of the node's).
find_gpu() {
    local rows number name value uuid='' count=0
    rows=$(ask_gpus --query-gpu=index,uuid --format=csv,noheader 2>&1) ||
        give_up gpu "nvidia-smi fails on $node: $rows"
    number=${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-}}
    number=${number%%[,-]*}
    if [[ ${CUDA_VISIBLE_DEVICES:-} == MIG-* ]]; then
        give_up gpu "$node gave a part of a GPU ($CUDA_VISIBLE_DEVICES); the site's gres must name whole ones"
    elif [[ $rows != *$'\n'* ]]; then
        place=${rows%%,*} gpu=${rows##*, }
        minor=${number:-$place}
    elif [[ $number =~ ^[0-9]+$ ]]; then
        place=$number minor=$number gpu=$number
    else
        give_up gpu "$node has several GPUs and SLURM_JOB_GPUS is empty: does the site's gres ask for one?"
    fi
    while IFS=: read -r name value; do
        value=${value//[[:space:]]/}
        case ${name#"${name%%[![:space:]]*}"} in
            'GPU UUID'*) uuid=$value ;;
            'Device Minor'* | 'Minor Number'*)
                if [[ $uuid == "$gpu" || ($gpu == "$number" && $value == "$number") ]]; then
                    minor=$value place=$count
                    [[ $uuid == GPU-*[0-9a-f] ]] && gpu=$uuid
                fi
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
"""
