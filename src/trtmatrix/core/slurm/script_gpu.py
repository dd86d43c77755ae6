"""How a script on a node finds the GPU that Slurm gave its job, as text of bash.

SLURM_JOB_GPUS holds a GPU's place among those that gres.conf lists of the node, which is to be their order
on the bus, as nvidia-smi numbers them; it is not the number of the device file: of
``File=/dev/nvidia[102-103]`` a job is told 0 or 1 (seen of Slurm 22.05.8; why: its
src/plugins/gres/common/gres_common.c). Where a cgroup lets a job see its own devices alone, nvidia-smi
begins at 0 again. So a GPU goes by its UUID as soon as it is known.
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
"""
