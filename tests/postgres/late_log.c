/* A library to preload into a PostgreSQL server: each write to its log begins LATE_US microseconds late.
 * A server that is killed meanwhile has lost exactly what it has not written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_log(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return strstr(path, "pg_wal") != NULL;
}

#define LATE(NAME) \
ssize_t NAME(int file, const void *bytes, size_t length, off_t offset) { \
    static ssize_t (*write_at)(int, const void *, size_t, off_t); \
    static long late_us; \
    if (!write_at) { \
        const char *given = getenv("LATE_US"); \
        late_us = given ? atol(given) : 0; \
        write_at = dlsym(RTLD_NEXT, #NAME); \
    } \
    if (late_us > 0 && is_log(file)) usleep(late_us); \
    return write_at(file, bytes, length, offset); \
}

LATE(pwrite)
LATE(pwrite64)
