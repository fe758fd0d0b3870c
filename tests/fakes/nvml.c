/* A library with NVML's names that plays GPUs from a script: NVML_PLAY names a file of lines `SLOT KEY VALUE`.

   Keys: name uuid serial | lost | hang CALL | deaf CALL | crash CALL | action N | remap C U PENDING FAILURE |
   volatile-sram N | volatile-dram N | aggregate-dram N | reasons N | width N | links MASK. The slot `*` is the library
   itself: `* init CODE` makes it refuse to open, `* hang init` makes it hang there. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, LOST = 15, MOST = 64 };

typedef struct { char slot[32], key[32], value[128]; } Line;
typedef struct { char slot[32]; } Gpu;

static Line lines[1024];
static int line_count;
static Gpu gpus[MOST];
static int gpu_count;

static void load(void)
{
    const char *path = getenv("NVML_PLAY");
    FILE *file = path ? fopen(path, "r") : NULL;
    char text[256];
    line_count = gpu_count = 0;
    while (file && fgets(text, sizeof text, file) && line_count < 1024) {
        Line *line = &lines[line_count];
        line->value[0] = 0;
        if (sscanf(text, "%31s %31s %127[^\n]", line->slot, line->key, line->value) < 2)
            continue;
        line_count++;
        if (!strcmp(line->key, "name") && gpu_count < MOST)
            strcpy(gpus[gpu_count++].slot, line->slot);
    }
    if (file)
        fclose(file);
}

static const char *told(const char *slot, const char *key)
{
    for (int i = 0; i < line_count; i++)
        if (!strcmp(lines[i].slot, slot) && !strcmp(lines[i].key, key))
            return lines[i].value;
    return NULL;
}

/* Hangs, dies or is lost, if the script says so. */
static int enter(const char *slot, const char *call)
{
    const char *deaf = told(slot, "deaf"), *hang = told(slot, "hang"), *crash = told(slot, "crash");
    if (deaf && !strcmp(deaf, call))
        signal(SIGTERM, SIG_IGN), signal(SIGINT, SIG_IGN);
    if ((deaf && !strcmp(deaf, call)) || (hang && !strcmp(hang, call)))
        for (;;)
            sleep(1000);
    if (crash && !strcmp(crash, call))
        abort();
    return told(slot, "lost") ? LOST : SUCCESS;
}

static int number(const char *slot, const char *key, unsigned long long *value)
{
    const char *text = told(slot, key);
    if (!text)
        return NOT_SUPPORTED;
    *value = strtoull(text, NULL, 0);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags)
{
    load();
    enter("*", "init");
    const char *code = told("*", "init");
    return code ? atoi(code) : SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code)
{
    return code == 9 ? "Driver Not Loaded" : code == 18 ? "Driver/library version mismatch" : "an error of the play";
}

int nvmlDeviceGetCount_v2(unsigned *count) { *count = gpu_count; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu)
{
    if (index >= (unsigned)gpu_count)
        return INVALID;
    *gpu = &gpus[index];
    return enter((*gpu)->slot, "handle");
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Gpu **gpu)
{
    for (int i = 0; i < gpu_count; i++)
        if (!strncasecmp(address + 4, gpus[i].slot, strlen(gpus[i].slot))) {
            *gpu = &gpus[i];
            return enter(gpus[i].slot, "handle");
        }
    return NOT_FOUND;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } PciInfo;

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    snprintf(info->address, sizeof info->address, "0000%s.0", gpu->slot);
    return SUCCESS;
}

static int text(Gpu *gpu, const char *key, char *into, unsigned room)
{
    int code = enter(gpu->slot, key);
    const char *value = told(gpu->slot, key);
    if (code)
        return code;
    if (!value)
        return NOT_SUPPORTED;
    snprintf(into, room, "%s", value);
    return SUCCESS;
}
int nvmlDeviceGetName(Gpu *gpu, char *into, unsigned room) { return text(gpu, "name", into, room); }
int nvmlDeviceGetUUID(Gpu *gpu, char *into, unsigned room) { return text(gpu, "uuid", into, room); }
int nvmlDeviceGetSerial(Gpu *gpu, char *into, unsigned room) { return text(gpu, "serial", into, room); }

typedef struct {
    unsigned field, scope;
    long long at, latency;
    int type, code;
    union { double d; unsigned ui; unsigned long long ull; } value;
} FieldValue;

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values)
{
    int code = enter(gpu->slot, "action");
    unsigned long long action = 0;
    for (int i = 0; i < count && !code; i++) {
        values[i].code = values[i].field == 230 ? number(gpu->slot, "action", &action) : NOT_SUPPORTED;
        values[i].type = 1;
        values[i].value.ui = (unsigned)action;
    }
    return code;
}

int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failure)
{
    int code = enter(gpu->slot, "remap");
    const char *value = told(gpu->slot, "remap");
    if (code)
        return code;
    if (!value)
        return NOT_SUPPORTED;
    return sscanf(value, "%u %u %u %u", corrected, uncorrected, pending, failure) == 4 ? SUCCESS : INVALID;
}

int nvmlDeviceGetMemoryErrorCounter(Gpu *gpu, int error, int counter, int place, unsigned long long *count)
{
    int code = enter(gpu->slot, "ecc");
    char key[32];
    snprintf(key, sizeof key, "%s-%s", counter ? "aggregate" : "volatile", place == 7 ? "sram" : "dram");
    if (code)
        return code;
    *count = 0;
    if (error)
        number(gpu->slot, key, count);
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *reasons)
{
    int code = enter(gpu->slot, "reasons");
    *reasons = 0;
    number(gpu->slot, "reasons", reasons);
    return code;
}

static int width(Gpu *gpu, unsigned *lanes, const char *key)
{
    unsigned long long value = 16;
    number(gpu->slot, key, &value);
    *lanes = (unsigned)value;
    return enter(gpu->slot, key);
}
int nvmlDeviceGetCurrPcieLinkWidth(Gpu *gpu, unsigned *lanes) { return width(gpu, lanes, "width"); }
int nvmlDeviceGetMaxPcieLinkWidth(Gpu *gpu, unsigned *lanes) { return width(gpu, lanes, "max-width"); }

int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned link, unsigned *active)
{
    unsigned long long mask = 0;
    int code = enter(gpu->slot, "links");
    if (code)
        return code;
    if (number(gpu->slot, "links", &mask) || link >= 4)
        return NOT_SUPPORTED;
    *active = (unsigned)(mask >> link) & 1;
    return SUCCESS;
}
