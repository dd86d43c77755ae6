"""Stand-ins for srun with pyxis, enroot and Apptainer, which no host of ours has: they run the probe by hand.

They are fakes, and show what a fake can: that the scripts' words are ones that the real commands have, and
that all of a job's life works over a container that is a process of the job's own. What the real ones do with
these words was not seen. The names of options are from ``srun --help`` of pyxis 0.20 and ``apptainer exec
--help`` of 1.3 as their documentation has them.
"""

from __future__ import annotations

import sys

INSIDE = """\
import os, subprocess, sys
ROOT = "/opt/trtmatrix"

def run(mounts, command):
    '''Run a command with the paths outside in place of those inside, in the environment that it sets.'''
    def outside(word):
        for place, folder in mounts.items():
            if word.partition("=")[2].startswith(place + "/") or word.startswith(place + "/"):
                return word.replace(place, folder, 1)
            if word == place or word.endswith("=" + place):
                return word.replace(place, folder, 1)
        return word
    assert {{f"{{ROOT}}/{{name}}" for name in ("trtprobe", "repros", "cases", "job", "out")}} <= set(mounts)
    # The probe empties /tmp inside: here that must be the folder that would lie there, or nothing runs.
    scratch = os.path.join(mounts[ROOT + "/job"], "scratch")
    assert open(scratch).read() == "/tmp\\n" and os.path.realpath(mounts["/tmp"]) != "/tmp"
    assert os.path.basename(mounts["/tmp"]) == "scratch" and os.listdir(mounts["/tmp"]) == []
    open(scratch, "w").write(mounts["/tmp"])
    command = [outside(word) if word.startswith(("/opt/", "--")) else word for word in command]
    command = [{python!r} if word == "python3" else word for word in command]
    os.environ.update(SLURM_STEP_ID="0", PMIX_RANK="0", APPTAINER_CONTAINER="/image", PMI_TEXT="a\\nPMI_X=1")
    command = [word for word in command if not word.startswith(("HOME=", "TMPDIR=", "XDG_"))]
    os.execvp(command[0], command)
"""

SRUN = (
    "#!{python}\n"
    + INSIDE
    + """
KNOWN = {{"--nodes", "--ntasks", "--mpi", "--input", "--export", "--cpus-per-task", "--container-image",
    "--container-mounts", "--container-workdir", "--container-env", "--container-readonly",
    "--no-container-mount-home", "--no-container-remap-root", "--no-container-entrypoint"}}
words = sys.argv[1:]
options = {{}}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    assert name in KNOWN, name
    options[name] = value
assert os.path.isfile(options["--container-image"]), options
if "broken" in open(options["--container-image"]).read():
    sys.exit("slurmstepd: error: pyxis: couldn't start container")
if "greedy" in open(options["--container-image"]).read():
    print("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks")
    sys.stdout.flush()
assert "NVIDIA_VISIBLE_DEVICES" in options["--export"].split(",") and os.environ["NVIDIA_VISIBLE_DEVICES"]
mounts, flags = {{}}, {{}}
for entry in options["--container-mounts"].split(","):
    source, place, *flag = entry.split(":")
    mounts[place], flags[place] = source, flag
assert flags[ROOT + "/out"] == flags["/tmp"] == []
assert flags[ROOT + "/cases"] == flags[ROOT + "/job"] == ["ro"]
run(mounts, words)
"""
)

APPTAINER = (
    "#!{python}\n"
    + INSIDE
    + """
import hashlib
if sys.argv[1:] == ["exec", "--help"]:
    sys.exit(0 if os.environ.get("OLD") else print("--no-mount strings  ... or 'bind-paths' to disable all"))
if sys.argv[1] == "pull":
    _, _, file, uri = sys.argv
    for name in ("CACHEDIR", "TMPDIR"):
        open(os.path.join(os.environ["APPTAINER_" + name], "layer"), "w").write("x" * 9999)
        print(name, os.environ["APPTAINER_" + name], file=open(sys.argv[0] + ".told", "a"))
    assert uri.startswith("docker://")
    if "nosuch" in uri:
        sys.exit("FATAL: While making image from oci registry: 404")
    open(file, "w").write(uri)
    sys.exit()
KNOWN = {{"--containall", "--cleanenv", "--no-home", "--no-privs", "--nv", "--pwd", "--bind", "--net",
    "--network", "--no-mount"}}
set_for_others = [name for name in os.environ if name.startswith(("APPTAINER", "SINGULARITY"))]
assert set(set_for_others) <= {{"APPTAINER_TMPDIR"}}, set_for_others
assert ("--no-mount=bind-paths" in sys.argv) != bool(os.environ.get("OLD"))
words, mounts = sys.argv[2:], {{}}
assert sys.argv[1] == "exec"
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    assert name in KNOWN, name
    if name == "--net" and os.environ.get("NO_NET"):
        sys.exit("FATAL: network requires root or fakeroot")
    if name == "--bind":
        source, place, *flag = value.split(":")
        mounts[place] = source
image = words.pop(0)
if "broken" in open(image).read():
    sys.exit("FATAL: could not open image")
if words == ["true"]:
    sys.exit()
run(mounts, words)
"""
)

ENROOT = """\
#!{python}
import os, sys
_, command, output, file, uri = sys.argv
with open(sys.argv[0] + ".told", "w") as told:
    for name in ("CACHE", "TEMP", "DATA", "RUNTIME"):
        folder = os.environ.get("ENROOT_" + name + "_PATH", "")
        print(name, folder, file=told)
        if folder:
            open(os.path.join(folder, "layer"), "w").write("x" * 9999)
assert (command, output) == ("import", "--output")
if "@" in uri:
    sys.exit("[ERROR] Invalid image reference: " + uri)
if "nosuch" in uri:
    sys.exit("[ERROR] URL https://... returned error code: 404 Not Found")
open(file, "w").write(uri)
"""


def written(text: str) -> str:
    """Return a stand-in's text for this Python."""
    return text.format(python=sys.executable)
