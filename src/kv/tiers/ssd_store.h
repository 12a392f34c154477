// The prefix store in a file on a fast disk. store_format.h defines the file, store_index.h records where each block is
// stored, and store_writer.h and store_reader.h are the two threads that move bytes. Uses direct I/O through io_uring,
// buffered I/O, or pread and pwrite, depending on the file system and the kernel; stats() reports which.
//
//   put: pool -> a buffer (on the caller's thread) -> queue -> writer -> slot, record    dropped if buffers are busy
//                                                  \-> by importance: staged until flush(), which packs
//   load: queue -> reader -> verify sums -> pool, layer by layer
#pragma once

#include <memory>
#include <string>

#include "kv/tiers/prefix_store.h"
#include "kv/tiers/store_format.h"

namespace millrace {

struct SsdStoreOptions {
  std::string path;
  int64_t bytes = 0;          // maximum file size
  std::string identity_text;  // model and arithmetic; together with the pool's layout it identifies the content
  bool uring = true;          // false: do not try io_uring
  bool direct = true;
  StoreOrder order = StoreOrder::arrival;
  double lock_seconds = 4;       // how long to wait for a previous engine that is shutting down
  double scan_seconds = 1;       // ... and for the records of an existing file; the rest is scanned in the background
  double deadline_seconds = 10;  // limit of a load
  int64_t write_bytes = int64_t{32} << 20;  // limit of queued writes; one block is always allowed
};

// Upper bound of the memory used by a store of this size: its buffers and its index. Errors: user (not even one block
// fits).
Result<int64_t> ssd_store_memory(const KvLayout& layout, const SsdStoreOptions& options);

// `pool` must outlive it. Blocks of the same model and layout that are in the file are found again; a file of another
// model or layout is overwritten. The destructor completes pending writes. Errors: user, resource (StoreFile::open).
Result<std::unique_ptr<PrefixStore>> make_ssd_store(KvPool& pool, const SsdStoreOptions& options);

}  // namespace millrace
