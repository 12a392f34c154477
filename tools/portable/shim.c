/* Parts of newer glibcs that the tarball's program brings along, so that it runs with glibc 2.31. Its objects and static
 * libraries were compiled with the headers of a newer one and refer to these names. All are hidden: nothing is exported.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* 2.32: 0 says that the process may have several threads, with which reference counts are atomic. */
HIDDEN char __libc_single_threaded = 0;

/* 2.33 made stat() and its variants functions. In older versions they are macros that call __xstat(), whose first
 * parameter is the version of struct stat. */
enum { STAT_VERSION = 1 };
int __xstat(int version, const char *path, struct stat *out);
int __fxstat(int version, int fd, struct stat *out);
int __lxstat(int version, const char *path, struct stat *out);
int __fxstatat(int version, int fd, const char *path, struct stat *out, int flags);

HIDDEN int stat(const char *restrict path, struct stat *restrict out) { return __xstat(STAT_VERSION, path, out); }
HIDDEN int fstat(int fd, struct stat *out) { return __fxstat(STAT_VERSION, fd, out); }
HIDDEN int lstat(const char *restrict path, struct stat *restrict out) { return __lxstat(STAT_VERSION, path, out); }
HIDDEN int fstatat(int fd, const char *restrict path, struct stat *restrict out, int flags) {
  return __fxstatat(STAT_VERSION, fd, path, out, flags);
}
HIDDEN int fstat64(int fd, struct stat64 *out) { return fstat(fd, (struct stat *)out); }
HIDDEN int stat64(const char *restrict path, struct stat64 *restrict out) { return stat(path, (struct stat *)out); }
HIDDEN int lstat64(const char *restrict path, struct stat64 *restrict out) { return lstat(path, (struct stat *)out); }
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one struct stat");

/* 2.36 */
HIDDEN void arc4random_buf(void *out, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const size_t left = bytes - at;
    if (getentropy((char *)out + at, left < 256 ? left : 256) != 0) __builtin_trap(); /* the kernel has no random bytes */
    at += left < 256 ? left : 256;
  }
}
HIDDEN uint32_t arc4random(void) {
  uint32_t out;
  arc4random_buf(&out, sizeof out);
  return out;
}

/* 2.35: where the unwinder finds the table of the object that contains an address. */
struct search {
  uintptr_t address;
  struct dl_find_object *out;
};
static int has_address(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  const ElfW(Phdr) *frames = NULL;
  int found = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
    if (part->p_type != PT_LOAD || search->address < begin || search->address >= begin + part->p_memsz) continue;
    found = 1;
    search->out->dlfo_map_start = (void *)begin;
    search->out->dlfo_map_end = (void *)(begin + part->p_memsz);
  }
  if (!found || !frames) return 0;
  search->out->dlfo_eh_frame = (void *)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}
HIDDEN int _dl_find_object(void *address, struct dl_find_object *out) {
  struct search search = {(uintptr_t)address, out};
  *out = (struct dl_find_object){0};
  return dl_iterate_phdr(has_address, &search) == 1 ? 0 : -1;
}

#ifdef MILLRACE_PROGRAM
/* 2.34: constructors of the program are called by __libc_start_main. Before, the program passed a function that calls
 * them, which newer versions still call instead of doing it themselves. The loader runs .preinit_array.
 * Linked with --wrap=__libc_start_main. */
typedef int Main(int, char **, char **);
typedef void Init(int, char **, char **);
extern Init *__init_array_start[] HIDDEN, *__init_array_end[] HIDDEN;
extern void _init(void);
int __real___libc_start_main(Main *, int, char **, Init *, void (*)(void), void (*)(void), void *);

static void construct(int argc, char **argv, char **environment) {
  _init();
  for (Init **one = __init_array_start; one < __init_array_end; ++one) (*one)(argc, argv, environment);
}
HIDDEN int __wrap___libc_start_main(Main *main, int argc, char **argv, Init *init, void (*fini)(void),
                                    void (*loader_fini)(void), void *stack) {
  (void)init;
  return __real___libc_start_main(main, argc, argv, construct, fini, loader_fini, stack);
}
#endif
