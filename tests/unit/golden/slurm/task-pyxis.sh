#!/bin/bash
# trtmatrix: the tasks of array 5f1c2a, version 10.7.0. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

# (Here stands common-task-told.sh.)
srun_words=(
    srun
    --nodes=1
    --ntasks=1
    --mpi=none
    --input=none
    --container-readonly
    --no-container-mount-home
    --no-container-remap-root
    --no-container-entrypoint
    --container-workdir=/tmp
)
read_only_mounts='/shared/lab/suite/77aa/trtprobe:/opt/trtmatrix/trtprobe:ro,/shared/lab/suite/77aa/repros:/opt/trtmatrix/repros:ro,/shared/lab/cases:/opt/trtmatrix/cases:ro'
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

# (Here stands common-base.sh.)

# (Here stands common-task.sh.)

# (Here stands common-child.sh.)

out_inside=/opt/trtmatrix/out

container_start() {
    local words=("${srun_words[@]}") mounts=$read_only_mounts names=HOME,USER,LOGNAME,PATH,LANG
    mounts+=",$job_folder:/opt/trtmatrix/job:ro,$out:/opt/trtmatrix/out,$local/scratch:/tmp"
    # All that srun exports is set inside: no more than what gives the container its GPU, and what pyxis
    # passes on to enroot; for the rest that has the node's settings.
    [[ -n ${ENROOT_CONFIG_PATH:-} ]] && names+=,ENROOT_CONFIG_PATH
    export NVIDIA_VISIBLE_DEVICES=$gpu NVIDIA_DRIVER_CAPABILITIES=compute,utility
    words+=("--export=$names,NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES")
    words+=("--container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES")
    # Since 22.05 srun does not take this from the job: https://slurm.schedmd.com/srun.html
    words+=("--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}")
    words+=("--container-image=$image_file" "--container-mounts=$mounts")
    inside_words
    run_child "${words[@]}" "${inside[@]}"
}

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
module load pyxis
trap - ERR
check_environment

# (Here stands common-task-main.sh.)
