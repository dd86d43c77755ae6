"""How a task's script runs its container by Docker: as on a single host, from the node's own engine.

The container is created with ``--rm``: where the script is killed, the probe ends by itself for want of a
heartbeat and the engine removes it. What the engine would no longer tell of it is asked of its events.
"""

from __future__ import annotations

from trtmatrix.core.container import (
    LOG_DRIVERS,
    OWNER_LABEL,
    PROJECT_LABEL,
    ROOT,
    Limits,
    container_environment,
    isolation_words,
    limit_words,
)
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.slurm.words import CONTAINER_LABEL

CLUSTER_LABEL = "io.trtmatrix.cluster"
"""The label with the cluster's name: one engine may serve two clusters, which number their jobs alike."""

EMPTIED = ("/tmp", "/dev/shm")  # noqa: S108 - inside the container, file systems of its own


def bind(outside: str, inside: str, *, read_only: bool = False) -> str:
    """Return the option that shows a container a folder of the node.

    Unlike ``--volume``, which makes an empty folder of root's in its place, it fails where the engine does
    not see the folder: https://docs.docker.com/engine/storage/bind-mounts/.
    """
    return f"--mount=type=bind,source={outside},target={inside}{',readonly' if read_only else ''}"


def create_words(
    version: str, limits: Limits, access: GpuAccess, mounts: dict[str, str], driver_folder: str
) -> list[str]:
    """Return the words of ``docker create`` that are known before the job runs. ``mounts``: read-only."""
    words = ["--rm", *isolation_words()]
    words += limit_words(limits, {"fsize": limits.file}, LOG_DRIVERS["docker"])
    labels = {PROJECT_LABEL: "1", OWNER_LABEL: "slurm", f"{PROJECT_LABEL}.version": version}
    words += [f"--label={name}={value}" for name, value in labels.items()]
    environment = container_environment(toolkit=access is GpuAccess.TOOLKIT)
    words += [f"--env={name}={value}" for name, value in environment.items()]
    if access is GpuAccess.NODES and driver_folder:
        mounts = {**mounts, driver_folder: "/usr/local/nvidia"}
    return [*words, *(bind(host, inside, read_only=True) for host, inside in mounts.items())]


