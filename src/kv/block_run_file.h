// A run of blocks in a file: the keys and values of the first tokens of a stream, in a range of layers, for another
// process or machine with the same model.
//
//   | header: 64 bytes | identity | layout | tokens: int32 each | payload: layer by layer, block by block | state |
//
// `state` is that of the recurrent layers behind the last token, as in a slot of StatePool; other models have none.
//
// `identity` is the caller's text for everything that keys and values depend on; the layout's text is created here. A
// file is used only if both are equal, its sizes agree, and the hashes of the header and of the payload match.
// Everything on disk is little-endian and frozen; any change requires a new version. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv/pool.h"
#include "millrace/token.h"
#include "tensor/mapped_file.h"

namespace millrace {

inline constexpr uint32_t kBlockRunVersion = 1;

struct BlockRun {
  std::string identity;
  std::vector<TokenId> tokens;  // whole blocks
  int64_t layer_begin = 0;
  int64_t layer_end = 0;          // exclusive
  std::vector<float> state = {};  // slot_values() behind the last token; empty: no layer is recurrent
};

// Writes the run in `blocks`, one for each layout().block_tokens tokens. The file appears under its name when it is
// complete. Errors: user (tokens that are not whole blocks, a range of layers that the pool does not have), unsupported
// (a part of a model with recurrent layers), resource (the disk).
Result<void> export_blocks(KvPool& pool, std::span<const BlockId> blocks, const BlockRun& run, const std::string& path);

class BlockRunFile {
 public:
  // Checks everything except the payload. Errors: corrupt (the file is missing, cut off or damaged, is no file of keys
  // and values, or has another version), user (it belongs to another model or layout; the message says what differs).
  static Result<BlockRunFile> open(const std::string& path, const KvPool& pool, const std::string& identity);

  const BlockRun& run() const { return run_; }
  int64_t blocks() const { return blocks_; }
  // Copies the first blocks.size() blocks into these; checks the whole payload before it writes any. With recurrent
  // layers, run().state is then that behind the file's last block. Errors: corrupt.
  Result<void> read(KvPool& pool, std::span<const BlockId> blocks);

 private:
  BlockRunFile() = default;
  std::shared_ptr<const MappedFile> file_;
  BlockRun run_;
  int64_t blocks_ = 0;
  int64_t payload_at_ = 0;
  uint64_t payload_hash_ = 0;
};

}  // namespace millrace
