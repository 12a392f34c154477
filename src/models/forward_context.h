// ForwardContext: the working memory of a forward pass. Sized once, for the largest step; a step allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/codec_tiles.h"
#include "attention/shared_prefixes.h"
#include "base/thread_pool.h"
#include "flow/batch.h"
#include "kernels/kernel_table.h"
#include "kernels/linear.h"
#include "kv/pool.h"
#include "models/arch_spec.h"
#include "models/exited_rows.h"
#include "models/forward_hooks.h"
#include "models/forward_sizes.h"
#include "models/key_stager.h"
#include "models/weight_source.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

struct ForwardBytes {
  int64_t activations = 0;  // everything else
  int64_t logits = 0;
};

// The scratch buffers of one step; this is the only list of them: name, bytes, shape. `d` are the ForwardSizes that
// blocks and mixers have declared (forward_sizes.h). A mixer with its own buffers divides up `mixer`.
// clang-format off
#define MILLRACE_FORWARD_BUFFERS(ADD) \
  ADD(residual, 4 * d.tokens * d.width)         /* [T, width] */                             \
  ADD(normed, 4 * d.tokens * d.width)           /* [T, width] */                             \
  ADD(block_out, 4 * d.tokens * d.width)        /* [T, width] */                             \
  ADD(q, 4 * d.tokens * d.q_width)              /* [T, heads * dim] */                       \
  ADD(k, 4 * d.tokens * d.kv_width)             /* [T, kv_heads * dim] */                    \
  ADD(v, 4 * d.tokens * d.kv_width)             /* [T, kv_heads * dim] */                    \
  ADD(attended, 4 * d.tokens * d.q_width)       /* [T, heads * dim] */                       \
  ADD(gate, 4 * d.tokens * d.hidden)            /* [T * used experts, hidden] */             \
  ADD(up, 4 * d.tokens * d.hidden)              /* [T * used experts, hidden] */             \
  ADD(encoded, d.rows * d.widest_row)           /* activation rows of the widest input */    \
  ADD(encoded_hidden, d.tokens * d.hidden_row)  /* activation rows of the MLP's inner width */ \
  ADD(rope, 4 * d.tokens * d.rotated)           /* [ropes][T][cos, sin][rotated / 2] */      \
  ADD(partials, d.partials)                     /* attention: see attention/full.cc */       \
  ADD(mixer, d.mixer)                           /* see models/mixers/ */                     \
  ADD(parts, d.parts)                           /* see blocks/part_scratch.h */              \
  ADD(layer_inputs, 4 * d.tokens * d.inputs)    /* [T, layers, layer_input] */               \
  ADD(streams, 4 * d.tokens * d.streams)        /* [T, streams, width] */                    \
  ADD(beside, 4 * d.tokens * d.beside)          /* [T, width] */                             \
  ADD(logits, 4 * d.outputs * d.vocab)          /* [limits.outputs, vocab] */                \
  ADD(router, 4 * d.tokens * d.experts)         /* [T, experts] */                           \
  ADD(expert_in, d.expert_rows * d.expert_row)  /* gathered activation rows */               \
  ADD(expert_out, 4 * d.expert_rows * d.width)  /* [T * used, width] */
// clang-format on

class AttentionWorkers;
struct LayerWeights;
struct NormWeights;
struct SkippedBlocks;

// Data of a product that hooks need in addition to its LinearPart.
struct LinearSource {
  LinearId id;
  const float* x = nullptr;  // [tokens, cols]
};

// For the block tables of `streams` streams of at most `context` tokens.
void reserve_tables(const KvPool& kv, int64_t streams, int64_t context, Batch& batch);

class ForwardContext {
 public:
  // The bytes that create() will allocate.
  static ForwardBytes plan(const ArchSpec& spec, const ForwardLimits& limits, int threads, int64_t block_tokens);
  static ForwardBytes plan(const ArchSpec& spec, const ForwardLimits& limits, int threads, const KvLayout& layout);

  // Errors: resource.
  static Result<ForwardContext> create(const ArchSpec& spec, const KernelTable& kernels, ThreadPool& pool, KvPool& kv,
                                       const ForwardLimits& limits);

  const KernelTable& kernels() const { return *kernels_; }
  ThreadPool& pool() const { return *pool_; }
  KvPool& kv() const { return *kv_; }
  const ForwardLimits& limits() const { return limits_; }
  const ShapeTable* shapes() const { return limits_.switches.shapes.get(); }
  const FusedParts& fused() const { return limits_.switches.fused; }
  int64_t bytes() const;
  // Called before a pass over `rows` rows. Until a pass has many rows, the buffers' pages are small: the first token of
  // a short prompt then does not wait for huge pages to be zeroed.
  void expect_rows(int64_t rows);
  const PartSizes& part_sizes() const { return part_sizes_; }
  // Returns true if products are only their matrices: no hooks, no weight parts.
  bool plain_products() const { return hooks.empty() && !part_sizes_.any; }

