"""Stand-ins for apptainer, for srun with pyxis and for enroot, which no host of ours has; and for NVML.

They are fakes: they refuse options that the documents of the real ones do not have, and run the rest in a
real container of Docker with the same mounts, so paths, read-only folders and the first shell are real. What
the real commands do with these words was not seen. NVML is a pynvml.py of ours, which tells of as many GPUs
as FAKE_GPUS says, beside a libnvidia-ml.so.1 that is any library; inside are the probe tests' stand-ins.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.probe.jobs import make_driver
from tests.slurm.image import IMAGE

COMMON = """\
#!{python} -IS
import os, sys, time
here, words = os.path.dirname(sys.argv[0]), sys.argv[1:]

def tell(*words):
    print(*words, file=open(os.path.join(here, "told"), "a"))

def options(known, flags):
    while words[0].startswith("--"):
        name, _, value = words.pop(0).partition("=")
        assert name in (known if value else flags).split(), name
        yield name, value

def run(mounts, image, isolated):
    if "broken" in open(image).read():
        sys.exit("FATAL: this image cannot be opened")
    if words == ["true"]:
        sys.exit()
    writable = [m.split(":")[1] for m in mounts if not m.endswith(":ro")]
    assert writable == ["/opt/trtmatrix/out", "/tmp"], mounts
    docker = ["docker", "run", "--rm", "--init", "--read-only", "--entrypoint=", "--workdir=/tmp"]
    docker += [f"--network={{'none' if isolated else 'host'}}", f"--user={{os.getuid()}}:{{os.getgid()}}"]
    docker += ["--env=SLURM_STEP_ID=0", "--env=APPTAINER_NAME=i", f"--label=io.trtmatrix.standin={{here}}"]
    del os.environ["DOCKER_HOST"]  # of no use to whom we stand for
    os.execvp("docker", [*docker, *(f"--volume={{mount}}" for mount in mounts), {image!r}, *words])

def pull(file, uri, *names):
    tell("pull", uri, *(os.environ[name] for name in names))
    for name in names:
        open(os.path.join(os.environ[name], "layer"), "w").write("x" * 999)
    time.sleep(1)
    open(file, "w").write(uri)
    sys.exit("FATAL: manifest unknown" if "nosuch" in uri else 0)
"""

APPTAINER = """
if words == ["--version"]:
    sys.exit(print("apptainer version 1.3.4"))
if words == ["exec", "--help"]:
    sys.exit(print("--no-mount strings  ... or 'bind-paths' to disable all bind path entries"))
if words[0] == "pull":
    pull(*words[1:], "APPTAINER_CACHEDIR", "APPTAINER_TMPDIR")
assert words.pop(0) == "exec" and not [n for n in os.environ if n.startswith(("APPTAINER", "SINGULARITY"))]
found = list(options("--pwd --bind --network --no-mount --memory --pids-limit",
    "--containall --cleanenv --no-home --no-privs --nv --net"))
names, image = [name for name, _ in found], words.pop(0)
assert {"--containall", "--cleanenv", "--no-home", "--no-privs"} < set(names), names
assert ("--no-mount", "bind-paths") in found and ("--nv" in names or words == ["true"]), names
if "--net" in names and os.environ.get("NO_NET"):
    sys.exit("FATAL: this takes root")
if "--memory" in names:
    sys.exit("FATAL: no cgroups")
run([value for name, value in found if name == "--bind"], image, ("--network", "none") in found)
"""

SRUN = """
if words == ["--help"]:
    sys.exit(print("--container-image=... [pyxis]" + os.environ.get("NEWER", "")))
flags = "--overlap --container-readonly --no-container-mount-home --no-container-remap-root " \\
    "--no-container-entrypoint"
found = dict(options("--nodes --ntasks --mpi --input --export --cpus-per-task --nodelist --container-image "
    "--container-mounts --container-workdir --container-env --container-unshare", flags))
assert set(flags.split()) < set(found) and not [n for n in os.environ if n.startswith("PYXIS_")], found
assert set(found["--container-env"].split(",")) < set(found["--export"].split(","))
tell("gpu", os.environ["NVIDIA_VISIBLE_DEVICES"], found["--nodelist"], found["--cpus-per-task"])
run(found["--container-mounts"].split(","), found["--container-image"], "--container-unshare" in found)
"""

ENROOT = """
assert words[:2] == ["import", "--output"]
if "@" in words[3]:
    sys.exit("[ERROR] Invalid image reference: " + words[3])
pull(*words[2:], *(f"ENROOT_{name}_PATH" for name in ("CACHE", "TEMP", "DATA", "RUNTIME")))
"""

PYNVML = """\
import os
from types import SimpleNamespace

class NVMLError(Exception): ...
NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: int(os.environ["FAKE_GPUS"])
nvmlDeviceGetHandleByIndex = nvmlDeviceGetMinorNumber = lambda index: index
nvmlDeviceGetName = lambda index: "NVIDIA L4"
nvmlDeviceGetUUID = lambda index: f"GPU-1111-{index}"
nvmlDeviceGetCudaComputeCapability = lambda index: (8, 9)
nvmlDeviceGetMemoryInfo = lambda index: SimpleNamespace(total=24 << 30)
nvmlDeviceGetMigMode = lambda index: [0, 0]
nvmlSystemGetDriverVersion = lambda: "580.1"
nvmlDeviceGetClockInfo = lambda index, which: 1000
nvmlDeviceGetPowerManagementLimit = lambda index: 72000
"""


def make_standins(folder: Path) -> None:
    (folder / "bin").mkdir()
    common = COMMON.format(python=sys.executable, image=IMAGE)
    for name, text in (("apptainer", APPTAINER), ("srun", SRUN), ("enroot", ENROOT)):
        (folder / "bin" / name).write_text(common + text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "nvml").mkdir()
    (folder / "nvml" / "pynvml.py").write_text(PYNVML)
    (make_driver(folder / "nvml") / "libcuda.so.1").rename(folder / "nvml" / "libnvidia-ml.so.1")
