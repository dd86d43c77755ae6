"""How a task's script runs its container by pyxis, NVIDIA's plugin of srun, and has images by enroot.

Not run by us: no site of ours has it. Options: ``srun --help`` of pyxis 0.20 and
https://github.com/NVIDIA/pyxis/wiki/Usage; forms of an image's name:
https://github.com/NVIDIA/enroot/blob/master/doc/cmd/import.md.
There is no network or process namespace, no limit on processes, and the image's folders cannot be written to.
"""

from __future__ import annotations

from trtmatrix.core.container import ROOT, SCRATCH

EMPTIED = (SCRATCH,)
"""A folder of the node that is ours; /dev/shm is everybody's there."""


def srun_words() -> list[str]:
    """Return the words of srun that are known before the job runs."""
    return [
        "srun", "--nodes=1", "--ntasks=1", "--mpi=none", "--input=none", "--container-readonly",
        "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint",
        f"--container-workdir={SCRATCH}",
    ]  # fmt: skip


PYXIS = rf"""
out_inside={ROOT}/out

container_start() {{
    local words=("${{srun_words[@]}}") mounts=$read_only_mounts names=HOME,USER,LOGNAME,PATH,LANG
    mounts+=",$job_folder:{ROOT}/job:ro,$out:{ROOT}/out,$local/scratch:{SCRATCH}"
    # All that srun exports is set inside: no more than what gives the container its GPU, and what pyxis
    # passes on to enroot; for the rest that has the node's settings.
    [[ -n ${{ENROOT_CONFIG_PATH:-}} ]] && names+=,ENROOT_CONFIG_PATH
    export NVIDIA_VISIBLE_DEVICES=$gpu NVIDIA_DRIVER_CAPABILITIES=compute,utility
    words+=("--export=$names,NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES")
    words+=("--container-env=NVIDIA_VISIBLE_DEVICES,NVIDIA_DRIVER_CAPABILITIES")
    # Since 22.05 srun does not take this from the job: https://slurm.schedmd.com/srun.html
    words+=("--cpus-per-task=${{SLURM_CPUS_PER_TASK:-1}}")
    words+=("--container-image=$image_file" "--container-mounts=$mounts")
    inside_words
    run_child "${{words[@]}}" "${{inside[@]}}"
}}
"""

IMPORT = r"""
# Layers and what is unpacked of them are several times as large as the image: no home folder holds that, and
# seldom a /tmp. What the site's own enroot.conf says counts: the environment would go before it.
# Names and defaults: https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md
settle_enroot() {
    local name where=${ENROOT_SYSCONF_PATH:-/etc/enroot}
    make_work
    for name in CACHE TEMP DATA RUNTIME; do
        name=ENROOT_${name}_PATH
        [[ -n ${!name:-} ]] && continue
        cat -- "$where"/enroot.conf "$where"/enroot.conf.d/*.conf 2>/dev/null |
            grep -Eq "^[[:space:]]*${name}[[:space:]=]" && continue
        mkdir -m 700 -- "$work/$name" && export "$name=$work/$name"
    done
}

have_image() {
    local uri
    image_id=$image_config
    if [[ -n $source_file ]]; then
        [[ -r $source_file ]] || give_up image "$source_file cannot be read on $node"
        image_file=$source_file
        know_file "$source_file"
        publish_image "$source_file"
        return
    fi
    command -v enroot >/dev/null || give_up runtime "enroot is not there on $node: see the site's setup"
    settle_enroot
    for uri in "${image_uris[@]}"; do
        attend enroot import --output "$new/image.sqsh" "$uri" >"$ran/said" 2>&1 && break
        # Releases differ in how they write a digest.
        grep -q 'Invalid image reference' "$ran/said" || break
    done
    [[ -s $new/image.sqsh ]] || give_up image "$node cannot import $uri: $(tail -c 1000 "$ran/said")"
    image_file=$image_folder/image.sqsh
    know_file "$new/image.sqsh"
    publish_image "$new/image.sqsh"
}
"""


def enroot_uris(reference: str) -> tuple[str, ...]:
    """Return the ways in which releases of enroot write an image's name; the first that is understood is had.

    Where there is a digest it alone counts: enroot 4 writes it after ``@``, 3.4 to 3.5 in the tag's place.
    """
    name, _, digest = reference.partition("@")
    first, slash, rest = name.partition("/")
    has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    registry, path = (f"{first}#", rest) if has_registry else ("", name)
    if not digest:
        return (f"docker://{registry}{path}",)
    plain = path.partition(":")[0]
    return (f"docker://{registry}{plain}@{digest}", f"docker://{registry}{plain}:{digest}")
