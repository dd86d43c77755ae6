"""How a task's script runs its container by Apptainer (or SingularityCE, whose options are the same).

Not run by us: no site of ours has it. Options: https://apptainer.org/docs/user/main/cli/apptainer_exec.html.
``--nv`` gives the container all GPUs that the job may see; which of them is the job's, CUDA is told.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtmatrix.core.container import ROOT, SCRATCH

EMPTIED = (SCRATCH,)
"""A folder of the node that is ours, put where the container's scratch is."""


def exec_words(mounts: Mapping[str, str]) -> list[str]:
    """Return the words of ``apptainer exec`` that are known before the job runs."""
    words = ["exec", "--containall", "--cleanenv", "--no-home", "--no-privs", "--nv", f"--pwd={SCRATCH}"]
    return [*words, *(f"--bind={host}:{inside}:ro" for host, inside in mounts.items())]


FIND = r"""
find_apptainer() {
    apptainer=$(command -v apptainer || command -v singularity) ||
        give_up runtime "neither apptainer nor singularity is there on $node: see the site's setup"
}
"""

APPTAINER = (
    FIND
    + rf"""
out_inside={ROOT}/out

# What a profile, a module or a user has set for other containers is nothing for these: each option may be
# given as a variable too, and what begins with APPTAINERENV_ is set inside in spite of --cleanenv. What says
# how and where an image is opened stays. Names: https://apptainer.org/docs/user/main/appendix.html.
forget_settings() {{
    local name
    for name in "${{!APPTAINER@}}" "${{!SINGULARITY@}}"; do
        case $name in
            *_CACHEDIR | *_TMPDIR | *_CONFIGDIR | *_UNSQUASH | *_USERNS) ;;
            *) unset "$name" ;;
        esac
    done
}}

container_start() {{
    local words=("${{exec_words[@]}}") alone
    find_apptainer
    forget_settings
    # /etc/localtime and /etc/hosts are the least of what a site binds into every container.
    attend "$apptainer" exec --help >"$local/help" 2>&1
    grep -q bind-paths "$local/help" && words+=(--no-mount=bind-paths)
    words+=("--bind=$job_folder:{ROOT}/job:ro" "--bind=$out:{ROOT}/out" "--bind=$local/scratch:{SCRATCH}")
    # Some installations give no user a network namespace, not even an empty one.
    alone=("${{words[@]}}" --net --network=none)
    if attend "$apptainer" "${{alone[@]}}" "$image_file" true >"$local/whole" 2>&1; then
        words=("${{alone[@]}}")
    else
        echo "trtmatrix: the network cannot be taken away here: $(tail -n 1 "$local/whole")"
    fi
    inside_words
    run_child "$apptainer" "${{words[@]}}" "$image_file" "${{inside[@]}}"
}}
"""
)

IMPORT = (
    FIND
    + r"""
# Layers and what is unpacked of them are several times as large as the image: no home folder holds that,
# where the cache is unless it is told otherwise, and seldom a /tmp.
# Source: https://apptainer.org/docs/user/main/build_env.html
settle_apptainer() {
    local name other
    make_work
    for name in CACHEDIR TMPDIR; do
        other=SINGULARITY_$name name=APPTAINER_$name
        [[ -z ${!name:-} && -z ${!other:-} ]] || continue
        mkdir -m 700 -- "$work/$name" && export "$name=$work/$name" "$other=$work/$name"
    done
}

have_image() {
    image_id=$image_config
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        image_file=$source_file
        know_file "$source_file"
        publish_image "$source_file"
        return
    fi
    find_apptainer
    settle_apptainer
    attend "$apptainer" pull "$new/image.sif" "${image_uris[0]}" >"$ran/said" 2>&1 ||
        give_up image "$node cannot pull ${image_uris[0]}: $(tail -c 1000 "$ran/said")"
    image_file=$image_folder/image.sif
    know_file "$new/image.sif"
    publish_image "$new/image.sif"
}
"""
)


def apptainer_uri(reference: str) -> str:
    """Return an image's name as Apptainer has it: a digest takes the tag's place, both are refused."""
    name, at, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    return f"docker://{head}{slash}{last.partition(':')[0]}@{digest}" if at else f"docker://{reference}"
