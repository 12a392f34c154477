// The attention patterns, one line each. with_block() adds the option that every member has.
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr double kMost = kMostPatternBlocks;

std::vector<OptionSpec> with_block(std::vector<OptionSpec> own) {
  own.push_back({"block", Type::integer, "64", 16, 4096, "tokens of a block, a multiple of those of a KV block"});
  return own;
}

}  // namespace

// clang-format off
const Registry<AttentionPatternFactory>& attention_patterns() {
  static const Registry<AttentionPatternFactory> registry({.loss = Loss::lossy, .test = "tests/conformance/block_sparse_test.cc", .proof = "docs/sparse-attention.md"}, {
      {{"attention", "full", "Every earlier key, online softmax over fixed partitions of paged blocks", "Dao et al., 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness; Kwon et al., 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention",
        with_block({}), Loss::lossless, "tests/conformance/attention_test.cc"}, make_all_blocks},
      {{"attention", "window", "The last N keys of a sliding window, in layers where the model uses it", "Beltagy et al., 2020, Longformer: The Long-Document Transformer; Jiang et al., 2023, Mistral 7B",
        {}, Loss::lossless, "tests/conformance/attention_test.cc"}, nullptr},
      {{"attention", "sparse_transformer", "a stretch of recent blocks, and every so many blocks one of the older ones", "Child et al., 2019, Generating Long Sequences with Sparse Transformers",
        with_block({{"form", Type::text, "strided", 0, 0, "strided: older blocks at multiples of the stride before the query; fixed: the last blocks of each stretch"},
                    {"stride", Type::integer, "16", 1, kMost, "blocks of a stretch"},
                    {"summary", Type::integer, "1", 1, kMost, "fixed: last blocks of a stretch that later ones see"},
                    {"split", Type::text, "merged", 0, 0, "merged: every head sees both sets; heads, layers: they take turns"}})}, make_sparse_transformer},
      {{"attention", "longformer", "a window, with gaps in some heads, and the first blocks", "Beltagy et al., 2020, Longformer: The Long-Document Transformer",
        with_block({{"window", Type::integer, "16", 1, kMost, "blocks of the window, with the query's own"},
                    {"global", Type::integer, "1", 0, kMost, "first blocks, which all see"},
                    {"dilation", Type::integer, "1", 1, kMost, "dilated heads see every n-th block"},
                    {"dilated_heads", Type::integer, "2", 0, 1 << 16, "KV heads of a layer that are dilated, the last ones"},
                    {"dilated_from", Type::integer, "0", 0, 1 << 16, "first layer that has dilated heads"}})}, make_longformer},
      {{"attention", "bigbird", "a window, the first blocks, and random ones between them", "Zaheer et al., 2020, Big Bird: Transformers for Longer Sequences",
        with_block({{"window", Type::integer, "3", 1, kMost, "blocks of the window, with the query's own"},
                    {"global", Type::integer, "2", 0, kMost, "first blocks, which all see"},
                    {"random", Type::integer, "3", 0, 1024, "random blocks of each query block, layer and KV head"},
                    {"seed", Type::integer, "1", 0, 1e15, "of the random blocks"}})}, make_bigbird},
      {{"attention", "streamingllm", "the first blocks, which act as attention sinks, and the newest; all stay stored", "Xiao et al., 2023, Efficient Streaming Language Models with Attention Sinks",
        with_block({{"sinks", Type::integer, "1", 0, kMost, "first blocks"},
                    {"window", Type::integer, "16", 1, kMost, "newest blocks, with the query's own"}})}, make_sink_window},
  });
  return registry;
}
// clang-format on

}  // namespace millrace
