// System calls that POSIX does not have, or that systems name differently: a port changes system.cc alone. Linux-only
// calls appear nowhere else (tools/check_layers), except for io_uring in kv/tiers/uring_io.cc, which other systems do
// without. Linux is tested; the code for macOS has never run.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

namespace millrace {

// ---- Memory ---------------------------------------------------------------------------------------------

// Advice is best effort: a system that does not know it changes nothing.
enum class PageAdvice {
  huge,      // back them by huge pages from now on
  small,     // not
  collapse,  // also turn existing pages into huge ones
  drop,      // free their memory; contents that no file has are lost
  prefetch,  // read them from their file soon
  map,       // read and map them now
};
// `address`: a multiple of the page size.
void advise_pages(const void* address, size_t bytes, PageAdvice advice);

// Makes the heap keep freed memory, and serve large blocks, too: for programs that allocate the same sizes again.
void keep_freed_memory();

// ---- Files ----------------------------------------------------------------------------------------------

int64_t modified_ns(const struct stat& info);  // since the epoch
// Gives the file's first bytes disk space and makes it at least so long; where the file system cannot, by writing them
// if asked. False: see errno.
bool reserve_file_space(int fd, int64_t bytes, bool by_writing);
// Returns true if reads and writes now bypass the page cache; false if the file system cannot.
bool set_direct_io(int fd, bool direct);
// Writes data, and the attributes of the file that are needed to read it, to the disk.
bool sync_data(int fd);
// As mkstemp(), closed on exec. -1: see errno.
int make_scratch_file(char* name);

// ---- Sockets, pipes and signals ---------------------------------------------------------------------------

// Non-blocking and closed on exec. -1: see errno.
int open_socket(int family, int type, int protocol);
// As send(), without SIGPIPE when the peer has gone: of sockets from open_socket() or Boost.Asio.
ssize_t send_quietly(int socket, const void* data, size_t bytes, int flags = 0);
// Both ends closed on exec. False: see errno.
bool open_pipe(std::array<int, 2>& ends);
// Takes a pending signal of the set, which must be blocked, within the time. -1: none came.
int wait_signal(const sigset_t& set, timespec limit);

// ---- Threads and the process --------------------------------------------------------------------------------

int usable_processors();  // processors this process may use; 0: unknown
// Changes the priority of the calling thread, if possible. `idle`: it runs only when no other thread wants to.
void lower_thread_priority(int nice, bool idle);

struct ProcessFigures {
  double start_seconds = 0;  // since the epoch
  int64_t virtual_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t open_files = -1;  // -1: unknown
};
// False: unknown but for open_files.
bool read_process_figures(ProcessFigures& out);
std::vector<std::string> process_arguments();  // with the process's name; empty: unknown

// ---- Processor ------------------------------------------------------------------------------------------

// Asks for AMX's tile registers, 8 KiB a thread. "": agreed; else why not.
std::string ask_for_tiles();
struct ArmFeatures {
  bool dotprod = false, i8mm = false, bf16 = false;
};
ArmFeatures arm_features();

}  // namespace millrace
