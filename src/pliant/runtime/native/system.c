/* What the machine grants this process: CPUs, memory, tile registers. */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#endif

#include "internal.h"

#define MOST_THREADS 1024

/* Calls `visit(directory, data)` for the group's directory and each of its parents up to `root`:
 * a limit may sit on any of them, and inside a container the path that /proc shows may not exist
 * below the mounted root while the root itself carries the limit. */
typedef void (*visit_fn)(const char* directory, void* data);

static void climb(const char* root, const char* group, visit_fn visit, void* data) {
    char path[PATH_MAX];
    int base = snprintf(path, sizeof path, "%s", root);
    if (base < 0 || base >= (int)sizeof path) return;
    int full = snprintf(path + base, sizeof path - (size_t)base, "%s", group);
    if (full < 0 || full >= (int)sizeof path - base) path[base] = 0;
    for (;;) {
        visit(path, data);
        char* slash = strrchr(path + base, '/');
        if (!slash) return;
        *slash = 0;
    }
}

static bool has_word(const char* list, const char* word) {
    size_t length = strlen(word);
    for (const char* at = list; (at = strstr(at, word)); at += length) {
        bool starts = at == list || at[-1] == ',';
        if (starts && (at[length] == ',' || at[length] == 0)) return true;
    }
    return false;
}

/* For each line "id:controllers:path" of /proc/self/cgroup that concerns `controller`. */
static void walk_groups(const char* groups, const char* root, const char* controller, visit_fn v1,
                        visit_fn v2, void* data) {
    FILE* file = fopen(groups, "re");
    if (!file) return;
    char line[PATH_MAX + 256], mount[PATH_MAX];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char* controllers = strchr(line, ':');
        char* path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = 0;
        *path++ = 0;
        if (!strcmp(path, "/")) path = "";
        if (!*controllers) {
            climb(root, path, v2, data);
            snprintf(mount, sizeof mount, "%s/unified", root);
            climb(mount, path, v2, data);
        } else if (has_word(controllers, controller)) {
            snprintf(mount, sizeof mount, "%s/%s", root, controller);
            climb(mount, path, v1, data);
            snprintf(mount, sizeof mount, "%s/%s", root, controllers);
            climb(mount, path, v1, data);
        }
    }
    fclose(file);
}

static bool read_line(const char* directory, const char* name, char* line, size_t size) {
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE* file = fopen(path, "re");
    if (!file) return false;
    bool got = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return got;
}

static void lower(int64_t* least, int64_t value) {
    if (value > 0 && (*least == 0 || value < *least)) *least = value;
}

static void lower_cpus(int64_t* cpus, int64_t quota, int64_t period) {
    if (quota > 0 && period > 0) lower(cpus, (quota - 1) / period + 1);
}

static void cpus_v1(const char* directory, void* cpus) {
    char quota[64], period[64];
    if (read_line(directory, "cpu.cfs_quota_us", quota, sizeof quota) &&
        read_line(directory, "cpu.cfs_period_us", period, sizeof period))
        lower_cpus(cpus, strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

static void cpus_v2(const char* directory, void* cpus) {
    char line[128];
    long long quota, period;
    if (read_line(directory, "cpu.max", line, sizeof line) &&
        sscanf(line, "%lld %lld", &quota, &period) == 2) /* "max 100000" is no limit */
        lower_cpus(cpus, quota, period);
}

static void memory_v1(const char* directory, void* bytes) {
    char line[64];
    if (read_line(directory, "memory.limit_in_bytes", line, sizeof line))
        lower(bytes, strtoll(line, NULL, 10));
}

static void memory_v2(const char* directory, void* bytes) {
    char line[64];
    if (read_line(directory, "memory.max", line, sizeof line)) lower(bytes, strtoll(line, NULL, 10));
}

int64_t pl_cgroup_cpus(const char* groups, const char* root) {
    int64_t cpus = 0;
    walk_groups(groups, root, "cpu", cpus_v1, cpus_v2, &cpus);
    return cpus;
}

int64_t pl_cgroup_memory(const char* groups, const char* root) {
    int64_t bytes = 0;
    walk_groups(groups, root, "memory", memory_v1, memory_v2, &bytes);
    return bytes;
}

/* A positive number at the start of an environment variable ("4" or OpenMP's "4,2"); else 0. */
static int64_t threads_from(const char* variable) {
    const char* text = getenv(variable);
    if (!text) return 0;
    char* end;
    long long value = strtoll(text, &end, 10);
    if (end == text || (*end && *end != ',' && *end != ' ') || value < 1) return 0;
    return value < MOST_THREADS ? value : MOST_THREADS;
}

int64_t pl_default_threads(void) {
    int64_t threads = threads_from("PLIANT_NUM_THREADS");
    if (!threads) threads = threads_from("OMP_NUM_THREADS");
    if (threads) return threads;
#ifdef __linux__
    /* The fixed cpu_set_t ends at 1024 CPUs; beyond it the call fails and sysconf answers. */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) threads = CPU_COUNT(&set);
#endif
    if (!threads) threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads < 1) threads = 1;
    int64_t quota = pl_cgroup_cpus("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota && quota < threads) threads = quota;
    return threads < MOST_THREADS ? threads : MOST_THREADS;
}

int64_t pl_default_memory_limit(void) {
    int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t group = pl_cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    return group && (group < bytes || bytes <= 0) ? group : bytes;
}

int pl_request_amx(void) {
#if defined(__linux__) && defined(__x86_64__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 ? 0 : -1;
#else
    return 0;
#endif
}
