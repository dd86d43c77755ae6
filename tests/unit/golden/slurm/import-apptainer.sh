#!/bin/bash
# trtmatrix: the import of nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab. Made by a program: changes are lost.
# shellcheck disable=SC2034,SC2317,SC2329 # traps call functions; not each runtime needs each word

images=/shared/lab/images
scratch=''
image_key=9d0e
reference=nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab
source_file=''
image_ids=(
    sha256:abababababababababababababababababababababababababababababababab
)
image_uris=(
    docker://nvcr.io/nvidia/tensorrt@sha256:abababababababababababababababababababababababababababababababab
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='"nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab"'
file_json='"/shared/lab/images/9d0e/image.sif"'

# (Here stands common-base.sh.)

# (Here stands common-import.sh.)

find_apptainer() {
    apptainer=$(command -v apptainer || command -v singularity) ||
        give_up runtime "neither apptainer nor singularity is there on $node: see the site's setup"
}

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

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
module load apptainer
trap - ERR
check_environment

stage='the image was fetched'
have_image
exit 0
