/* Fails the n-th write below a folder: preloaded (LD_PRELOAD) before the C library, so that writes of every language fail.
   A full disk (ENOSPC) takes half of the data first, then nothing more for good; EIO fails one write. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static long seen = 0, target = 0;
static int code = 0;

void fail_writes(const char *below, long nth, int number) {
    snprintf(folder, sizeof folder, "%s", below);
    seen = 0, target = nth, code = number;
}

long writes_seen(void) { return seen; }

static int is_below(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

/* 0: write as usual; 1: write a half; 2: fail */
static int fault(int fd) {
    int before = errno;
    int applies = folder[0] && is_below(fd);
    errno = before;
    if (!applies) return 0;
    seen++;
    if (!target || seen < target) return 0;
    if (code == ENOSPC) return seen == target ? 1 : 2;
    return seen == target ? 2 : 0;
}

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    int kind = fault(fd);
    if (kind == 1 && size > 1) return real(fd, data, size / 2);
    if (kind) { errno = code; return -1; }
    return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = dlsym(RTLD_NEXT, "writev");
    if (fault(fd)) { errno = code; return -1; }
    return real(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    if (fault(fd)) { errno = code; return -1; }
    return real(fd, data, size, at);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    if (fault(fd)) { errno = code; return -1; }
    return real(fd);
}
