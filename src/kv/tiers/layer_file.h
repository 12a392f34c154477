// LayerFile: a scratch file for the blocks of a pool that have memory in a few layers at a time (kv/staged_layers.h).
// The keys and values of one block in one layer are a record; the records of a layer are adjacent, in the order of
// their blocks, so that the blocks of a stream are read in large pieces:
//
//   file   [ layer 0: block r | block r+1 | ... ] [ layer 1: block r | block r+1 | ... ] ...     r: resident blocks
//
// read() and write() begin a transfer and return; a thread of the file carries transfers out in their order, with many
// pieces in flight. A layer's memory may be read into by another layer of its turn after write(): its bytes are taken
// before a later read() begins. Records have checksums, which are in memory: what the disk returns is compared with
// what was written. The file has no name, and its space is free again when the process ends.
//
// All calls are from one thread, the engine's.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/pool.h"

namespace millrace {

struct LayerFileOptions {
  std::string folder;  // where the file is created
  bool uring = true, direct = true;
};

struct LayerFileStats {
  std::string_view io;  // "io_uring", "pread"
  bool direct = false;  // bypasses the page cache
  int64_t read_bytes = 0, written_bytes = 0;
  int64_t failed_blocks = 0;  // could not be read, or were damaged
};

class LayerFile {
 public:
  using Transfer = uint64_t;  // ascending; 0: none

  // `pool` outlives the file. Errors: user (no such folder), resource (space).
  static Result<std::unique_ptr<LayerFile>> create(KvPool& pool, const LayerFileOptions& options);
  // Bytes of memory of a file for `blocks` blocks, `resident` of which are not in it.
  static int64_t memory(const KvLayout& layout, int64_t blocks, int64_t resident);
  virtual ~LayerFile() = default;

  // Begins to read a layer of these blocks, ascending and none of them resident, into the pool.
  virtual Transfer read(int64_t layer, std::span<const BlockId> blocks) = 0;
  // Begins to write them.
  virtual Transfer write(int64_t layer, std::span<const BlockId> blocks) = 0;
  // Waits until a transfer and all before it are done. Writes are done when their bytes have been taken.
  virtual void wait(Transfer transfer) = 0;
  // Returns true if wait() would return at once.
  virtual bool is_done(Transfer transfer) const = 0;
  // Appends the blocks that reads could not get intact since the last call, in any order and perhaps more than once.
  // Blocks whose writes failed are among them when they are read.
  virtual void take_failed(std::vector<BlockId>& blocks) = 0;
  // Copies all layers of a block to another one; either may be resident. Waits for transfers. The memory of the turns
  // is overwritten.
  virtual void copy(BlockId from, BlockId to) = 0;
  virtual LayerFileStats stats() const = 0;
};

}  // namespace millrace
