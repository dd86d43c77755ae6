"""How a site stands: every rule over what was found of it, as doctor tells it. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from trtmatrix.core.counting import counted
from trtmatrix.core.plan import GpuAccess
from trtmatrix.core.preflight.checks import gigabytes
from trtmatrix.core.preflight.finding import Finding, Level
from trtmatrix.core.slurm.controller import ClusterNode, Partition, parse_gres
from trtmatrix.core.slurm.facts import LeftArray, Request, SiteFacts
from trtmatrix.core.slurm.rules import SITE_RULES
from trtmatrix.core.slurm.seen import Other, other_models, seen_lines
from trtmatrix.core.slurm.site import NodeRuntime, Site, SiteGpu
from trtmatrix.core.slurm.sitevalues import option_value
from trtmatrix.core.slurm.words import CONTAINER_LABEL

LOW = 20 * 10**9
"""Free bytes of the shared folder below which one image of NGC's may not fit (10 to 34 GB each)."""
OWN_DISKS = frozenset({"tmpfs", "ramfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs"})
"""File systems that a host has for itself; one may still be what a server exports to the nodes."""
EPILOG = "docker/slurm/epilog"
SIZES = frozenset({"limits.memory", "limits.cpus", "limits.minutes", "limits.import_minutes"})
"""Keys of the site file that ask for too much: Slurm says of them what it says of a GPU that is not there."""


def site_findings(facts: SiteFacts, site: Site) -> Iterator[Finding]:
    """Yield how everything stands that jobs need of a site."""
    yield _slurm(facts)
    yield _folder(facts, site)
    if facts.away:
        return
    for gpu in site.gpus:
        yield from _gpu(facts, site, gpu)
    yield from (
        _request("imports of images", "slurm-import", each) for each in facts.requests if not each.gpu
    )
    yield from _arrays(facts, site)
    yield _runtime(facts, site)
    yield _ends(facts, site)
    yield from _seen(facts)
    yield from map(_left, facts.left)


def _finding(rule: str, level: Level, what: str, found: str, remedy: str = "") -> Finding:
    """Return a finding in the words of its rule; what is well prevents nothing and wants no remedy."""
    told = SITE_RULES[rule]
    if level is Level.GOOD:
        return Finding(level=level, what=what, found=found, remedy=remedy, rule=rule)
    return Finding(
        level=level, what=what, found=found, remedy=remedy or told.mends, rule=rule,
        prevents=told.prevents if level is Level.TROUBLE else "",
    )  # fmt: skip


def _slurm(facts: SiteFacts) -> Finding:
    if facts.away:
        return _finding("slurm", Level.TROUBLE, "Slurm", facts.away, facts.away_remedy)
    config = facts.config
    listed = "squeue tells in JSON" if facts.json else "squeue tells in lines (this release has no JSON)"
    kept = "sacct knows jobs that are over" if facts.accounting else "no accounting (none is needed)"
    found = f"{config.version or 'release not known'}, cluster {config.cluster or 'without a name'}"
    return _finding("slurm", Level.GOOD, "Slurm", f"{found}; {listed}; {kept}")


def _folder(facts: SiteFacts, site: Site) -> Finding:
    what = "shared folder"
    if facts.folder_trouble:
        words, _, remedy = facts.folder_trouble.partition("\n")
        return _finding("slurm-folder", Level.TROUBLE, what, words, remedy.strip())
    found = (
        f"{site.shared}: {facts.folder_kind or 'unknown file system'}, {gigabytes(facts.folder_free)} free"
    )
    if facts.folder_free < LOW:
        return _finding(
            "slurm-folder", Level.LACKING, what, f"{found}; an image of NGC's takes 10 to 34 GB",
            "free some, or name another folder as shared:",
        )  # fmt: skip
    if facts.folder_kind in OWN_DISKS:
        return _finding(
            "slurm-folder", Level.LACKING, what, f"{found}; such a disk is mostly this host's own",
            f"see it from a node: srun {_srun(site, site.gpus[0])} ls {shlex.quote(site.shared)}",
        )  # fmt: skip
    return _finding("slurm-folder", Level.GOOD, what, f"{found}; that nodes see it, the first job shows")


