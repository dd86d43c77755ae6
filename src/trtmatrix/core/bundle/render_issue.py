"""``ISSUE.md``: upstream's form, filled with what is known of one failure. Pure."""

from __future__ import annotations

from trtmatrix.core.bundle.commands import Commands, polygraphy_command, trtexec_command
from trtmatrix.core.bundle.facts import RUN, SCRIPT, Failure, Form
from trtmatrix.core.bundle.filling import fill
from trtmatrix.core.bundle.forms import FORMS, choose_form, make_title, product_words, subject
from trtmatrix.core.bundle.issue_fields import (
    capture_words,
    environment_fields,
    frameworks_words,
    latest_words,
)
from trtmatrix.core.bundle.issue_parts import (
    PRECISION_WORDS,
    builds_words,
    changes_table,
    files_list,
    left_out_list,
    outputs_table,
    reference_words,
    since_words,
    versions_table,
)
from trtmatrix.core.markdown import MOST_CHARACTERS, bullets, code, fence, fold, link, plain
from trtmatrix.core.model import Product

CONTROL = (
    "> **A control, not a bug report**: a known defect was put into this graph on purpose, and the product "
    "is right to give what it gives. It shows that such a failure is found, and comes back."
)
TOO_LONG = "(left out, as GitHub takes no longer text: the archive's ISSUE.md would have it)"


def render_issue(failure: Failure) -> str:
    """Return the text: ``Title: …``, an empty line, then the form; never longer than GitHub takes.

    Parts that fold are left out first where it would be.
    """
    for folds in (True, False):
        text = _render(failure, folds=folds)
        if len(text) <= MOST_CHARACTERS:
            return text
    return text[: MOST_CHARACTERS - 200] + f"\n\n… {TOO_LONG}\n"


def _render(failure: Failure, *, folds: bool) -> str:
    form = choose_form(failure)
    fields = {
        **environment_fields(failure, form), "DESCRIPTION": _description(failure, folds=folds),
        "COMMANDS": _commands(failure, form, folds=folds), "END": _end(failure),
    }  # fmt: skip
    if form is Form.TORCH:
        fields |= {"EXPECTED": _expected(failure), "CONTEXT": _context(failure, folds=folds)}
    else:
        fields |= {
            "MODEL": _model_words(failure), "FILES": _files(failure), "LATEST": latest_words(failure),
            "FRAMEWORKS": frameworks_words(failure), "CAPTURE": capture_words(failure),
        }  # fmt: skip
    text = f"Title: {make_title(failure)}\n\n" + fill(FORMS[form], fields)
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def _description(failure: Failure, *, folds: bool) -> str:
    """Return what fails, by how much, against what, since when, and what changes it."""
    parts = [_control(failure), _what(failure), _message(failure), outputs_table(failure.outputs)]
    parts += [reference_words(failure), since_words(failure), changes_table(failure.changes)]
    if failure.workarounds:
        parts.append(f"**What helps**:\n\n{bullets(map(plain, failure.workarounds))}")
    if failure.summary:
        parts.append(f"**Background**: {plain(failure.summary)} {_upstream(failure)}".rstrip())
    parts.append(bullets(map(plain, failure.notes)))
    if failure.versions:
        versions = versions_table(failure.versions, failure.figure_label) if folds else TOO_LONG
        count = len(failure.versions)
        parts.append(fold(f"This case at {count} version{'s' if count != 1 else ''}", versions))
    return "\n\n".join(part for part in parts if part)


def _control(failure: Failure) -> str:
    return CONTROL if failure.is_control else ""


def _what(failure: Failure) -> str:
    """Return the first sentences: a reader who stops here knows what fails, and how often."""
    how = "" if failure.message else builds_words(failure.failed, failure.builds)
    why = plain(failure.manner or failure.reason).rstrip(".")
    is_built = failure.product is not Product.ONNXRUNTIME
    asked = PRECISION_WORDS.get(failure.precision, failure.precision) if is_built else ""
    facts = [f"Built as {plain(asked)}"] if asked else []
    facts.append(f"cell {code(str(failure.cell))}")
    facts += [f"measured on {plain(failure.measured_on)}"] if failure.measured_on else []
    said = "; ".join(facts)
    return (
        f"**{plain(product_words(failure))} fails on {plain(subject(failure))}**"
        f"{f' {how}' if how else ''}: {why}. {said[:1].upper()}{said[1:]}."
    )