DOCKER = rf"""
unstarted_seconds=600

image_ready() {{
    read_image
    local lock said
    docker version >/dev/null 2>"$local/said" ||
        give_up runtime "Docker does not answer on $node: $(<"$local/said")"
    find_image && return
    # Two tasks of one node load an image once. On the shared folder, since /tmp may be private to a job.
    exec {{lock}}>>"$image_folder/loading.$node" && attend flock "$lock"
    if ! find_image; then
        [[ -r $image_file ]] || give_up image "$image_file cannot be read on $node"
        attend docker load --input "$image_file" >"$local/said" 2>&1 ||
            give_up image "$node cannot load $image_file: $(tail -c 500 "$local/said")"
        # An engine that keeps its images in another way knows the same one by another ID.
        said=$(sed -n 's/^Loaded image\( ID\)\{{0,1\}}: //p' "$local/said" | tail -n 1)
        find_image || docker tag "$said" "$image_tag" 2>/dev/null
        find_image || give_up image "$image_file was loaded on $node, and $image_id is not there"
    fi
    exec {{lock}}>&-
}}

find_image() {{
    local name
    for name in "$image_id" "$image_tag"; do
        image=$(docker image inspect --format '{{{{.Id}}}}' "$name" 2>/dev/null) && return 0
    done
    return 1
}}

container_start() {{
    local words=("${{create_words[@]}}") user
    user=$(id -u):$(id -g)
    docker info --format '{{{{.SecurityOptions}}}}' 2>/dev/null | grep -q name=rootless && user=0:0
    words+=("--user=$user" "--name=$container_name.$job" "--label={CONTAINER_LABEL}=$job")
    words+=("--label={CLUSTER_LABEL}=${{SLURM_CLUSTER_NAME:-}}")
    words+=("{bind("$job_folder", f"{ROOT}/job", read_only=True)}" "{bind("$out", f"{ROOT}/out")}")
    driver_is_old && words+=("--env=$compat")
    give_gpu
    remove_unstarted
    container=$container_name.$job
    attend docker create "${{words[@]}}" "${{gpu_words[@]}}" "--entrypoint=${{probe[0]}}" \
        "$image" "${{probe[@]:1}}" >"$local/said" 2>&1 ||
        not_made
    touch -- "$job_folder/heartbeat"
    started_at=$(date +%s)
    docker start --attach "$container" 2>&1 </dev/null | tail -c 65536 >"$local/whole" &
    waiting=$!
}}

# One whose script was killed before it was started would stay for ever: no heartbeat ends it, nor --rm.
remove_unstarted() {{
    local one made
    for one in $(timeout -k 2 25 docker ps --all --quiet --filter status=created \
        --filter "label={CONTAINER_LABEL}" --filter "label={CLUSTER_LABEL}=${{SLURM_CLUSTER_NAME:-}}"); do
        made=$(docker inspect --format '{{{{.Created}}}}' "$one" 2>/dev/null) || continue
        (($(date +%s) - $(date -d "$made" +%s) > unstarted_seconds)) &&
            timeout -k 2 25 docker rm --force --volumes "$one" >/dev/null 2>&1
    done
}}

# An engine finds a folder by its own eyes: those of the node, and of the time when it was started.
not_made() {{
    local said unseen='bind source path does not exist: ' path
    said=$(tail -c 1000 "$local/said")
    path=${{said#*"$unseen"}} path=${{path%%$'\n'*}} path=${{path%.}}
    if [[ $said == *"$unseen$local"* ]]; then
        give_up files "Docker on $node does not see $local, which this job made: is ${{local%/*}} private to \
a job (job_container/tmpfs)? Name a folder of the node's own disk by scratch: in the site's file"
    elif [[ $said == *"$unseen"* && -e $path ]]; then
        give_up files "Docker on $node does not see $path, which this job sees: was it mounted later?"
    fi
    give_up runtime "$node cannot make the container: $said"
}}

give_gpu() {{
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
}}

container_running() {{ kill -0 "$waiting" 2>/dev/null; }}

container_result() {{
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
        --filter "container=$container" --format '{{{{.Action}}}} {{{{.Actor.Attributes.exitCode}}}}')
    [[ -n $code ]] || give_up runtime "$node cannot start the container: $(tail -c 1000 "$local/log")"
}}

# Also where a creation was cut off: by name. Nothing is left once this has come back.
container_remove() {{
    [[ -n $container ]] || return 0
    timeout -k 2 25 docker rm --force --volumes "$container" >/dev/null 2>&1
    if [[ -n $local && -s $local/whole && ! -s $local/log ]]; then
        tail -n 100 "$local/whole" | tail -c 4000 >"$local/log"
    fi
}}
"""

IMPORT = r"""
have_image() {
    local name=$reference id
    docker version >/dev/null 2>"$ran/said" ||
        give_up runtime "Docker does not answer on $node: $(<"$ran/said")"
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        attend docker load --input "$source_file" >"$ran/said" 2>&1 ||
            give_up image "$node cannot load $source_file: $(tail -c 500 "$ran/said")"
        name=$(sed -n 's/^Loaded image\( ID\)\{0,1\}: //p' "$ran/said" | tail -n 1)
    else
        for id in "${image_ids[@]}" "$reference"; do
            [[ -n $id ]] && docker image inspect "$id" >/dev/null 2>&1 && name=$id && break
        done
        if [[ $name == "$reference" ]] && ! docker image inspect "$reference" >/dev/null 2>&1; then
            attend docker pull "$reference" >"$ran/said" 2>&1 ||
                give_up image "$node cannot pull $reference: $(tail -c 1000 "$ran/said")"
        fi
    fi
    image_id=$(docker image inspect --format '{{.Id}}' "$name" 2>"$ran/said") ||
        give_up image "$node has no image $name: $(<"$ran/said")"
    if [[ -n ${image_ids[0]} ]]; then
        local known=''
        for id in "${image_ids[@]}"; do [[ $id == "$image_id" ]] && known=1; done
        [[ -n $known ]] || give_up image "$name is $image_id on $node, not the image of matrix.lock"
    fi
    docker tag "$image_id" "trtmatrix/slurm:${image_id#sha256:}"
    if [[ -n $source_file ]]; then
        image_file=$source_file
        publish_image "$source_file"
        return
    fi
    image_file=$image_folder/image.tar
    attend docker save --output "$new/image.tar" "trtmatrix/slurm:${image_id#sha256:}" 2>"$ran/said" ||
        give_up files "$node cannot save the image below $images: $(tail -c 500 "$ran/said")"
    publish_image "$new/image.tar"
}
"""
