image_folder=$images/$image_key
ran=$image_folder.$attempt
new=$images/.$image_key.$attempt.$job
image_file='' image_id='' work=''

leave() {
    local status=$?
    [[ $BASHPID == "$$" ]] || exit 0
    trap '' TERM INT
    trap - EXIT
    [[ -n $waiting ]] && kill "$waiting" 2>/dev/null
    [[ -n $work ]] && rm -rf -- "$work"
    rm -rf -- "$new"
    if [[ -z $trouble && $status != 0 ]]; then
        trouble=$kind detail="the script ended with code $status while: $stage"
    fi
    [[ -s $ran/said ]] && tail -n 100 -- "$ran/said" | tail -c 4000 | leave_file log
    rm -f -- "$ran/said"
    printf '%s\n' "code=$status" "oom=" "trouble=$trouble" "detail=$(told)" "time=$(now)" |
        leave_file ended
    exit "$status"
}

begin() {
    mkdir -p -- "$ran" || exit 1
    trap 'leave' EXIT
    trap 'told_to_end' TERM INT
    printf '%s\n' "job=$job" "task=" "attempt=$attempt" "id=$job" "node=$node" "time=$(now)" |
        leave_file started || exit 1
    if [[ -e $image_folder/facts ]]; then
        echo "trtmatrix: $image_folder is there; nothing to do"
        exit 0
    fi
    # What a killed import left: none lives as long as that.
    find "$images" -mindepth 1 -maxdepth 1 -type d -name '.*' -mmin "+$((minutes + 60))" \
        -exec rm -rf -- {} + 2>/dev/null
    mkdir -p -- "$new" || give_up files "$images cannot be written to"
}

# Sets work, a folder for what comes and goes while an image is made: on the shared folder, which has room for
# images; or on the node's own disk, where the site names one. No import is as old as what is removed there.
make_work() {
    work=$new.work
    if [[ -z $scratch ]]; then
        mkdir -m 700 -- "$work" || give_up files "$images cannot be written to"
        return
    fi
    find_base
    find "$base" -mindepth 1 -maxdepth 1 -user "$(id -u)" -name 'trtmatrix-import.*' \
        -mmin "+$((minutes + 60))" -exec rm -rf -- {} + 2>/dev/null
    work=$(mktemp -d "$base/trtmatrix-import.$job.XXXXXX") ||
        give_up files "no folder can be made in $base on $node: name another by scratch: in the site's file"
}

# An image's own file is as good as its ID, where no other is known.
know_file() {
    [[ -n $image_id ]] && return
    attend sha256sum -- "$1" >"$ran/said" || give_up files "$1 cannot be read"
    image_id=sha256:$(cut -d ' ' -f 1 "$ran/said")
}

# The folder appears whole; another import that was first is as good. $1: the file as it is called by now.
publish_image() {
    local bytes
    bytes=$(stat -L -c %s -- "$1") || give_up files "$1 cannot be read"
    [[ $image_id =~ ^sha256:[0-9a-f]{64}$ ]] || give_up image "$image_id is no ID of an image"
    printf '{"reference": %s, "id": "%s", "file": %s, "bytes": %s}\n' \
        "$reference_json" "$image_id" "$file_json" "$bytes" >"$new/image.json"
    printf '%s\n' "file=$image_file" "id=$image_id" "reference=$reference" "bytes=$bytes" >"$new/facts" ||
        give_up files "$new cannot be written to"
    chmod -R u=rwX,go=rX -- "$new"
    mv -T -- "$new" "$image_folder" 2>"$ran/said" || [[ -e $image_folder/facts ]] ||
        give_up files "$(<"$ran/said")"
}
