// The attention patterns. with_block() adds the options that every member has.
#include "attention/diffusing_pattern.h"
#include "attention/patterns/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr double kMax = kMaxPatternBlocks;

std::vector<OptionSpec> with_block(std::vector<OptionSpec> own) {
  own.push_back({"block", Type::integer, "64", 16, 4096, "tokens of a block, a multiple of those of a KV block"});
  own.push_back({"phase", Type::text, "all", 0, 0,
                 "prompt, decode: only these tokens' queries follow the pattern, the others see every key"});
  return own;
}

// Returns the options of a member that chooses blocks by score: the common ones, followed by `own`.
std::vector<OptionSpec> with_choice(const char* top, const char* window, std::vector<OptionSpec> own) {
  own.push_back({"top", Type::integer, top, 0, kMax, "blocks with the highest scores that a query sees"});
  own.push_back({"sinks", Type::integer, "1", 0, kMax, "first blocks, which all see"});
  own.push_back({"window", Type::integer, window, 1, kMax, "newest blocks, which all see, with the query's own"});
  return with_block(std::move(own));
}

using PatternEntries = std::vector<Registry<AttentionPatternFactory>::Entry>;

// Patterns whose blocks follow from positions alone.
PatternEntries fixed_patterns() {
  return {
      {{"attention", "full", "Every earlier key, online softmax over fixed partitions of paged blocks",
        "Dao et al., 2022, FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness; Kwon et "
        "al., 2023, Efficient Memory Management for Large Language Model Serving with PagedAttention",
        with_block({}), Loss::lossless, "tests/conformance/attention_test.cc"},
       make_all_blocks},
      {{"attention",
        "window",
        "The last N keys of a sliding window, in layers where the model uses it",
        "Beltagy et al., 2020, Longformer: The Long-Document Transformer; Jiang et al., 2023, Mistral 7B",
        {},
        Loss::lossless,
        "tests/conformance/attention_test.cc"},
       nullptr},
      {{"attention", "sparse_transformer", "a stretch of recent blocks, and older blocks at regular distances",
        "Child et al., 2019, Generating Long Sequences with Sparse Transformers",
        with_block(
            {{"form", Type::text, "strided", 0, 0,
              "strided: older blocks at multiples of the stride before the query; fixed: the last blocks of each "
              "stretch"},
             {"stride", Type::integer, "16", 1, kMax, "blocks of a stretch"},
             {"summary", Type::integer, "1", 1, kMax, "fixed: last blocks of a stretch that later ones see"},
             {"split", Type::text, "merged", 0, 0,
              "merged: every head sees both sets; heads, layers: they take turns"}})},
       make_sparse_transformer},
      {{"attention", "longformer", "a window, with gaps in some heads, and the first blocks",
        "Beltagy et al., 2020, Longformer: The Long-Document Transformer",
        with_block(
            {{"window", Type::integer, "16", 1, kMax, "blocks of the window, with the query's own"},
             {"global", Type::integer, "1", 0, kMax, "first blocks, which all see"},
             {"dilation", Type::integer, "1", 1, kMax, "dilated heads see every n-th block"},
             {"dilated_heads", Type::integer, "2", 0, 1 << 16, "KV heads of a layer that are dilated, the last ones"},
             {"dilated_from", Type::integer, "0", 0, 1 << 16, "first layer that has dilated heads"}})},
       make_longformer},
      {{"attention", "bigbird", "a window, the first blocks, and random ones between them",
        "Zaheer et al., 2020, Big Bird: Transformers for Longer Sequences",
        with_block({{"window", Type::integer, "3", 1, kMax, "blocks of the window, with the query's own"},
                    {"global", Type::integer, "2", 0, kMax, "first blocks, which all see"},
                    {"random", Type::integer, "3", 0, 1024, "random blocks of each query block, layer and KV head"},
                    {"seed", Type::integer, "1", 0, 1e15, "of the random blocks"}})},
       make_bigbird},
      {{"attention", "sink_window", "the first blocks, which act as attention sinks, and the newest; all stay stored",
        "Xiao et al., 2023, Efficient Streaming Language Models with Attention Sinks",
        with_block({{"sinks", Type::integer, "1", 0, kMax, "first blocks"},
                    {"window", Type::integer, "16", 1, kMax, "newest blocks, with the query's own"}})},
       make_sink_window},
      {{"attention", "semsa", "the first blocks, and in each head a window of its own, which may grow with the stream",
        "Fu et al., 2024, MoA: Mixture of Sparse Attention for Automatic Large Language Model Compression",
        with_block({{"windows", Type::text, "16", 0, 0,
                     "blocks, or BLOCKS+PERCENT of the stream's, of each KV head in turn, with dots between them"},
                    {"sinks", Type::integer, "1", 0, kMax, "first blocks, which all see"}})},
       make_semsa},
      {{"attention", "structured_sparse",
        "dense regions: squares of blocks on the diagonal, those before them, and a strip of the first blocks",
        "Dai et al., 2023, Efficient Transformer Inference with Statically Structured Sparse Attention",
        with_block({{"region", Type::integer, "8", 1, kMax, "blocks of a region, on each side"},
                    {"reach", Type::integer, "1", 0, kMax, "regions before a query's own that it sees"},
                    {"strip", Type::integer, "1", 0, kMax, "first blocks, which all see"}})},
       make_structured_sparse},
      {{"attention", "diffuser",
        "a window, the first blocks and random ones, along which values diffuse for several hops in each layer",
        "Feng et al., 2022, Diffuser: Efficient Transformers with Multi-hop Attention Diffusion for Long Sequences",
        with_block(
            {{"window", Type::integer, "3", 1, kMax, "blocks of the window, with the query's own"},
             {"global", Type::integer, "2", 0, kMax, "first blocks, which all see"},
             {"random", Type::integer, "3", 0, 1024, "random blocks of each query block, layer and KV head"},
             {"seed", Type::integer, "1", 0, 1e15, "of the random blocks"},
             {"hops", Type::integer, "2", 1, kMaxHops, "that values go in one layer; 1: attention as it is"},
             {"alpha", Type::number, "0.9", 0, 1, "share of a token's own value in what the next hop carries on"}}),
        Loss::lossy, "tests/conformance/hop_values_test.cc"},
       make_diffuser},
  };
}

