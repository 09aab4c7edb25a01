/* A slow disk, to be preloaded: regular files and folders below SLOW_FILES write 20 MB a second, and fsync takes 200 ms.
   cc -O2 -shared -fPIC -o slow_files.so slow_files.c -ldl; tests/under_load.py does it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define BYTES_PER_SECOND 20e6
#define SYNC_SECONDS 0.2

static int is_slow(int descriptor) {
    const char *folder = getenv("SLOW_FILES");
    struct stat status;
    char link[64], path[4096];
    if (!folder || fstat(descriptor, &status) || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path);
    size_t wanted = strlen(folder);
    return length >= (ssize_t)wanted && !strncmp(path, folder, wanted);
}

static void wait_for(int descriptor, double seconds) {
    if (!is_slow(descriptor))
        return;
    struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left))
        ;
}

#define SLOW(type, name, seconds, parameters, arguments)      \
    type name parameters {                                    \
        static type(*real) parameters;                        \
        if (!real)                                            \
            real = dlsym(RTLD_NEXT, #name);                   \
        type result = real arguments;                         \
        if (result >= 0)                                      \
            wait_for(descriptor, seconds);                    \
        return result;                                        \
    }

SLOW(ssize_t, write, result / BYTES_PER_SECOND, (int descriptor, const void *bytes, size_t n), (descriptor, bytes, n))
SLOW(ssize_t, writev, result / BYTES_PER_SECOND, (int descriptor, const struct iovec *parts, int n), (descriptor, parts, n))
SLOW(ssize_t, pwrite64, result / BYTES_PER_SECOND, (int descriptor, const void *bytes, size_t n, off_t at), (descriptor, bytes, n, at))
SLOW(ssize_t, sendfile64, result / BYTES_PER_SECOND, (int descriptor, int from, off_t *at, size_t n), (descriptor, from, at, n))
SLOW(int, fsync, SYNC_SECONDS, (int descriptor), (descriptor))
SLOW(int, fdatasync, SYNC_SECONDS, (int descriptor), (descriptor))
