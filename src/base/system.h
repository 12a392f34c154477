// System calls that POSIX does not have, or that systems name differently. A port to another system changes only
// system.cc. Linux-only calls appear nowhere else (tools/check_layers), except for io_uring in kv/tiers/uring_io.cc,
// which is optional. Linux is tested; the code for macOS has never run.
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

// Advice on pages of memory. A system that does not support an advice ignores it.
enum class PageAdvice {
  huge,      // use huge pages from now on
  small,     // do not use huge pages from now on
  collapse,  // use huge pages, and turn existing pages into huge ones
  drop,      // free the pages' memory; contents that are not in a file are lost
  prefetch,  // start reading the pages from their file
  map,       // read and map the pages now
};
// `address`: a multiple of the page size.
void advise_pages(const void* address, size_t bytes, PageAdvice advice);

// Makes the heap keep freed memory and serve large blocks, too. For programs that allocate the same sizes repeatedly.
void keep_freed_memory();

// ---- Files ----------------------------------------------------------------------------------------------

int64_t modified_ns(const struct stat& info);  // since the epoch
// Reserves disk space for the file's first `bytes` and extends a shorter file to that size. If the file system cannot
// reserve space, writes the bytes if `by_writing`, else fails. Returns false with errno set.
bool reserve_file_space(int fd, int64_t bytes, bool by_writing);
// Returns true if reads and writes now bypass the page cache; false if the file system cannot.
bool set_direct_io(int fd, bool direct);
// Asks the system to drop bytes [begin, begin + bytes) of a file that is only read from the page cache.
void drop_cached_pages(int fd, int64_t begin, int64_t bytes);
// Writes the file's data to the disk, and the attributes that are needed to read the data.
bool sync_data(int fd);
// Creates a file like mkstemp(), with close-on-exec. Returns -1 with errno set.
int make_scratch_file(char* name);
// Creates an empty file in memory, which exists until its descriptor is closed and nothing maps it. Returns -1 with
// errno set, ENOSYS where the system has none.
int make_memory_file(const char* name);

// ---- Sockets, pipes and signals ---------------------------------------------------------------------------

// Opens a non-blocking socket with close-on-exec. Returns -1 with errno set.
int open_socket(int family, int type, int protocol);
// Sends data like send(), but without SIGPIPE if the peer has closed the connection. `socket`: from open_socket() or
// Boost.Asio.
ssize_t send_quietly(int socket, const void* data, size_t bytes, int flags = 0);
// Opens a pipe with close-on-exec at both ends. Returns false with errno set.
bool open_pipe(std::array<int, 2>& ends);
// Waits up to `limit` for a signal of `set`, and returns it. The signals must be blocked. Returns -1 after the limit.
int wait_signal(const sigset_t& set, timespec limit);

// ---- Threads and the process --------------------------------------------------------------------------------

int usable_processors();  // processors this process may use; 0: unknown
// Lowers the priority of the calling thread, if possible. `idle`: the thread runs only when no other thread can run.
void lower_thread_priority(int nice, bool idle);

struct ProcessFigures {
  double start_seconds = 0;  // since the epoch
  int64_t virtual_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t open_files = -1;  // -1: unknown
};
// Returns false if all but open_files is unknown.
bool read_process_figures(ProcessFigures& out);
std::vector<std::string> process_arguments();  // with the process's name; empty: unknown
std::string program_path();                    // the file of this program; "": unknown
// This process receives SIGTERM when the thread that started it ends, if the system supports that.
void end_with_parent();

// ---- Processor ------------------------------------------------------------------------------------------

// Asks the system for permission to use AMX tile registers, 8 KiB per thread. Returns "" if granted, else the reason.
std::string ask_for_tiles();
struct ArmFeatures {
  bool dotprod = false, i8mm = false, bf16 = false;
};
ArmFeatures arm_features();

}  // namespace millrace
