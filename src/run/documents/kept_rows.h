// KeptRows: the rows of documents that an executor keeps next to a KV cache that a codec encodes: the blocks of a pool,
// found by the tokens of a document's own stream (run/documents/own_stream.h), and the streams that hold them. The
// executor fills them.
//
// A stream holds the rows of one part at a time (RowsLease), all of its blocks or none, so that two of them never wait
// for each other. Rows without a lease stay until their blocks are needed, those first that were used longest ago.
// Engine thread only, but for check().
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "context/document_context.h"
#include "kv/prefix_index.h"
#include "run/executors/executor_stream.h"

namespace millrace {

class KeptRows {
 public:
  static constexpr int64_t kBlockTokens = 16;
  static int64_t blocks(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

  // `pool` has blocks of kBlockTokens, and outlives it. Unless it `shares`, rows are of one stream only.
  KeptRows(KvPool& pool, bool shares) : pool_(pool), index_(pool, 0), shares_(shares) {}

  // Checks that the plan's parts fit, in streams of KV format `format`. Any thread. Errors: unsupported, resource.
  Result<void> check(const ContextPlan& plan) const;
  // free + held == total, and every block is referenced once by the index and each lease that hold it. Errors:
  // internal.
  Result<void> check_blocks() const;

  // Computes tokens [first, first + count) of the own stream that has these blocks.
  using Compute = std::function<void(const RowsLease& lease, int64_t first, int64_t count)>;
  // DocumentPlacer::hold_part(): computes what is missing, `most` tokens at a time.
  bool hold(StreamRef stream, const ContextPart& part, int64_t& budget, int64_t most, const Compute& compute);
  // After the stream's next `count` tokens were put, of those that it holds: lets them go where the part ends. Returns
  // how many of them were found.
  static int64_t let_go(StreamRef stream, const ContextPart& part, int64_t count);

 private:
  friend class RowsLease;
  std::shared_ptr<RowsLease> take(StreamRef stream, const ContextPart& part);
  void keep(const RowsLease& lease);

  KvPool& pool_;
  PrefixIndex index_;
  bool shares_;
  int64_t leased_ = 0;  // blocks of all leases
};

// The rows of a part that a stream holds. Ends before its owner does.
class RowsLease {
 public:
  RowsLease(KeptRows& owner, StreamRef stream, const ContextPart& part);
  ~RowsLease();
  RowsLease(const RowsLease&) = delete;
  RowsLease& operator=(const RowsLease&) = delete;

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<BlockId>& blocks() const { return blocks_; }

 private:
  friend class KeptRows;
  bool add(Result<BlockId> block);
  bool complete() const { return computed_ == count_; }

  KeptRows& owner_;
  int64_t begin_;                // first slot of the part
  std::vector<TokenId> tokens_;  // tokens of its own stream, in whole blocks
  int64_t count_;                // number of tokens without those that fill the last block
  uint64_t scope_;
  bool shares_;
  double keep_seconds_;
  std::vector<BlockId> blocks_;  // for all of them
  int64_t found_ = 0;            // tokens that were there already
  int64_t computed_ = 0;         // those, and what was computed since
};

}  // namespace millrace
