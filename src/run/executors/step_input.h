// StepInput, StepOutput: one forward pass as values. The engine describes the chunks of a step in flat arrays, which an
// executor reads; what the pass observed comes back in the same way. Plain data but for StepReferences: objects of this
// process, which a reader of written bytes (run/executors/step_bytes.h) finds again by the streams' ids.
//
//   chunks     [ stream 1: 1 token, 3 blocks | stream 3: 64 tokens, 5 blocks ]
//   tokens     [ 57 |  0 1 ... 63 ]                    and positions
//   blocks     [ 4 9 2 | 7 8 1 5 6 ]                   of each chunk those of its first group, then of its windows
#pragma once

#include <cstdint>
#include <vector>

#include "context/document_context.h"
#include "flow/batch.h"
#include "flow/state_mark.h"
#include "flow/step_plan.h"
#include "kv/pool.h"
#include "kv/token_eviction.h"
#include "run/executors/executor_stream.h"

namespace millrace {

// One chunk. Its counts are of the arrays of the step, in which chunks follow each other.
struct StepChunk {
  RequestId stream = 0;
  int64_t first = 0;          // index of the chunk's first token in the stream
  int64_t slot = 0;           // that the first token takes
  int64_t keys = 0;           // tokens before the chunk that its first token sees, on average over the layers
  int64_t tokens = 0;         // tokens of the chunk
  int64_t drafted = 0;        // how many of these, the last ones, are drafted
  int64_t tree = 0;           // how many of these, the last ones, are a tree: 0 or `drafted`; each has a parent
  int64_t outputs = 0;        // the last tokens, whose logits are wanted
  int64_t blocks = 0;         // blocks of the first group
  int64_t windows = 0;        // further groups
  int64_t segments = 0;       // segments of keys that the tokens see, if it `sees`; else they see all before them
  int64_t segment_heads = 1;  // VisibleKeys::segment_heads
  DocumentWeights documents = {};
  int64_t marks = 0;      // tokens behind which the recurrent state is copied
  int32_t state = -1;     // slot of recurrent states; -1: none
  bool sees = false;      // has segments
  bool answers = false;   // the tokens were sampled, or drafted
  bool samples = false;   // a token is chosen from its outputs
  bool observed = false;  // wants the attention mass of its blocks, if the executor observes it

  bool operator==(const StepChunk&) const = default;
};

// A chunk's blocks in a further group of layers.
struct StepWindow {
  int64_t slot = 0;
  int64_t blocks = 0;

  bool operator==(const StepWindow&) const = default;
};

// Objects of the chunk's stream.
struct StepReferences {
  const LoraMix* adapters = nullptr;         // null: none
  const Request* rows = nullptr;             // has rows in place of tokens, or a reader; null: neither
  int64_t prompt_tokens = 0;                 // tokens of that request's prompt
  const DocumentLease* documents = nullptr;  // documents that an encoder has read; null: none
  TokenEviction* eviction = nullptr;         // the eviction to whose sums the pass adds; null: none
  const ExitGate* exit = nullptr;            // exit gate of its tokens; null: they run every layer
};

struct StepInput {
  std::vector<StepChunk> chunks;
  std::vector<TokenId> tokens;
  std::vector<int64_t> positions;
  std::vector<BlockId> blocks;
  std::vector<StepWindow> windows;
  std::vector<KeySegment> segments;
  // For each token of a tree, the index of its parent among the drafted tokens; -1: the stream's last token.
  std::vector<int32_t> parents;
  std::vector<StateMark> marks;            // marks of all chunks; each chunk's ascend by row
  std::vector<StepReferences> references;  // by chunk
  bool tables = true;  // false: add_chunk() leaves out blocks and windows, which the executor does not read

  void clear();
  // For steps of up to `tokens` tokens of up to `streams` streams of up to `context` tokens, in blocks of `kv`: such
  // steps then allocate nothing.
  void reserve(const KvPool& kv, int64_t streams, int64_t tokens, int64_t context);
};

// The attention mass of a chunk's blocks, in even shares: 1 is a block that draws as much as the others.
struct StepMass {
  int64_t chunk = 0;   // index
  int64_t blocks = 0;  // entries of StepOutput::shares, from the stream's first block on

  bool operator==(const StepMass&) const = default;
};

struct StepOutput {
  std::vector<StepMass> masses;
  std::vector<float> shares;
  std::vector<int64_t> failed;  // chunks, some of whose rows a PromptReader could not read
  std::vector<int64_t> unread;  // chunks, some of whose streams' keys could not be read: what they computed is wrong

  bool operator==(const StepOutput&) const = default;
  void clear();
};

// The data of a stream that its chunk is made from.
struct StepSource {
  StreamRef stream;
  const ContextPlan& context;
  std::span<const KeySegment> sees = {};  // context.sees, in the slots that an evictor leaves
  int64_t sees_lists = 1;
  TokenEviction* eviction = nullptr;  // null: none
  const ExitGate* exit = nullptr;     // null: its tokens run every layer
};

// Adds a chunk, whose blocks the stream has.
void add_chunk(const StepSource& source, const PlannedChunk& chunk, StepInput& input);

}  // namespace millrace
