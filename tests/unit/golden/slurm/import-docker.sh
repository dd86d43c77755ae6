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
    nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='"nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab"'
file_json='"/shared/lab/images/9d0e/image.tar"'

# (Here stands common-base.sh.)

# (Here stands common-import.sh.)

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

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
trap - ERR
check_environment

stage='the image was fetched'
have_image
exit 0
