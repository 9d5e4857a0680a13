/* Limits of control groups, on made-up trees; thread counts from the environment. */
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char root[64];

static void put(const char* path, const char* text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char* p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE* f = fopen(full, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char* at(const char* path) {
    static char full[2][256];
    static int turn;
    turn = !turn;
    snprintf(full[turn], sizeof full[turn], "%s/%s", root, path);
    return full[turn];
}

static void version_two(void) {
    put("two.txt", "0::/user/job\n");
    put("two/user/job/cpu.max", "max 100000\n");
    put("two/user/job/memory.max", "max\n");
    CHECK(pl_cgroup_cpus(at("two.txt"), at("two")) == 0);
    CHECK(pl_cgroup_memory(at("two.txt"), at("two")) == 0);
    put("two/user/cpu.max", "250000 100000\n"); /* the parent's quota binds */
    put("two/user/memory.max", "1073741824\n");
    CHECK(pl_cgroup_cpus(at("two.txt"), at("two")) == 3);
    CHECK(pl_cgroup_memory(at("two.txt"), at("two")) == 1 << 30);
    put("two/user/job/cpu.max", "50000 100000\n");
    CHECK(pl_cgroup_cpus(at("two.txt"), at("two")) == 1);
}

static void version_one(void) {
    put("one.txt", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n0::/\n");
    put("one/cpu/cpu.cfs_quota_us", "-1\n");
    put("one/cpu/cpu.cfs_period_us", "100000\n");
    CHECK(pl_cgroup_cpus(at("one.txt"), at("one")) == 0);
    put("one/cpu/cpu.cfs_quota_us", "400000\n"); /* a container sees its group as the root */
    CHECK(pl_cgroup_cpus(at("one.txt"), at("one")) == 4);
    put("one/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "150000\n");
    put("one/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
    CHECK(pl_cgroup_cpus(at("one.txt"), at("one")) == 2);
    put("one/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n");
    put("one/memory/memory.limit_in_bytes", "4096\n");
    CHECK(pl_cgroup_memory(at("one.txt"), at("one")) == 4096);
}

static void nonsense(void) {
    CHECK(pl_cgroup_cpus("/does/not/exist", "/neither") == 0);
    char line[9000];
    memset(line, 'x', sizeof line);
    memcpy(line, "0::/", 4);
    line[sizeof line - 1] = 0;
    put("odd.txt", line);
    CHECK(pl_cgroup_cpus(at("odd.txt"), at("two")) == 0);
    put("odd.txt", "\n:\n::\n0::\nabc\n4:cpu:\n");
    put("two/cpu.max", "garbage\n");
    put("two/memory.max", "-7\n");
    CHECK(pl_cgroup_cpus(at("odd.txt"), at("two")) == 0);
    CHECK(pl_cgroup_memory(at("odd.txt"), at("two")) == 0);
}

static int64_t threads_with(const char* pliant, const char* omp) {
    pliant ? setenv("PLIANT_NUM_THREADS", pliant, 1) : unsetenv("PLIANT_NUM_THREADS");
    omp ? setenv("OMP_NUM_THREADS", omp, 1) : unsetenv("OMP_NUM_THREADS");
    return pl_default_threads();
}

static void environment(void) {
    int64_t machine = threads_with(NULL, NULL);
    CHECK(machine >= 1);
    CHECK(threads_with("7", "3") == 7);
    CHECK(threads_with(NULL, "3,2") == 3);
    CHECK(threads_with("0", "3") == 3);
    CHECK(threads_with("x", "-2") == machine);
    CHECK(threads_with("", "4x") == machine);
    CHECK(threads_with("999999999999999999999", NULL) == 1024);
}

int main(void) {
    snprintf(root, sizeof root, "/tmp/pliant-system-XXXXXX");
    CHECK(mkdtemp(root));
    version_two();
    version_one();
    nonsense();
    environment();
    CHECK(pl_default_memory_limit() > 0);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}
