// Which models and KV formats token evictors can run on.
#pragma once

#include "attention/pattern.h"
#include "kv/pool.h"
#include "kv/token_evictor.h"
#include "millrace/options.h"
#include "models/arch_spec.h"

namespace millrace {

// Streams of at most `context` tokens. Errors: unsupported.
Result<void> check_token_evictor(const EvictionRule& rule, const ArchSpec& spec, int64_t context);

// Layers with a window shorter than `context` need blocks of their own, and codecs do not go with every rule. Errors:
// unsupported.
Result<void> check_evictor_layout(const EvictionRule& rule, const KvLayout& layout, int64_t context);
// The same of an engine's pool, which must also have been planned for evictors if it has such layers.
Result<void> check_evictor_pool(const EvictionRule& rule, const KvPool& pool, int64_t context);
// Of a rule that moves keys: `spec` is of all layers of the stream. Errors: unsupported.
Result<void> check_moved_positions(const EvictionRule& rule, const ArchSpec& spec, const KvLayout& layout);
// Where layers have budgets and blocks of their own (KvLayout::by_layer): what an engine cannot have beside them. The
// first `own_layers` are the model's, others a drafter's. Errors: unsupported.
Result<void> check_layer_blocks(const EngineOptions& options, const EvictionRule& rule, const KvLayout& layout,
                                int64_t own_layers, int64_t context);
inline constexpr const char* kBlocksByLayer =
    "evictor: its budgets differ by layer, and every layer has blocks of its own, so that prefixes, files, stores and "
    "tiers of blocks of all layers, document contexts and beam search are not possible beside it; omit one of the two";
// Beside an attention pattern; null: none. Errors: unsupported.
Result<void> check_evictor_pattern(const EvictionRule& rule, const AttentionPattern* pattern, const KvLayout& layout);
// Of a draft model, whose layers are in the first group. Errors: unsupported.
Result<void> check_evictor_draft(const ArchSpec& spec, int64_t context);

}  // namespace millrace
