"""Where things lie on the shared folder, as the scripts on the nodes and the client know it.

``layout.json``                       the number of this layout
``lock``                              held (POSIX) while anything below is decided on
``clients/<id>``                      held by a client as long as it lives; lists the arrays that it follows
``suite/<digest>/trtprobe, repros``   what is mounted into every container
``cases/<name>``                      prepared cases, as in the cache
``images/<key>/image.json``           an image that was had (``file``, ``id``, ``reference``, ``bytes``)
``images/<key>/facts``                the same in lines, for the scripts; beside it its file, where it has one
``images/<key>/loading.<node>``       held while a node's engine loads it
``images/<key>.<attempt>/``           what an import left (``started``, ``ended``, ``log``)
``images/<key>.<attempt>.sh``         what its job runs; ``.txt``: what that said
``nodes/<node>.json``                 what a node's GPUs were when a job last ran there
``arrays/<key>/manifest.json``        never changed; ``task.sh`` beside it
``arrays/<key>/submitted/<n>.json``   each sbatch: written before it, completed after it
``arrays/<key>/tries/<task>.<attempt>/``  what a task is to run: ``indices.json``, ``job/`` for the probe
``arrays/<key>/ran/<task>.<attempt>.<job>/`` what it leaves; renamed to ``<task>.<attempt>`` when it is done
``arrays/<key>/tries/<task>.<attempt>/gone.json`` how a job ended that told nothing, as Slurm told a client
``arrays/<key>/tries/<task>.<attempt>/taken`` a link that names the job that has it: an attempt is run once
``arrays/<key>/said.<task>.<attempt>.<job>.txt`` what a script said
``arrays/<key>/stopping``             a client cancels it: nothing is submitted any more; says why
``arrays/<key>/over``                 nothing is to be collected or submitted any more; says why
"""

from __future__ import annotations

MANIFEST, SCRIPT, OVER, IMAGE = "manifest.json", "task.sh", "over", "image.json"
STOPPING, WANTED, GONE, LAYOUT_FILE = "stopping", "indices.json", "gone.json", "layout.json"


def array_folder(shared: str, key: str) -> str:
    """Return an array's folder; what lies in it goes by it, as a client or a script has it."""
    return f"{shared}/arrays/{key}"


def try_folder(array: str, task: int | str, attempt: int | str) -> str:
    """Return the folder of what an attempt is to run; words of a script may stand for all of it."""
    return f"{array}/tries/{task}.{attempt}"


def ran_folder(array: str, task: int | str, attempt: int | str) -> str:
    """Return the folder of what an attempt left, as it is called once it is done; words as above."""
    return f"{array}/ran/{task}.{attempt}"


def said_file(array: str, task: int | str, attempt: int | str, job: str) -> str:
    """Return the file of what a task's script said; a script's or sbatch's own words may stand for any."""
    return f"{array}/said.{task}.{attempt}.{job}.txt"


def image_folder(shared: str, key: str) -> str:
    """Return the folder of an image that was had."""
    return f"{shared}/images/{key}"


def import_folder(shared: str, key: str, attempt: int | str) -> str:
    """Return the folder of what an import left."""
    return f"{shared}/images/{key}.{attempt}"