def _gpu(facts: SiteFacts, site: Site, gpu: SiteGpu) -> Iterator[Finding]:
    yield from (_request(gpu.name, "slurm-request", each) for each in facts.requests if each.gpu == gpu.name)
    partitions = partitions_of(facts.partitions, site, gpu)
    yield from _time(partitions, site, gpu)
    nodes = nodes_of(facts.nodes, partitions, gpu)
    if not nodes:
        return  # what sbatch says of the request is better than what we make of their names
    able = [node for node in nodes if node.takes_jobs]
    names = ", ".join(f"{node.name} {node.state.lower()}" for node in nodes[:4])
    more = f" and {len(nodes) - 4} more" if len(nodes) > 4 else ""
    found = f"{len(able)} of {counted(len(nodes), 'node')} can take jobs ({names}{more})"
    yield _finding("slurm-nodes", Level.GOOD if able else Level.LACKING, f"nodes of {gpu.name}", found)
    if (other := other_models(gpu.name, nodes, facts.seen)) is not None:
        yield _model(gpu, other)


def is_other_model(facts: SiteFacts, site: Site, gpu: SiteGpu) -> bool:
    """Whether each node that a GPU's jobs can go to was seen, and none has that GPU."""
    nodes = nodes_of(facts.nodes, partitions_of(facts.partitions, site, gpu), gpu)
    other = other_models(gpu.name, nodes, facts.seen)
    return other is not None and not other.unseen


def _model(gpu: SiteGpu, other: Other) -> Finding:
    """Return that a gres is another model; a node that no job has seen may still have the right one."""
    level, found = Level.TROUBLE, f"{gpu.gres} is {other.told}"
    if other.unseen:
        level, found = Level.LACKING, f"{found}; {counted(other.unseen, 'node')} with it not seen yet"
    return _finding("slurm-model", level, f"model of {gpu.name}", found)


def _request(what: str, rule: str, request: Request) -> Finding:
    if not request.refused:
        return _finding(rule, Level.GOOD, what, f"sbatch would take it{_when(request.when)}")
    because = f" ({' or '.join(request.because)})" if request.because else ""
    found = f"sbatch would refuse it{because}: {request.refused}"
    if request.because and all(key in SIZES for key in request.because):
        remedy = f'what the nodes have: sinfo -o "%P %c %m %l %N"; lower {" or ".join(request.because)}'
        return _finding(rule, Level.TROUBLE, what, found, remedy)
    return _finding(rule, Level.TROUBLE, what, found, request.remedy)


def _when(words: str) -> str:
    """Return when and where a job would start, as sbatch tells it."""
    match = re.search(r"to start at (\S+?)T(\d\d:\d\d)\S* using .* on nodes (\S+)", words)
    return f", to start {match[1]} {match[2]} on {match[3]}" if match else ""


def partitions_of(partitions: Sequence[Partition], site: Site, gpu: SiteGpu) -> tuple[Partition, ...]:
    """Return the partitions that a GPU's jobs go to, as far as the cluster tells of them."""
    named = gpu.partition or option_value("partition", "p", site.options)
    if named:
        return tuple(each for each in partitions if each.name in named.split(","))
    return tuple(each for each in partitions if each.default)


def nodes_of(
    nodes: Sequence[ClusterNode], partitions: Sequence[Partition], gpu: SiteGpu
) -> tuple[ClusterNode, ...]:
    """Return the nodes that have what a GPU's gres names, in its partitions, by one plain feature."""
    wanted = next((kind for kind, _ in parse_gres(gpu.gres)), "")
    names = {each.name for each in partitions}
    return tuple(
        node for node in nodes
        if any(not wanted or kind == wanted for kind, _ in node.gpus)
        and (not names or names & set(node.partitions))
        and (not re.fullmatch(r"\w+", gpu.constraint) or gpu.constraint in node.features)
    )  # fmt: skip


def _time(partitions: Sequence[Partition], site: Site, gpu: SiteGpu) -> Iterator[Finding]:
    """Yield what keeps jobs waiting for ever: the site's partition limits need not be enforced by sbatch."""
    if not partitions:
        return
    what, minutes = f"partition of {gpu.name}", site.limits.minutes
    names = ", ".join(each.name for each in partitions)
    up = [each for each in partitions if each.state in {"UP", ""}]
    if not up:
        found = f"{names} {'is' if len(partitions) == 1 else 'are'} {partitions[0].state}"
        yield _finding("slurm-time", Level.TROUBLE, what, found, "name another as partition:, or wait")
        return
    if all(each.minutes is not None and each.minutes < minutes for each in up):
        longest = max(each.minutes or 0 for each in up)
        found = f"{names} takes jobs of {longest} minutes at most; limits.minutes is {minutes}"
        yield _finding("slurm-time", Level.TROUBLE, what, found)


def _arrays(facts: SiteFacts, site: Site) -> Iterator[Finding]:
    tasks, config = site.limits.tasks, facts.config
    for name, most in (("MaxArraySize", config.array), ("MaxJobCount", config.jobs)):
        if most is not None and tasks > most:
            found = f"limits.tasks is {tasks}; this cluster's {name} is {most}"
            yield _finding(
                "slurm-array", Level.TROUBLE, "arrays", found, f"set limits.tasks to {most} or less"
            )


