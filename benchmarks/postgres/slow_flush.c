/* A library to preload into a PostgreSQL server: each flush of its log takes SLOW_US microseconds longer. */
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

int fdatasync(int file) {
    static int (*flush)(int);
    static long slower_us;
    if (!flush) {
        const char *given = getenv("SLOW_US");
        slower_us = given ? atol(given) : 0;
        flush = dlsym(RTLD_NEXT, "fdatasync");
    }
    int result = flush(file);
    if (slower_us > 0 && is_log(file)) usleep(slower_us);
    return result;
}
