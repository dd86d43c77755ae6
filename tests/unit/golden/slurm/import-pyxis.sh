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
    'docker://nvcr.io#nvidia/tensorrt@sha256:abababababababababababababababababababababababababababababababab'
    'docker://nvcr.io#nvidia/tensorrt:sha256:abababababababababababababababababababababababababababababababab'
)
image_config=sha256:abababababababababababababababababababababababababababababababab
minutes=120
warned=60
reference_json='"nvcr.io/nvidia/tensorrt:24.12-py3@sha256:abababababababababababababababababababababababababababababababab"'
file_json='"/shared/lab/images/9d0e/image.sqsh"'

# (Here stands common-base.sh.)

# (Here stands common-import.sh.)

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

begin

kind=setup stage='the lines of setup in the settings of the site were run'
trap 'setup_failed "$?" "$BASH_COMMAND"' ERR
module load pyxis
trap - ERR
check_environment

stage='the image was fetched'
have_image
exit 0
