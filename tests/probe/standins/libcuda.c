/* A stand-in for the CUDA driver, for hosts without a GPU: device memory is the host's, and what is
   put on a stream is done at once. Signatures: https://docs.nvidia.com/cuda/cuda-driver-api/.
   STANDIN_NO_DEVICE: no device is there. STANDIN_DEVICE_BYTES: the largest block it can allocate.
   STANDIN_CALLS: a file that gets a line for each call around a CUDA graph, and from standinNote. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_HANDLE = 400, SPOILT = 901 };

static int live_handles;

CUresult cuInit(unsigned flags) { return flags ? 1 : getenv("STANDIN_NO_DEVICE") ? NO_DEVICE : 0; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)(intptr_t)(device + 1);
  return 0;
}
CUresult cuCtxSetCurrent(void *context) { return context ? 0 : INVALID_HANDLE; }
static CUresult sticky;
void standinBreak(CUresult code) { sticky = code; } /* as a kernel does that faults: all fails from now on */
CUresult cuCtxSynchronize(void) { return sticky; }
void standinNote(const char *what) {
  const char *path = getenv("STANDIN_CALLS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) fprintf(file, "%s\n", what), fclose(file);
}
CUresult cuGetErrorString(CUresult code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == NO_DEVICE ? "no device" : "unknown";
  if (code == 700) *text = "illegal address";
  if (code == SPOILT) *text = "capture invalidated";
  return 0;
}
CUresult cuDeviceGetName(char *name, int length, int device) {
  (void)device;
  strncpy(name, "Stand-in GPU", length);
  return 0;
}
CUresult cuDeviceGetPCIBusId(char *text, int length, int device) {
  (void)device;
  strncpy(text, "0000:3B:00.0", length);
  return 0;
}
CUresult cuDriverGetVersion(int *version) { *version = 12060; return 0; }
CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 9 : -1;
  return device ? INVALID_HANDLE : 0;
}
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
  const char *most = getenv("STANDIN_DEVICE_BYTES");
  if (most && size > strtoull(most, NULL, 10)) return OUT_OF_MEMORY;
  char *block = malloc(size + 16);
  if (!block) return OUT_OF_MEMORY;
  memcpy(block, "device's memory", 16); /* the stand-in of TensorRT tells it from the host's by that */
  *pointer = (CUdeviceptr)(uintptr_t)(block + 16);
  return 0;
}
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags) {
  return flags == 1 ? cuMemAlloc_v2(pointer, size) : 1;
}
CUresult cuMemFree_v2(CUdeviceptr pointer) { free((char *)(uintptr_t)pointer - 16); return 0; }
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
  memcpy((void *)(uintptr_t)to, from, size);
  return 0;
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
  memcpy(to, (void *)(uintptr_t)from, size);
  return 0;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, void *stream) {
  memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, size);
  return stream ? 0 : INVALID_HANDLE;
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t size) {
  memset((void *)(uintptr_t)to, byte, size);
  return 0;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t size, void *stream) {
  memset((void *)(uintptr_t)to, byte, size);
  return stream ? 0 : INVALID_HANDLE;
}
/* handles have their high half set: one that ctypes cut to 32 bits is caught */
static void *handle(int kind) { return (void *)(uintptr_t)(0x7f00000000000000ull | kind << 16 | ++live_handles); }
static CUresult check(void *handle, int kind) {
  uintptr_t bits = (uintptr_t)handle;
  return bits >> 56 == 0x7f && (bits >> 16 & 0xff) == (uintptr_t)kind ? 0 : INVALID_HANDLE;
}
CUresult cuStreamCreate(void **stream, unsigned flags) {
  *stream = handle(1);
  return flags == 1 ? 0 : 1;
}
static void *capturing; /* the stream that captures, if one does */
static int spoilt;
CUresult cuStreamSynchronize(void *stream) {
  if (sticky) return sticky;
  if (stream == capturing) return spoilt = SPOILT;
  return check(stream, 1);
}
CUresult cuMemHostAlloc(void **pointer, size_t size, unsigned flags) {
  *pointer = malloc(size);
  return flags ? 1 : 0;
}
CUresult cuMemFreeHost(void *pointer) { free(pointer); return 0; }
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
  standinNote("copy in");
  memcpy((void *)(uintptr_t)to, from, size);
  return sticky | check(stream, 1);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, void *stream) {
  standinNote("copy out");
  memcpy(to, (void *)(uintptr_t)from, size);
  return sticky | check(stream, 1);
}
CUresult cuStreamBeginCapture_v2(void *stream, int mode) {
  standinNote("begin capture");
  capturing = stream;
  return mode == 1 ? check(stream, 1) : 1;
}
CUresult cuStreamEndCapture(void *stream, void **graph) {
  CUresult code = stream == capturing ? spoilt : 1;
  standinNote("end capture");
  *graph = code ? NULL : handle(3);
  capturing = NULL, spoilt = 0;
  return code;
}
CUresult cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
  *executable = handle(4);
  return flags ? 1 : check(graph, 3);
}
CUresult cuGraphLaunch(void *executable, void *stream) {
  standinNote("launch");
  return check(executable, 4) | check(stream, 1);
}
CUresult cuGraphExecDestroy(void *executable) { standinNote("destroy"); return check(executable, 4); }
CUresult cuGraphDestroy(void *graph) { standinNote("destroy"); return check(graph, 3); }
CUresult cuEventCreate(void **event, unsigned flags) { *event = handle(2); return flags ? 1 : 0; }
CUresult cuEventRecord(void *event, void *stream) { return check(event, 2) | check(stream, 1); }
CUresult cuEventSynchronize(void *event) { return check(event, 2); }
CUresult cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return flags ? 1 : check(event, 2) | check(stream, 1);
}
CUresult cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  *milliseconds = 1.5f;
  return check(start, 2) | check(end, 2);
}
