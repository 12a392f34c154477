// The built-in token evictors. with_rule() adds the options of EvictionRule.
#include "kv/token_evictors/factories.h"
#include "kv/token_evictors/recent.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr const char* kByLayer = "tests/properties/layer_evictors_test.cc";
constexpr const char* kByGates = "tests/properties/gate_evictors_test.cc";

// Of evictors with budgets by layer.
std::vector<OptionSpec> with_layer_rule(std::vector<OptionSpec> own) {
  own.push_back({"slack", Type::integer, "16", 1, 1 << 20, "tokens stored beyond the budget before some are dropped"});
  own.push_back({"prompt", Type::text, "whole", 0, 0,
                 "whole: nothing is dropped before the prompt is complete; evicted: the budget holds for it too"});
  return own;
}

// Of evictors whose tokens the model's gates choose: these options change memory alone.
std::vector<OptionSpec> with_gate_rule(std::vector<OptionSpec> own) {
  own.push_back(
      {"slack", Type::integer, "16", 1, 1 << 20, "computed tokens after which dropped ones give back memory"});
  own.push_back({"prompt", Type::text, "whole", 0, 0,
                 "whole: nothing is evicted before the prompt is complete; evicted: also between its parts, of slack "
                 "tokens each"});
  return own;
}

std::vector<OptionSpec> with_rule(std::vector<OptionSpec> own, const char* scope = "stream") {
  own = with_layer_rule(std::move(own));
  own.push_back({"scope", Type::text, scope, 0, 0,
                 "stream: one choice for all layers and heads; layer: each layer chooses for itself; head: each KV "
                 "head of each layer"});
  own.push_back({"positions", Type::text, "text", 0, 0,
                 "text: tokens keep their positions in the text; cache: positions count the stored tokens, so that a "
                 "stream may be longer than the context, with scope=stream"});
  return own;
}

// Of evictors of which layers or heads may have budgets by share (layer_shares.h).
std::vector<OptionSpec> with_shares_rule(std::vector<OptionSpec> own, const char* scope = "stream") {
  own.push_back({"layers", Type::text, "", 0, 0,
                 "shares of the layers in what is kept beyond the newest tokens, with dots between them, as millrace "
                 "budget-search finds; each layer then has a budget of its own, budget on average, and chooses for "
                 "itself; default: one budget"});
  own.push_back({"heads", Type::text, "", 0, 0,
                 "the same of every KV head, those of the first layer first, as millrace budget-search --heads finds"});
  return with_rule(std::move(own), scope);
}

}  // namespace

