/* Faults below a folder, for LD_PRELOAD on Linux of 64 bits (see faults.py).

   Each call that changes files below the folder is a step, whichever thread or library makes it: Python, SQLite,
   DuckDB or Arrow. Steps are counted and listed. At one of them the process is killed, or the disk is full or broken. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, BEFORE, AFTER, HALF, FULL_ONCE, FULL, BROKEN, SHORT, FAILED }; /* up to BROKEN as in faults.py */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX], list[1 << 20];
static size_t listed;
static long steps, wanted;
static int fault, full;

/* Begin to count the steps below a path, which is absolute; 0 is no step. */
void faults_begin(const char *path, long step, int kind)
{
    snprintf(folder, sizeof folder, "%s", path);
    steps = listed = full = list[0] = 0;
    wanted = step;
    fault = kind;
}

/* Return the steps so far: what was called, and for which path, a line each. */
const char *faults_list(void) { return list; }

static void end(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* Find the path of a name in an open folder, or of a descriptor (without a name); return whether it is below ours. */
static int below(int at, const char *name, char *path)
{
    size_t length = strlen(folder), size = 0;
    int before = errno;
    if (length == 0)
        return 0;
    if (name == NULL || *name != '/') {
        char link[64];
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t found = readlink(link, path, PATH_MAX - 1);
        errno = before;
        if (found < 0)
            return 0;
        size = (size_t)found;
        path[size] = 0;
    }
    if (name != NULL)
        snprintf(path + size, PATH_MAX - size, size ? "/%s" : "%s", name);
    return strncmp(path, folder, length) == 0 && (path[length] == 0 || path[length] == '/');
}

/* Count a step; end the process, or return what to do, with errno if that is to fail. */
static int step(const char *call, const char *path, int takes_room)
{
    pthread_mutex_lock(&lock);
    int now = ++steps == wanted ? fault : NOTHING;
    full = full || now == FULL;
    if (listed < sizeof list - 1) {
        const char *name = path + strlen(folder);
        listed += (size_t)snprintf(list + listed, sizeof list - listed, "%s %s\n", call, *name ? name + 1 : ".");
    }
    pthread_mutex_unlock(&lock);
    if (now == BEFORE)
        end();
    if (now == FULL && strcmp(call, "write") == 0)
        return SHORT; /* what has room is written; the next write is refused */
    if (now == FULL_ONCE || (full && takes_room)) {
        errno = ENOSPC;
        return FAILED;
    }
    if (now == BROKEN) {
        errno = EIO;
        return FAILED;
    }
    return now;
}

#define STEP(at, name, called, takes_room, call, half)          \
    do {                                                        \
        char path[PATH_MAX];                                    \
        if (!below(at, name, path))                             \
            return call;                                        \
        int what = step(called, path, takes_room);              \
        if (what == FAILED)                                     \
            return -1;                                          \
        __typeof__(call) result = what == HALF || what == SHORT ? half : call; \
        if (what == HALF || what == AFTER)                      \
            end();                                              \
        return result;                                          \
    } while (0)

/* Content. Half of a vector is half of its first part, of one that has any bytes. */

ssize_t write(int file, const void *data, size_t size)
{
    STEP(file, NULL, "write", 1, syscall(SYS_write, file, data, size), syscall(SYS_write, file, data, (size + 1) / 2));
}

ssize_t pwrite(int file, const void *data, size_t size, off_t place)
{
    STEP(file, NULL, "write", 1, syscall(SYS_pwrite64, file, data, size, place),
         syscall(SYS_pwrite64, file, data, (size + 1) / 2, place));
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t place) { return pwrite(file, data, size, place); }

ssize_t writev(int file, const struct iovec *parts, int count)
{
    int first = 0;
    while (first < count - 1 && parts[first].iov_len == 0)
        first++;
    STEP(file, NULL, "write", 1, syscall(SYS_writev, file, parts, count),
         syscall(SYS_write, file, parts[first].iov_base, (parts[first].iov_len + 1) / 2));
}

int ftruncate(int file, off_t size) { STEP(file, NULL, "truncate", 0, (int)syscall(SYS_ftruncate, file, size), 0); }

int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

int fsync(int file) { STEP(file, NULL, "sync", 0, (int)syscall(SYS_fsync, file), 0); }

int fdatasync(int file) { STEP(file, NULL, "sync", 0, (int)syscall(SYS_fdatasync, file), 0); }

/* Names */

static int opened(int at, const char *name, int flags, mode_t mode)
{
    struct stat found;
    int before = errno, is_new = flags & O_CREAT && fstatat(at, name, &found, AT_SYMLINK_NOFOLLOW) != 0;
    errno = before;
    if (!is_new && !(flags & O_TRUNC))
        return (int)syscall(SYS_openat, at, name, flags, mode);
    STEP(at, name, "open", is_new, (int)syscall(SYS_openat, at, name, flags, mode), 0);
}

#define MODE                                        \
    va_list more;                                   \
    va_start(more, flags);                          \
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0; \
    va_end(more)

int open(const char *name, int flags, ...) { MODE; return opened(AT_FDCWD, name, flags, mode); }

int open64(const char *name, int flags, ...) { MODE; return opened(AT_FDCWD, name, flags, mode); }

int openat(int at, const char *name, int flags, ...) { MODE; return opened(at, name, flags, mode); }

int openat64(int at, const char *name, int flags, ...) { MODE; return opened(at, name, flags, mode); }

int renameat2(int at, const char *name, int to, const char *other, unsigned int flags)
{
    STEP(to, other, "rename", 1, (int)syscall(SYS_renameat2, at, name, to, other, flags), 0);
}

int renameat(int at, const char *name, int to, const char *other) { return renameat2(at, name, to, other, 0); }

int rename(const char *name, const char *other) { return renameat2(AT_FDCWD, name, AT_FDCWD, other, 0); }

int linkat(int at, const char *name, int to, const char *other, int flags)
{
    STEP(to, other, "link", 1, (int)syscall(SYS_linkat, at, name, to, other, flags), 0);
}

int link(const char *name, const char *other) { return linkat(AT_FDCWD, name, AT_FDCWD, other, 0); }

int mkdir(const char *name, mode_t mode)
{
    struct stat found;
    if (lstat(name, &found) == 0) {
        errno = EEXIST;
        return -1;
    }
    STEP(AT_FDCWD, name, "mkdir", 1, (int)syscall(SYS_mkdirat, AT_FDCWD, name, mode), 0);
}

int unlinkat(int at, const char *name, int flags)
{
    STEP(at, name, "unlink", 0, (int)syscall(SYS_unlinkat, at, name, flags), 0);
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }

int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
