/* A stand-in for the driver's NVML: answers for the boards of the node that it is loaded on, from a table.
   FAKE_NVML names a file with a line a board: node|index|name|uuid|major|minor|MiB|driver|device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { char name[96], uuid[96], driver[80]; int major, minor, device; unsigned long long bytes; } Board;
static Board boards[16];
static unsigned count;

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    const char *file = getenv("FAKE_NVML"), *node = getenv("SLURMD_NODENAME");
    FILE *table = file ? fopen(file, "r") : NULL;
    char line[512], here[64];
    unsigned index;
    unsigned long long mib;
    if (!table) return 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
    count = 0;
    while (fgets(line, sizeof line, table) && count < 16) {
        Board *b = &boards[count];
        if (sscanf(line, "%63[^|]|%u|%95[^|]|%95[^|]|%d|%d|%llu|%79[^|]|%d", here, &index, b->name, b->uuid,
                   &b->major, &b->minor, &mib, b->driver, &b->device) == 9 && node && !strcmp(here, node)) {
            b->bytes = mib << 20;
            count++;
        }
    }
    fclose(table);
    return 0;
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : "not known to the stand-in"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = &boards[i]; return i < count ? 0 : 2; }
int nvmlDeviceGetName(Board *b, char *text, unsigned n) { snprintf(text, n, "%s", b->name); return 0; }
int nvmlDeviceGetUUID(Board *b, char *text, unsigned n) { snprintf(text, n, "%s", b->uuid); return 0; }
int nvmlDeviceGetCudaComputeCapability(Board *b, int *x, int *y) { *x = b->major; *y = b->minor; return 0; }
int nvmlDeviceGetMemoryInfo(Board *b, unsigned long long *m) { m[0] = m[1] = b->bytes; m[2] = 0; return 0; }
int nvmlDeviceGetMigMode(Board *b, unsigned *now, unsigned *next) { (void)b; (void)now; (void)next; return 3; }
int nvmlSystemGetDriverVersion(char *text, unsigned n) { snprintf(text, n, "%s", boards[0].driver); return 0; }
int nvmlDeviceGetMinorNumber(Board *b, unsigned *n) { *n = b->device; return 0; }
int nvmlDeviceGetClockInfo(Board *b, int kind, unsigned *mhz) { (void)b; *mhz = kind == 2 ? 2619 : 1980; return 0; }
int nvmlDeviceGetPowerManagementLimit(Board *b, unsigned *mw) { (void)b; *mw = 72000; return 0; }