const Registry<TokenEvictorFactory>& token_evictors() {
  static const Registry<TokenEvictorFactory> registry(
      {.loss = Loss::lossy, .test = "tests/properties/token_evictors_test.cc", .proof = "docs/kv-eviction.md"},
      {
          {{"evictor", "streamingllm",
            "keeps the first tokens, which act as attention sinks, and a window of the newest",
            "Xiao et al., 2023, Efficient Streaming Language Models with Attention Sinks",
            with_rule({{"sinks", Type::integer, "4", 0, 1 << 30, "first tokens of the text that are kept"},
                       {"window", Type::integer, "1020", 1, 1 << 30, "newest tokens that are kept"}})},
           make_streamingllm},
          {{"evictor", "h2o", "keeps the newest tokens and those that have received most attention",
            "Zhang et al., 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large Language Models",
            with_shares_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"},
                              recent_option("50%"),
                              {"worth", Type::text, "mean", 0, 0,
                               "of a token: the mean of the attention of all queries since it was stored, or their "
                               "sum, which favors old tokens; the paper's is sum with scope=head"}},
                             "layer")},
           make_h2o},
          {{"evictor", "window", "keeps the newest tokens only: the baseline that forgets attention sinks",
            "Beltagy et al., 2020, Longformer: The Long-Document Transformer",
            with_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"}})},
           make_window},
          {{"evictor", "random", "keeps the newest tokens and a random sample of the older ones", "",
            with_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"},
                       recent_option("50%"),
                       {"seed", Type::integer, "0", 0, 1 << 30, "of the sample"}})},
           make_random},
          {{"evictor", "tova", "keeps the tokens that the newest query pays most attention",
            "Oren et al., 2024, Transformers are Multi-State RNNs",
            with_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"}})},
           make_tova},
          {{"evictor", "snapkv",
            "keeps an observation window and what its queries pay most attention, with its neighbors",
            "Li et al., 2024, SnapKV: LLM Knows What You are Looking for Before Generation",
            with_shares_rule(
                {{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"},
                 {"window", Type::integer, "32", 1, 1 << 20,
                  "newest queries that vote, and newest tokens that are kept"},
                 {"kernel", Type::integer, "7", 1, 1 << 10, "neighboring tokens that share their highest vote"}})},
           make_snapkv},
          {{"evictor", "scissorhands",
            "keeps the newest tokens and those that most queries of a history window found important",
            "Liu et al., 2023, Scissorhands: Exploiting the Persistence of Importance Hypothesis for LLM KV Cache "
            "Compression at Test Time",
            with_shares_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"},
                              recent_option("10"),
                              {"history", Type::integer, "400", 1, 1 << 20, "newest queries that count"}})},
           make_scissorhands},
          {{"evictor", "pyramidkv", "snapkv with budgets that fall from layer to layer",
            "Cai et al., 2024, PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling",
            with_layer_rule(
                {{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that a layer keeps on average"},
                 {"window", Type::integer, "32", 1, 1 << 20,
                  "newest queries that vote, and newest tokens that are kept"},
                 {"kernel", Type::integer, "7", 1, 1 << 10, "neighboring tokens that share their highest vote"},
                 {"beta", Type::integer, "20", 1, 1 << 20,
                  "the last layer keeps the window, and this part of the average beyond it; 1: all layers keep the "
                  "same"}}),
            Loss::lossy, kByLayer},
           make_pyramidkv},
          {{"evictor", "spatten",
            "keeps the tokens that have received most attention in all layers, fewer from layer to layer",
            "Wang et al., 2021, SpAtten: Efficient Sparse Attention Architecture with Cascade Token and Head Pruning",
            with_layer_rule({{"keep", Type::integer, "1536", 1, 1 << 30, "tokens that the first layer keeps"},
                             {"final", Type::integer, "512", 1, 1 << 30, "tokens that the last layer keeps"},
                             recent_option("32", "final"),
                             {"heads", Type::number, "1", 0, 1,
                              "share of the KV heads that the last layer computes, those with the largest outputs; all "
                              "in the first layer"}}),
            Loss::lossy, kByLayer},
           make_spatten},
          {{"evictor", "key_norm",
            "keeps the newest tokens and those whose keys have the lowest norm, without looking at attention",
            "Devoto et al., 2024, A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression",
            with_shares_rule({{"budget", Type::integer, "1024", 1, 1 << 30, "tokens that are kept"},
                              recent_option("50%"),
                              {"skip", Type::integer, "0", 0, 1 << 10,
                               "first layers that keep all tokens, 2 in the paper; each other layer then chooses for "
                               "itself, by the norms of all its heads"}},
                             "head")},
           make_key_norm},
          {{"evictor", "adaptively_sparse", "keeps in each layer what the checkpoint's gates have not dropped",
            "Anagnostidis et al., 2023, Dynamic Context Pruning for Efficient and Interpretable Autoregressive "
            "Transformers",
            with_gate_rule({}), Loss::lossy, kByGates},
           make_adaptively_sparse},
          {{"evictor", "seqboat", "keeps in each layer the tokens that the checkpoint's gates select; only they attend",
            "Ren et al., 2023, Sparse Modular Activation for Efficient Sequence Modeling",
            with_gate_rule(
                {{"window", Type::integer, "0", 0, 1 << 30, "older selected tokens that a token sees; 0: all"}}),
            Loss::lossy, kByGates},
           make_seqboat},
      });
  return registry;
}

}  // namespace millrace