  ForwardHooks hooks;

  // The layer of the KV pool that has the keys and values of the model's first layer.
  int64_t first_kv_layer = 0;

  // The norm of the last block's output, which the next pass over the rows adds to the residual; null: nothing to add.
  const NormWeights* pending = nullptr;
  // The keys that the present layer's gates hide.
  KeyLifetimes key_lifetimes;
  // true: spans of one token read the keys that they share once in the pass, even if the switch is off.
  bool shares_keys = false;
  // Blocks that the pass leaves out; null: none.
  const SkippedBlocks* skipped = nullptr;
  // Rows that have left the pass before its last layer.
  ExitedRows exits;
  // Weight source of the pass's model; null: its weights are all resident.
  WeightSource* source = nullptr;
  // Brings keys and values to the pool, layer by layer; null: all of them are there.
  KeyStager* stager = nullptr;
  // The layer behind the present one, whose router may run early; null: there is none.
  const LayerWeights* next_layer = nullptr;
  // Hold the keys and values, and run attention (attention/workers/workers.h); null: attention is in place.
  AttentionWorkers* workers = nullptr;
  int64_t lane = 0;  // number of the mini-batch that this context runs, for `workers`
  // Weights of the present pass could not be read, and what it computes means nothing. ModelRunner::start() and
  // take_failure() clear it.
  bool failed = false;
  // The first error of reading weights since the last take_failure(), in any pass.
  std::optional<Error> read_error;

  // Notes that the present pass could not read weights.
  void fail(const Error& error) {
    failed = true;
    if (!read_error) read_error = error;
  }

  // For bidirectional layers: the batch's spans, whose keys and values are in `k` and `v`, and for each span of the
  // batch that attends the number of its first unit of work.
  std::vector<BatchSpan> text_spans;
  std::vector<int64_t> text_units;
  std::vector<uint8_t> token_types;  // by token of the batch, for models with several types

  // The largest buffer that only layers use: free from the last norm until the next pass.
  std::span<float> after_layers();

  // Shared prefixes of the batch, if they were found; null: the pass reads keys for each span.
  const SharedPrefixes* prefixes() const {
    return limits_.switches.attention.shared_prefixes || shares_keys ? &shared_prefixes : nullptr;
  }

  // Tiles of the group of that layer of the KV pool; null: it stores rows.
  CodecTiles* tiles_of(int64_t kv_layer) {
    if (tiles.empty()) return nullptr;
    CodecTiles& own = tiles[static_cast<size_t>(kv_->group_of(kv_layer))];
    return own.any() ? &own : nullptr;
  }

#define MILLRACE_DECLARE_BUFFER(name, size) AlignedBuffer name;
  MILLRACE_FORWARD_BUFFERS(MILLRACE_DECLARE_BUFFER)
#undef MILLRACE_DECLARE_BUFFER
  std::vector<int32_t> chosen;                 // [T, used] experts
  std::vector<float> chosen_weight;            // [T, used]
  std::vector<int32_t> expert_rows;            // rows grouped by expert
  std::vector<int64_t> expert_begin;           // [experts + 1]
  std::vector<LinearPart> expert_parts;        // [2 * experts]
  std::vector<LinearSource> expert_sources;    // ... of the same products
  std::vector<WeightLease> expert_leases;      // on the chosen experts, while they run
  std::vector<int32_t> expert_ids;             // the chosen experts, ascending, where there is a source
  std::vector<int32_t> expert_guesses;         // experts that the next layer will probably choose
  std::vector<float> guess_logits;             // [T, experts], of the next layer's router
  Batch outputs;                               // the last layer's batch, when only some tokens need logits
  std::vector<const uint8_t*> block_pointers;  // per worker: 2 * blocks of one stream
  SharedPrefixes shared_prefixes;              // prefixes of the batch, if prefixes() uses them
  std::vector<CodecTiles> tiles;               // for a KV cache with codecs, by group of its layers

 private:
  const KernelTable* kernels_ = nullptr;
  ThreadPool* pool_ = nullptr;
  KvPool* kv_ = nullptr;
  ForwardLimits limits_;
  PartSizes part_sizes_;
  bool huge_pages_ = false;
};

}  // namespace millrace
