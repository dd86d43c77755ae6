"""What moved since a lock was written, by every kind of finding; what an image says of itself."""

from dataclasses import replace

from goldenfile import check_golden
from locks import IMAGE, SAID, digest_of, lock_of, make_image, make_platform

from trtmatrix.common.text import to_json
from trtmatrix.images.lock import Answer, Change, find_changes, lock_json, lock_text
from trtmatrix.images.registry import named_versions
from trtmatrix.launchers.references import RegistryError, Trouble
from trtmatrix.plan.lockfile import Lock, LockedImage, LockedLayer

AMD, ARM = make_platform(), make_platform(manifest=digest_of("1"), image_id=digest_of("2"))
BOTH = {"linux/amd64": AMD, "linux/arm64": ARM}
OLD = make_image(AMD)
GONE, SILENT = (RegistryError(each, "nvcr.io", IMAGE) for each in (Trouble.MISSING, Trouble.UNREACHABLE))
OTHER = replace(
    AMD, manifest=digest_of("e"), image_id=digest_of("f"),
    says={**SAID, "TensorRT": "10.8.0.40"},
    layers=(*AMD.layers, LockedLayer(digest=digest_of("9"), size=8_900_000_000)),
)  # fmt: skip
NEW_TAG = {"digest": digest_of("7")}

MIRRORED = replace(OLD, resolved="2027", registry="m")
ANEW = make_image(replace(AMD, manifest=digest_of("e")), **NEW_TAG)
IMAGES: list[tuple[LockedImage | None, Answer]] = [
    (OLD, MIRRORED), (None, OLD), (OLD, make_image(OTHER, **NEW_TAG)), (OLD, ANEW),
    (make_image(platforms=BOTH), OLD), (OLD, GONE), (OLD, SILENT),
]  # fmt: skip


def test_each_finding_says_what_changed_what_that_means_and_how_to_go_on() -> None:
    findings = list[Change]()
    for image, answer in IMAGES:
        lock = lock_of(image) if image else Lock()
        findings += find_changes(lock, {IMAGE: ("10.7.0",)}, {IMAGE: answer})
    check_golden("lock.txt", lock_text(findings, "matrix.lock", None))
    check_golden("lock.json", to_json(lock_json(findings, "matrix.lock", None)))


def test_what_an_image_says_of_tensorrt_cuda_torch_and_the_driver_is_read() -> None:
    ngc = {
        "CUDA_DRIVER_VERSION": "560.35.05", "CUDA_VERSION": "12.6.3.004", "PYTORCH_VERSION": "2.6.0a0",
        "TRT_VERSION": "10.7.0.23+cuda12.6", "NVIDIA_TENSORRT_VERSION": "24.12", "PATH": "/bin",
        "PYTORCH_BUILD_VERSION": "2.6.0a0+df5",
    }  # fmt: skip
    assert named_versions(ngc) == {
        "TensorRT": "10.7.0.23", "CUDA": "12.6.3.004", "driver": "560.35.05", "torch": "2.6.0a0+df5",
    }  # fmt: skip
    assert named_versions({"TENSORRT_VERSION": "8.6.1"}) == {"TensorRT": "8.6.1"}