// Patterns with which each query chooses its blocks.
PatternEntries chosen_patterns() {
  return {
      {{"attention", "quest", "each query sees the blocks whose smallest and largest keys allow the largest products",
        "Tang et al., 2024, Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference",
        with_choice("16", "1", {{"first", Type::integer, "2", 0, 1 << 16, "first layers, which see every key"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_quest},
      {{"attention", "impress",
        "few heads choose the blocks that all heads of a layer see, by their smallest and largest keys",
        "Chen et al., 2025, IMPRESS: An Importance-Informed Multi-Tier Prefix KV Storage System for Large Language "
        "Model Inference",
        with_choice("16", "1",
                    {{"probes", Type::integer, "1", 1, 1 << 16, "KV heads of a layer that choose"},
                     {"first", Type::integer, "2", 0, 1 << 16, "first layers, which see every key"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_impress},
      {{"attention", "h2o_blocks",
        "all queries see the blocks that received most attention from earlier queries, by sums for each head",
        "Zhang et al., 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
        with_choice("8", "8",
                    {{"tracked", Type::integer, "64", 0, 4096,
                      "older blocks whose sums are kept, at least `top`; those with smaller sums start again at 0"}}),
        Loss::lossy, "tests/conformance/block_sums_test.cc"},
       make_h2o_blocks},
      {{"attention", "minference",
        "each head has one of three patterns: the newest blocks; those where earlier queries look, by place or "
        "distance; or by mean keys",
        "Jiang et al., 2024, MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic Sparse "
        "Attention",
        with_choice(
            "16", "1",
            {{"heads", Type::text, "b", 0, 0,
              "of each KV head in turn: a: the newest; v: lines; b: top; or with blocks of its own: a16.v6+3.b12"},
             {"vertical", Type::integer, "8", 0, kMax, "v: blocks that all later queries see"},
             {"slash", Type::integer, "2", 0, kMax, "v: distances, at which every query sees a block"},
             {"last", Type::integer, "8", 1, 64,
              "v: lines are found each time this many blocks are complete, by their last queries"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_minference},
      {{"attention", "reformer", "each query sees the blocks with the most keys that hash to its buckets",
        "Kitaev et al., 2020, Reformer: The Efficient Transformer",
        with_choice("14", "2",
                    {{"hashes", Type::integer, "4", 1, 16, "rounds of hashing"},
                     {"buckets", Type::integer, "32", 2, 256, "of a round, an even number"},
                     {"seed", Type::integer, "1", 0, 1e15, "of the rotations"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_reformer},
      {{"attention", "routing_transformer", "each query sees the blocks with the most keys of its cluster",
        "Roy et al., 2020, Efficient Content-Based Sparse Attention with Routing Transformers",
        with_choice("14", "2",
                    {{"centroids", Type::text, "", 0, 0, "file of `millrace centroids`; empty: they are random"},
                     {"clusters", Type::integer, "32", 2, 256, "random centroids"},
                     {"seed", Type::integer, "1", 0, 1e15, "of random centroids"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_routing_transformer},
      {{"attention", "sparse_flash_attention",
        "each query sees the blocks with a key that hashes to its bucket; or each head drops blocks of keys and "
        "queries",
        "Pagliardini et al., 2023, Fast Attention Over Long Sequences With Dynamic Sparse Flash Attention",
        with_block({{"form", Type::text, "hash", 0, 0, "hash: by buckets; drop: each head goes without random blocks"},
                    {"buckets", Type::integer, "64", 2, 256, "hash: of the hash, an even number"},
                    {"drop", Type::number, "0.5", 0, 1, "drop: share of the blocks of keys that a head drops"},
                    {"drop_queries", Type::number, "0", 0, 1, "drop: share of the blocks of queries that a head drops"},
                    {"sinks", Type::integer, "1", 0, kMax, "drop: first blocks, which are never dropped"},
                    {"window", Type::integer, "1", 1, kMax, "newest blocks, which all see, with the query's own"},
                    {"seed", Type::integer, "1", 0, 1e15, "of the rotations, or of what is dropped"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_sparse_flash_attention},
      {{"attention", "sinkhorn",
        "each query sees the blocks that Sinkhorn normalization of block-to-block scores matches it with",
        "Tay et al., 2020, Sparse Sinkhorn Attention",
        with_choice("16", "1",
                    {{"rounds", Type::integer, "5", 0, 100, "of normalization, of rows and columns in turns; 0: none"},
                     {"temperature", Type::number, "0.75", 0.01, 1000, "of the scores between blocks"},
                     {"rows", Type::integer, "16", 1, 1024, "newest blocks whose matches count"},
                     {"scorer", Type::text, "", 0, 0,
                      "file of a sorting network that was trained with the model; empty: blocks match by their mean "
                      "keys"}}),
        Loss::lossy, "tests/conformance/chosen_blocks_test.cc"},
       make_sinkhorn},
  };
}

}  // namespace

const Registry<AttentionPatternFactory>& attention_patterns() {
  static const Registry<AttentionPatternFactory> registry(
      {.loss = Loss::lossy, .test = "tests/conformance/block_sparse_test.cc", .proof = "docs/sparse-attention.md"}, [] {
        PatternEntries all;
        for (const PatternEntries& part : {fixed_patterns(), chosen_patterns()})
          all.insert(all.end(), part.begin(), part.end());
        return all;
      }());
  return registry;
}

}  // namespace millrace
