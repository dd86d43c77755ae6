"""How a script on a node finds the GPU that Slurm gave its job, as text of bash.

SLURM_JOB_GPUS holds the numbers of the devices, which no cgroup changes; the numbers of nvidia-smi and of
CUDA begin at 0 again where a job sees its own devices alone. So the device is known by its minor number.
"""

from __future__ import annotations

GPU = r"""
# A GPU's name as cells have it: "NVIDIA H200" and "H200" give nvidia-h200.
slug_of() {
    local LC_ALL=C text
    text=$(printf '%s' "$1" | tr '[:upper:]' '[:lower:]' | tr -c -s 'a-z0-9.' '-')
    while [[ $text == [-.]* ]]; do text=${text#?}; done
    while [[ $text == *[-.] ]]; do text=${text%?}; done
    [[ $text == nvidia* || $text == tesla* || $text == quadro* ]] || text=nvidia-$text
    printf '%s' "$text"
}

ask_gpus() { timeout -k 2 25 nvidia-smi "$@"; }

# Sets gpu (what nvidia-smi and the toolkit know it by), minor and place (its number among all of the node's).
find_gpu() {
    local rows number
    rows=$(ask_gpus --query-gpu=index,uuid --format=csv,noheader 2>&1) ||
        give_up gpu "nvidia-smi fails on $node: $rows"
    number=${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-}}
    number=${number%%[,-]*}
    if [[ ${CUDA_VISIBLE_DEVICES:-} == MIG-* ]]; then
        give_up gpu "$node gave a part of a GPU ($CUDA_VISIBLE_DEVICES); the site's gres must name whole ones"
    elif [[ $rows != *$'\n'* ]]; then
        place=${rows%%,*} gpu=${rows##*, }
        minor=${number:-$place}
        know_gpu "$gpu" ''
    elif [[ $number =~ ^[0-9]+$ ]]; then
        place=$number minor=$number gpu=$number
        know_gpu '' "$number"
    else
        give_up gpu "$node has several GPUs and SLURM_JOB_GPUS is empty: does the site's gres ask for one?"
    fi
    describe_gpu
}

# Looks a GPU up by its UUID or its minor number among all that the driver has.
know_gpu() {
    local file name value found_uuid found_minor count=0
    for file in "$proc_gpus"/*/information; do
        [[ -r $file ]] || continue
        found_uuid='' found_minor=''
        while IFS=: read -r name value; do
            value=${value//[[:space:]]/}
            case $name in
                'GPU UUID') found_uuid=$value ;;
                'Device Minor') found_minor=$value ;;
            esac
        done <"$file"
        if [[ -n $1 && $found_uuid == "$1" || -n $2 && $found_minor == "$2" ]]; then
            minor=$found_minor place=$count
            [[ $found_uuid == *\?* || -z $found_uuid ]] || gpu=$found_uuid
        fi
        count=$((count + 1))
    done
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
