job=${SLURM_JOB_ID:?this is the script of a job of Slurm}
attempt=${1:?usage: sbatch … SCRIPT ATTEMPT}
node=${SLURMD_NODENAME:-$(hostname)}
began=$(date +%s)
time_over=${SLURM_JOB_END_TIME:-$((began + 60 * minutes))}
trouble='' detail='' waiting='' pausing='' ran='' said='' kind=runtime
stage='the script began'

now() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# One line, whatever a message holds.
plain() {
    local text=${1//[$'\n\r']/ }
    printf '%s' "${text:0:2000}"
}

# A file of ours is whole or not there: it is written under another name, on the same file system.
leave_file() {
    cat >"$ran/.$1" && mv -f -T -- "$ran/.$1" "$ran/$1"
}

# Says what kept the script from its work, and ends.
give_up() {
    trouble=$1 detail=$2
    echo "trtmatrix: $trouble: $detail" >&2
    exit 1
}

# What a line of setup comes to counts, not what happens within a file that it reads. Such a failure is told,
# since what follows runs in another environment than the site's: without its modules, or with another PATH.
setup_failed() {
    ((${#BASH_SOURCE[@]} > 2)) && return
    give_up setup "a line of setup failed on $node with code $1: $2 (where it may fail: add || true)"
}

# Because of --export=NONE the node makes the environment, that of a login, and says little where it cannot:
# a job then has Slurm's own variables alone.
check_environment() {
    kind=runtime
    [[ -n ${HOME:-} ]] || give_up setup \
        "$node gave the job no environment of a login: HOME is empty; does 'su - $(id -un)' work there?"
}

# Sets base: where a job's own files lie on its node. Variables in what the site names are the job's.
find_base() {
    local name
    base=${scratch:-${SLURM_TMPDIR:-${TMPDIR:-/tmp}}}
    while [[ $base =~ \$(\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*)) ]]; do
        name=${BASH_REMATCH[2]}${BASH_REMATCH[3]}
        [[ -n ${!name:-} && ${!name} != *[$]* ]] ||
            give_up setup "scratch: $scratch: $name is not set on $node"
        base=${base/"${BASH_REMATCH[0]}"/"${!name}"}
    done
    [[ $base == /* && $base != *[,:\"]* ]] ||
        give_up files "$base on $node is no folder that a container can be given: name one by scratch:"
}

# One line for the file that tells how it ended; last, where the rest of what was said lies.
told() { printf '%s' "$(plain "$detail")${trouble:+${said:+; see $said}}"; }

# Slurm sends TERM when the job is cancelled or preempted, and because of --signal before its time is over.
# That one may come a minute early: https://slurm.schedmd.com/sbatch.html#OPT_signal
told_to_end() {
    [[ $BASHPID == "$$" ]] || exit 0 # a child that has just been made still has the script's traps
    trap '' TERM INT
    trouble=cancelled detail="told to end while: $stage"
    if (($(date +%s) >= time_over - warned - 65)); then
        trouble='time' detail="the time limit of $minutes minutes came while: $stage"
    fi
    exit 143
}

# Runs a command that may take long, such that TERM is obeyed at once: bash waits for one in the foreground.
attend() {
    "$@" &
    waiting=$!
    wait "$waiting"
    local status=$?
    waiting=''
    return "$status"
}

pause() {
    sleep 0.5 &
    pausing=$!
    wait "$pausing"
    pausing=''
}
