// The prefix store in a file, on a disk that is fast enough to be worth it: store_format.h has the file, store_index.h
// what is where, store_writer.h and store_reader.h the two threads that move bytes. Direct I/O through io_uring, or
// buffered, or pread and pwrite, whichever the file system and the kernel allow; stats() says which.
//
//   put: pool -> a buffer (on the caller's thread) -> queue -> writer -> slot, record     all buffers busy: dropped
//                                                  \-> by importance: stays until flush(), which packs
//   load: queue -> reader -> sums compared -> pool, layer by layer
#pragma once

#include <memory>
#include <string>

#include "kv/tiers/prefix_store.h"
#include "kv/tiers/store_format.h"

namespace millrace {

struct SsdStoreOptions {
  std::string path;
  int64_t bytes = 0;          // of the file at most
  std::string identity_text;  // what model and arithmetic the bytes are of; with the pool's layout it names the content
  bool uring = true;          // false: not even tried
  bool direct = true;
  StoreOrder order = StoreOrder::arrival;
  double lock_seconds = 4;  // how long to wait for an engine that is just ending
  double scan_seconds =
      1;  // ... and for the records of a file that was there; the rest is read beside the engine's work
  int64_t write_bytes = int64_t{32} << 20;  // that wait to be written, at most; one block always may
};

// Memory that a store of so many bytes on disk takes at most: its buffers, and what it knows of each block. Errors:
// user (not even one block fits).
Result<int64_t> ssd_store_memory(const KvLayout& layout, const SsdStoreOptions& options);

// `pool` must outlive it. What the file holds of the same model and layout is found again; another's is overwritten.
// The destructor finishes what is being written. Errors: user, resource (StoreFile::open).
Result<std::unique_ptr<PrefixStore>> make_ssd_store(KvPool& pool, const SsdStoreOptions& options);

}  // namespace millrace
