/* Stands between a daemon and the system's file calls; tests/chaos/power/shim.py builds it and says what it does.

   Only calls on the machine's own file system are looked at. Those that change it are counted (where `only` is set, those
   of this text), and before the `stop_at`-th the process stops, for its power to be cut or for it to be killed. Where
   that is a sync, the pages of its file that `write_out` has bits of, the last page's the lowest, reach the disk before.
   While it is `lying`, a sync of a file called `name` (of any, where it is empty) is answered as done, with nothing
   written. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct control {
    volatile unsigned stop_at, count, reached, write_out, lying, lied;
    char root[256], only[128], reached_before[128], name[64];
} *control;

static dev_t machine;

/* Called in the daemon's process, before it begins. */
int power_attach(const char *path) {
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *found = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (found == MAP_FAILED || stat(((struct control *)found)->root, &status)) return -1;
    machine = status.st_dev;
    control = found;
    return 0;
}

static int ours(int fd) {
    struct stat status;
    return control && fd >= 0 && !fstat(fd, &status) && status.st_dev == machine;
}

static const char *name_of(int fd, char *buffer, size_t size) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, size - 1);
    buffer[length < 0 ? 0 : length] = 0;
    char *slash = strrchr(buffer, '/');
    return slash ? slash + 1 : buffer;
}

static void write_some(int fd) {
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) return;
    for (long page = (status.st_size - 1) / 4096, bit = 0; page >= 0 && bit < 32; page--, bit++)
        if (control->write_out >> bit & 1)
            sync_file_range(fd, page * 4096, 4096,
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
}

static void before(const char *call, int fd, const char *name) {
    char buffer[512], text[sizeof control->reached_before];
    if (!ours(fd) || !control->stop_at) return;
    snprintf(text, sizeof text, "%s %s", call, name ? name : name_of(fd, buffer, sizeof buffer));
    if (control->only[0] && strcmp(control->only, text)) return;
    if (__sync_add_and_fetch(&control->count, 1) != control->stop_at) return;
    memcpy(control->reached_before, text, sizeof text);
    if (!strcmp(call, "fdatasync")) write_some(fd);
    control->reached = 1;
    for (;;) raise(SIGSTOP);
}

static int sync_by(const char *call, int number, int fd) {
    char buffer[512];
    before(call, fd, 0);
    if (ours(fd) && control->lying && (!control->name[0] || !strcmp(name_of(fd, buffer, sizeof buffer), control->name))) {
        __sync_add_and_fetch(&control->lied, 1);
        return 0;
    }
    return syscall(number, fd);
}

int fdatasync(int fd) { return sync_by("fdatasync", SYS_fdatasync, fd); }
int fsync(int fd) { return sync_by("fsync", SYS_fsync, fd); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    before("pwritev", fd, 0);
    return REAL(pwritev64v2)(fd, parts, count, offset, flags);
}

int ftruncate64(int fd, off64_t size) {
    before("ftruncate", fd, 0);
    return REAL(ftruncate64)(fd, size);
}

int renameat(int from, const char *name, int to, const char *target) {
    before("renameat", from, name);
    return REAL(renameat)(from, name, to, target);
}

int unlinkat(int fd, const char *name, int flags) {
    before("unlinkat", fd, name);
    return REAL(unlinkat)(fd, name, flags);
}

int mkdirat(int fd, const char *name, mode_t mode) {
    before("mkdirat", fd, name);
    return REAL(mkdirat)(fd, name, mode);
}

int openat64(int fd, const char *name, int flags, ...) {
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        va_end(more);
        before("openat create", fd, name);
    }
    return REAL(openat64)(fd, name, flags, mode);
}