def _srun(site: Site, gpu: SiteGpu) -> str:
    """Return the words by which a person starts something on a node with a GPU."""
    named = {"partition": gpu.partition, "account": gpu.account, "qos": gpu.qos, "constraint": gpu.constraint}
    words = [f"--{name}={value}" for name, value in named.items() if value]
    return shlex.join([f"--gres={gpu.gres}", *site.options, *words, "--time=5", *gpu.options])


def runtime_test(site: Site) -> str:
    """Return a command that starts a container with a GPU on a node, by hand."""
    srun = f"srun {_srun(site, site.gpus[0])}"
    match site.runtime:
        case NodeRuntime.PYXIS:
            return f"{srun} --container-image=ubuntu:24.04 nvidia-smi -L"
        case NodeRuntime.APPTAINER:
            command = "apptainer exec --nv docker://ubuntu:24.04 nvidia-smi -L"
        case NodeRuntime.DOCKER:
            command = "docker run --rm --gpus all ubuntu:24.04 nvidia-smi -L"
    if site.runtime is NodeRuntime.DOCKER and site.access is not GpuAccess.TOOLKIT:
        command = "docker info"
    return f"{srun} bash -c {shlex.quote('; '.join([*site.setup, command]))}"


def _runtime(facts: SiteFacts, site: Site) -> Finding:
    what = f"{site.runtime.value} on the nodes"
    if facts.pyxis:
        return _finding("slurm-runtime", Level.GOOD, what, "srun has --container-image here")
    found = "cannot be seen from here; the first job says what is wrong with it"
    if site.runtime is NodeRuntime.DOCKER and site.access is GpuAccess.NODES and not site.driver_folder:
        found += "; containers get device nodes and no driver: name its libraries by driver_folder:"
    if facts.pyxis is False:
        found = "this host's srun has no --container-image: pyxis is not in its plugstack.conf"
    return _finding("slurm-runtime", Level.LACKING, what, found, f"try it: {runtime_test(site)}")


def _ends(facts: SiteFacts, site: Site) -> Finding:
    """Return whether what a job started goes with it: SIGKILL leaves a container of Docker's running."""
    if site.runtime is not NodeRuntime.DOCKER:
        tracking = facts.config.tracking
        good = tracking in {"proctrack/cgroup", ""}
        found = f"{site.runtime.value}'s processes end with their job ({tracking or 'tracking not known'})"
        if not good:
            found = f"{tracking} may lose processes of a job that is killed; proctrack/cgroup loses none"
        return _finding("slurm-ends", Level.GOOD if good else Level.LACKING, "killed jobs", found)
    ours = [path for path, text in facts.epilogs.items() if text is not None and CONTAINER_LABEL in text]
    if ours:
        return _finding("slurm-ends", Level.GOOD, "epilog", f"{ours[0]} removes our containers")
    remedy = f"have the administrators install {EPILOG}: docs/slurm.md, What a killed job leaves"
    unread = [path for path, text in facts.epilogs.items() if text is None]
    if unread:
        found = f"{', '.join(unread)} cannot be read here: whether it removes our containers is not known"
    else:
        named = ", ".join(facts.epilogs)
        found = f"{named} knows nothing of our containers" if named else "the nodes have none"
        found += ": a job that is killed (not cancelled) leaves a container, which ends itself soon after"
    return _finding("slurm-ends", Level.LACKING, "epilog", found, remedy)


def _seen(facts: SiteFacts) -> Iterator[Finding]:
    for line in seen_lines(facts.seen):
        yield _finding("slurm-seen", Level.GOOD, "seen", line)


def _left(array: LeftArray) -> Finding:
    """Return that an array is nobody's: its jobs, if any, go on, and their records wait to be taken."""
    what, cells = f"array {array.key}", f"{counted(array.cells, 'cell')} of {array.version} on {array.gpu}"
    if not array.jobs:
        found = f"no client follows it ({cells}); it has no job, but what came of it was not taken"
        return _finding("slurm-left", Level.LACKING, what, found)
    jobs = f"job {array.jobs[0]}" if len(array.jobs) == 1 else f"jobs {', '.join(array.jobs)}"
    found = f"no client follows it ({cells}), and it goes on: {jobs}"
    remedy = f"{SITE_RULES['slurm-left'].mends}; to end it: {array.end}"
    return _finding("slurm-left", Level.LACKING, what, found, remedy)