def _message(failure: Failure) -> str:
    """Return the product's own words, where it ended early."""
    return fence(failure.message[-4000:]).replace("```sh", "```text", 1) if failure.message else ""


def _upstream(failure: Failure) -> str:
    if failure.own_model or "#" not in failure.upstream:
        return ""
    return f"First reported as {link(failure.url, failure.upstream)}."


def _model_words(failure: Failure) -> str:
    return f"`model.onnx` in the attached {code(failure.archive_name + '.tar.gz')}, with inputs and reference"


def _files(failure: Failure) -> str:
    parts = [
        fold("What is in the archive", files_list(failure.files, in_container=failure.image is not None))
    ]
    if failure.left_out:
        parts.append(f"Left out of it:\n\n{left_out_list(failure.left_out)}")
    return "\n\n".join(parts)


def _by_archive(failure: Failure) -> str:
    name = failure.archive_name
    return fence(f"tar -xzf {name}.tar.gz && cd {name} && sh {RUN}")


EXIT_CODES = "Exit code: 1 the failure came back, 0 it did not, 125 cannot say."


def _commands(failure: Failure, form: Form, *, folds: bool) -> str:
    """Return how to run it, the one command first; in the torch form as upstream's numbered steps."""
    others = _others(failure) if folds else TOO_LONG
    by_hand = fence(f"python3 {SCRIPT}   # where {failure.product_name} is installed; --help says more")
    if form is Form.TORCH:
        name = failure.archive_name
        return (
            f"1. Unpack the attached archive: `tar -xzf {name}.tar.gz && cd {name}`\n"
            f"1. Run `sh {RUN}` (one `docker run`; or `python3 {SCRIPT}` where Torch-TensorRT is installed)\n"
            f"1. Compare the figures that it prints with those above. {EXIT_CODES}\n\n{_files(failure)}"
        )
    return f"{_by_archive(failure)}\n\n{EXIT_CODES} Without a container:\n\n{by_hand}\n\n{others}"


def _others(failure: Failure) -> str:
    shown = [("polygraphy", polygraphy_command(failure)), ("trtexec", trtexec_command(failure))]
    if failure.recipe is None:
        return plain(shown[0][1].notes[0][:1].upper() + shown[0][1].notes[0][1:]) + "."
    return "\n\n".join(_tool(name, commands) for name, commands in shown)


def _tool(name: str, commands: Commands) -> str:
    notes = bullets(map(plain, commands.notes))
    if not commands.lines:
        return f"By {name} it cannot be shown:\n\n{notes}" if notes else ""
    lines = fence("\n".join(commands.lines))
    return f"By {name}, in the archive's folder:\n\n{lines}" + (f"\n\n{notes}" if notes else "")


def _expected(failure: Failure) -> str:
    right = failure.nearest_good and f" {plain(failure.nearest_good)} gives them."
    if failure.message:
        return f"That it builds and runs.{right}"
    return f"Outputs that agree with the reference as far as the precision allows.{right}"


def _context(failure: Failure, *, folds: bool) -> str:
    others = _others(failure) if folds else TOO_LONG
    parts = [f"**Have you tried the latest release?** {latest_words(failure)}"]
    if failure.on_cpu:
        parts.append(f"**Does the graph run elsewhere?** {frameworks_words(failure)}")
    return "\n\n".join([*parts, others])


def _end(failure: Failure) -> str:
    """Return the last lines: how to reproduce it."""
    by = f"\n\nMade by trtmatrix {plain(failure.tool)}." if failure.tool else ""
    return f"**Reproduce with**:\n\n{_by_archive(failure)}{by}"
