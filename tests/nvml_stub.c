/* A driver library with two GPUs, as far as the real pynvml asks it. The second does not know its power.
   NVML_STUB_LOST=1 has lost the second, NVML_STUB_LOST=all cannot even count them. */
#include <stdlib.h>
#include <string.h>

typedef int result;
typedef struct { int number; } device;
typedef struct { unsigned int gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;

enum { OK = 0, NOT_SUPPORTED = 3, IS_LOST = 15 };
static device devices[2] = {{0}, {1}};
static int opened = 0;

result nvmlInitWithFlags(unsigned int flags) { (void)flags; opened++; return OK; }
result nvmlShutdown(void) { opened--; return OK; }
int nvml_stub_opened(void) { return opened; }
const char *nvmlErrorString(result error) {
    return error == NOT_SUPPORTED ? "Not Supported" : error == IS_LOST ? "GPU is lost" : "Unknown";
}
static int lost(const char *which) {
    const char *said = getenv("NVML_STUB_LOST");
    return said != NULL && strcmp(said, which) == 0;
}
result nvmlDeviceGetCount_v2(unsigned int *count) {
    if (lost("all")) return IS_LOST;
    *count = 2;
    return OK;
}
result nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **found) {
    if (index == 1 && lost("1")) return IS_LOST;
    *found = &devices[index];
    return OK;
}
/* The second is divided: its only part is 2. */
static device part = {2};
result nvmlDeviceGetUUID(device *it, char *found, unsigned int length) {
    static const char *uuids[] = {"GPU-1f4c-00", "GPU-8ae0-11", "MIG-7b21-22"};
    if (length < 12) return NOT_SUPPORTED;
    strcpy(found, uuids[it->number]);
    return OK;
}
result nvmlDeviceGetMaxMigDeviceCount(device *it, unsigned int *found) {
    if (it->number == 0) return NOT_SUPPORTED;
    *found = 2;
    return OK;
}
result nvmlDeviceGetMigDeviceHandleByIndex(device *it, unsigned int index, device **found) {
    if (it->number != 1 || index != 0) return NOT_SUPPORTED;
    *found = &part;
    return OK;
}
result nvmlDeviceGetUtilizationRates(device *it, utilization *found) {
    found->gpu = 20 + 10 * it->number;
    found->memory = 5;
    return OK;
}
result nvmlDeviceGetTemperature(device *it, int sensor, unsigned int *found) {
    (void)sensor;
    *found = 60 + it->number;
    return OK;
}
result nvmlDeviceGetPowerUsage(device *it, unsigned int *found) {
    if (it->number == 1) return NOT_SUPPORTED;
    *found = 250000;
    return OK;
}
result nvmlDeviceGetMemoryInfo(device *it, memory *found) {
    memset(found, 0, sizeof *found);
    found->total = 8ULL << 30;
    found->used = (512ULL + it->number) << 20;
    return OK;
}
