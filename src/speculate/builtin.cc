// The built-in drafters and acceptance rules, and how they are made from text.
#include "base/choose.h"
#include "speculate/acceptance/factories.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

template <typename Factory>
auto make_member(const std::string& family, const Registry<Factory>& registry, std::string_view text)
    -> decltype(std::declval<Factory>()(std::declval<const OptionValues&>())) {
  MILLRACE_TRY(const auto chosen, choose_member(family, registry, text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error{made.error().kind, chosen.label + ": " + made.error().message};
  return made;
}

using DrafterEntries = std::vector<Registry<DrafterFactory>::Entry>;

// Drafters that need no model of their own.
DrafterEntries text_drafters() {
  return {
      {{"drafter",
        "ngram",
        "drafts what followed the last tokens at an earlier occurrence",
        "Saxena, 2023, Prompt Lookup Decoding",
        {{"n", Type::integer, "3", 1, 64, "maximum number of tokens matched"},
         {"min", Type::integer, "2", 1, 64, "minimum number of tokens matched"},
         {"k", Type::integer, "4", 1, 64, "tokens of a draft, or of a branch"},
         {"branches", Type::integer, "1", 1, 16, "continuations of a draft, a tree if more than 1"}}},
       make_ngram_drafter},
      {{"drafter",
        "suffix",
        "drafts what most often followed the last tokens, in the stream or in others that were served",
        "Oliaro, Jia, Campos and Qiao, 2024, SuffixDecoding: Extreme Speculative Decoding for Emerging AI "
        "Applications",
        {{"k", Type::integer, "16", 1, 64, "maximum number of tokens drafted"},
         {"min", Type::integer, "2", 1, 64, "minimum number of tokens matched"},
         {"factor", Type::number, "2", 0.125, 64, "tokens drafted for each token matched, at most"},
         {"p", Type::number, "0.2", 0, 1, "drafts end where their share of what followed falls below this"},
         {"history", Type::integer, "65536", 64, 16777216, "tokens remembered, of all streams; 88 to 104 bytes each"}}},
       make_suffix_drafter},
      {{"drafter",
        "rest",
        "drafts what most often followed the last tokens in a datastore, a large text in a file",
        "He, Zhong, Cai, Lee and He, 2024, REST: Retrieval-Based Speculative Decoding",
        {{"file", Type::text, "", -1e300, 1e300, "the datastore, which `millrace datastore` writes; must be given"},
         {"n", Type::integer, "16", 1, 64, "maximum number of tokens matched"},
         {"min", Type::integer, "2", 1, 64, "minimum number of tokens matched"},
         {"k", Type::integer, "4", 1, 64, "tokens of a draft, or of a branch"},
         {"branches", Type::integer, "2", 1, 16, "continuations of k tokens each in a draft; a tree if more than 1"}}},
       make_rest_drafter},
      {{"drafter",
        "token_recycling",
        "drafts a tree of the tokens that the model found likeliest after each token before",
        "Luo et al., 2024, Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token "
        "Recycling",
        {{"k", Type::integer, "8", 1, 16, "candidates remembered for each token of the vocabulary, 4 bytes each"},
         {"tokens", Type::integer, "16", 1, 64, "tokens of a draft"},
         {"depth", Type::integer, "6", 1, 16, "tokens of its longest branch"},
         {"tables", Type::integer, "2", 1, 64, "tenants, or requests without prefix cache, that are remembered"}}},
       make_token_recycling_drafter},
      {{"drafter",
        "prediction",
        "drafts from the text that a request expects as its answer, as all drafters do in addition to their own drafts",
        "OpenAI, 2024, Predicted Outputs",
        {{"k", Type::integer, "8", 1, 64, "tokens of a draft"}}},
       make_prediction_drafter},
      {{"drafter",
        "lookahead",
        "runs a window of guesses together with the stream, and drafts the n-grams that come out of it",
        "Fu, Bailis, Stoica and Zhang, 2024, Break the Sequential Dependency of LLM Inference Using Lookahead "
        "Decoding",
        {{"w", Type::integer, "5", 1, 32, "columns of the window, next positions that are guessed"},
         {"n", Type::integer, "4", 2, 16, "tokens of an n-gram; the window has n - 1 levels"},
         {"g", Type::integer, "5", 1, 32, "n-grams verified in a step"}}},
       make_lookahead_drafter},
  };
}

// Drafters with a second model, or with some of the model's own layers.
DrafterEntries model_drafters() {
  return {
      {{"drafter",
        "draft",
        "a second, smaller model with the same vocabulary drafts, over the same KV blocks",
        "Leviathan, Kalman and Matias, 2023, Fast Inference from Transformers via Speculative Decoding",
        {{"k", Type::integer, "4", 1, 64, "tokens of a draft or of a branch, one pass of the second model each"},
         {"branches", Type::integer, "1", 1, 16,
          "continuations of a draft, a tree if more than 1; for spectr and specinfer"},
         {"model", Type::text, "", -1e300, 1e300,
          "its file, folder or built-in name; default: the built-in one with the same vocabulary"}}},
       make_model_drafter},
      {{"drafter",
        "self",
        "the model drafts for itself, with some of its attention and MLP blocks left out",
        "Zhang et al., 2024, Draft & Verify: Lossless Large Language Model Acceleration via Self-Speculative "
        "Decoding",
        {{"k", Type::integer, "8", 1, 64, "tokens of a draft, at most; one pass of what is left of the model each"},
         {"attn", Type::text, "", -1e300, 1e300, "layers whose attention is left out, such as 3+7-9"},
         {"mlp", Type::text, "", -1e300, 1e300, "layers whose MLP is left out"},
         {"skip", Type::text, "", -1e300, 1e300,
          "file of draft-search; default without attn and mlp: both of every other middle layer"},
         {"p", Type::number, "0.6", 0, 1, "a draft ends behind a token that is less likely; 0: never"},
         {"accept", Type::number, "0.9", 0, 1,
          "share of drafted tokens to be kept, towards which each stream adapts p; 0: it stays"}}},
       make_self_drafter},
      {{"drafter",
        "layerskip",
        "the model's first layers draft, and a step continues behind them",
        "Elhoushi et al., 2024, LayerSkip: Enabling Early Exit Inference and Self-Speculative Decoding",
        {{"exit", Type::integer, "1", 1, 1 << 20, "layers that draft, fewer than the model has"},
         {"k", Type::integer, "4", 1, 64, "tokens of a draft, at most; one pass of the first layers each"},
         {"p", Type::number, "0.6", 0, 1, "a draft ends behind a token that is less likely; 0: never"},
         {"accept", Type::number, "0.9", 0, 1,
          "share of drafted tokens to be kept, towards which each stream adapts p; 0: it stays"}}},
       make_layerskip_drafter},
      {{"drafter",
        "cascade",
        "a draft model, whose own tokens are guessed by n-grams and bigrams, which also draft behind it",
        "Chen et al., 2024, Cascade Speculative Drafting for Even Faster LLM Inference",
        {{"k", Type::integer, "4", 1, 64, "tokens that the draft model draws"},
         {"tail", Type::integer, "4", 0, 63, "tokens of n-grams and bigrams behind those, at most"},
         {"guess", Type::integer, "4", 0, 63, "tokens guessed for one pass of the draft model, at most"},
         {"bigrams", Type::integer, "65536", 64, 16777216, "bigrams remembered, of all streams; 16 bytes each"},
         {"model", Type::text, "", -1e300, 1e300, "as of draft"}}},
       make_cascade_drafter},
      {{"drafter",
        "staged",
        "a draft model, whose own tokens are guessed by n-grams and bigrams, drafts a tree",
        "Spector and Re, 2023, Accelerating LLM Inference with Staged Speculative Decoding",
        {{"k", Type::integer, "4", 1, 64, "tokens of the longest branch, which the draft model draws"},
         {"nodes", Type::integer, "8", 1, 64,
          "tokens of the tree; those off the longest branch are the model's next likeliest ones"},
         {"guess", Type::integer, "4", 0, 63, "tokens guessed for one pass of the draft model, at most"},
         {"bigrams", Type::integer, "65536", 64, 16777216, "bigrams remembered, of all streams; 16 bytes each"},
         {"model", Type::text, "", -1e300, 1e300, "as of draft"}}},
       make_staged_drafter},
  };
}

// Drafters with trained heads, and `best`, which combines drafters.
DrafterEntries head_drafters() {
  return {
      {{"drafter",
        "medusa",
        "heads that were trained on the model's hidden states draft a tree of later tokens",
        "Cai et al., 2024, Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
        {{"model", Type::text, "", -1e300, 1e300, "folder with the heads' config.json and safetensors; must be given"},
         {"k", Type::integer, "3", 1, 16, "heads used, each for one token of the longest branch"},
         {"tokens", Type::integer, "12", 1, 64, "tokens of a draft"},
         {"top", Type::integer, "4", 1, 4, "candidates of each head; 1: a chain"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_medusa_drafter},
      {{"drafter",
        "eagle",
        "a layer that was trained on the model's hidden states drafts a tree; EAGLE 1, 2 and 3",
        "Li, Wei, Zhang and Zhang, 2024, EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees",
        {{"model", Type::text, "", -1e300, 1e300, "folder with the layer's config.json and safetensors; must be given"},
         {"k", Type::integer, "4", 1, 16, "tokens of the longest branch, one pass of the layer each"},
         {"tokens", Type::integer, "12", 1, 64, "tokens of a draft"},
         {"top", Type::integer, "4", 1, 4, "candidates of each token, and tokens of a pass; 1: a chain"},
         {"tree", Type::text, "dynamic", -1e300, 1e300,
          "dynamic: what the layer finds likely (EAGLE-2); static: the same shape each time (EAGLE)"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_eagle_drafter},
      {{"drafter",
        "mtp",
        "the layer for multi-token prediction that DeepSeek-V3's files have drafts a chain or a tree",
        "DeepSeek-AI, 2024, DeepSeek-V3 Technical Report",
        {{"k", Type::integer, "2", 1, 16, "tokens of the longest branch, one pass of the layer each"},
         {"tokens", Type::integer, "4", 1, 64, "tokens of a draft that is a tree"},
         {"top", Type::integer, "1", 1, 4, "candidates of each token, and tokens of a pass; 1: a chain"},
         {"tree", Type::text, "dynamic", -1e300, 1e300, "as of eagle"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_mtp_drafter},
      {{"drafter",
        "kangaroo",
        "the model's first layers and an adapter that was trained behind them draft",
        "Liu et al., 2024, Kangaroo: Lossless Self-Speculative Decoding via Double Early Exiting",
        {{"model", Type::text, "", -1e300, 1e300,
          "folder with the adapter's config.json and safetensors; must be given"},
         {"exit", Type::integer, "2", 1, 1024, "layers of the model before the adapter"},
         {"k", Type::integer, "6", 1, 64, "tokens of a draft, at most; one pass of those layers and the adapter each"},
         {"p", Type::number, "0.6", 0, 1, "a draft ends behind a token that is less likely; 0: never"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_kangaroo_drafter},
      {{"drafter",
        "pass",
        "the model drafts several tokens in one pass, from look-ahead tokens that were trained for it",
        "Monea, Joulin and Grave, 2023, PaSS: Parallel Speculative Sampling",
        {{"model", Type::text, "", -1e300, 1e300,
          "folder with the look-ahead tokens' config.json and safetensors; must be given"},
         {"k", Type::integer, "4", 1, 63, "look-ahead tokens; a draft has one token more"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_pass_drafter},
      {{"drafter",
        "longspec",
        "a layer drafts that sees the newest tokens, and all others through the model's keys and values",
        "Yang et al., 2025, LongSpec: Long-Context Lossless Speculative Decoding with Efficient Drafting and "
        "Verification",
        {{"model", Type::text, "", -1e300, 1e300, "folder with the layer's config.json and safetensors; must be given"},
         {"k", Type::integer, "4", 1, 16, "tokens of the longest branch, one pass of the layer each"},
         {"tokens", Type::integer, "12", 1, 64, "tokens of a draft"},
         {"top", Type::integer, "4", 1, 4, "candidates of each token, and tokens of a pass; 1: a chain"},
         {"tree", Type::text, "dynamic", -1e300, 1e300, "as of eagle"}},
        Loss::lossless,
        "tests/properties/trained_drafts_test.cc"},
       make_longspec_drafter},
      {{"drafter",
        "best",
        "several drafters compete: each stream's drafts are those that are expected to bring most",
        "Garivier and Moulines, 2011, On Upper-Confidence Bound Policies for Switching Bandit Problems",
        {{"of", Type::text, "ngram+suffix", -1e300, 1e300, "the drafters, NAME[:key=value;...] with + between"}}},
       make_best_drafter},
  };
}

}  // namespace

const Registry<DrafterFactory>& drafters() {
  static const Registry<DrafterFactory> registry(
      {.loss = Loss::lossless, .test = "tests/properties/engine_drafts_test.cc", .proof = "docs/speculation.md"}, [] {
        DrafterEntries all;
        for (const DrafterEntries& part : {text_drafters(), model_drafters(), head_drafters()})
          all.insert(all.end(), part.begin(), part.end());
        return all;
      }());
  return registry;
}

const Registry<AcceptanceFactory>& acceptances() {
  static const Registry<AcceptanceFactory> registry(
      {.loss = Loss::lossless, .test = "tests/properties/engine_drafts_test.cc"},
      {
          {{"acceptance",
            "exact",
            "keeps drafted tokens that plain sampling would draw: answers do not change",
            "Stern et al., 2018, Blockwise Parallel Decoding for Deep Autoregressive Models",
            {}},
           make_exact_acceptance},
          {{"acceptance",
            "sampling",
            "accepts a draft model's tokens by min(1, p / q), else draws from what is left: the same distribution, "
            "other tokens",
            "Chen et al., 2023, Accelerating Large Language Model Decoding with Speculative Sampling",
            {},
            Loss::lossless,
            "tests/properties/acceptance_distribution_test.cc"},
           make_sampling_acceptance},
          {{"acceptance",
            "spectr",
            "accepts one of the tokens that k branches have for a position, by k-sequential selection: the same "
            "distribution",
            "Sun et al., 2023, SpecTr: Fast Speculative Decoding via Optimal Transport",
            {},
            Loss::lossless,
            "tests/properties/acceptance_distribution_test.cc"},
           make_spectr_acceptance},
          {{"acceptance",
            "specinfer",
            "tries the tokens of a tree in turn, each against what is left of the distribution, which stays the same",
            "Miao et al., 2024, SpecInfer: Accelerating Large Language Model Serving with Tree-based Speculative "
            "Inference and Verification",
            {},
            Loss::lossless,
            "tests/properties/acceptance_distribution_test.cc"},
           make_specinfer_acceptance},
          {{"acceptance",
            "typical",
            "accepts tokens above a threshold that falls with the entropy: SAMPLED ANSWERS CHANGE",
            "Cai et al., 2024, Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
            {{"epsilon", Type::number, "0.09", 0, 1, "highest threshold"},
             {"delta", Type::number, "0.3", 0, 1,
              "threshold where the entropy is 0; it is delta x exp(-entropy in nats)"}},
            Loss::lossy,
            "tests/properties/acceptance_distribution_test.cc"},
           make_typical_acceptance},
      });
  return registry;
}

Result<std::unique_ptr<Drafter>> make_drafter(std::string_view text) {
  return make_member("drafter", drafters(), text);
}

Result<std::unique_ptr<Acceptance>> make_acceptance(std::string_view text) {
  return make_member("acceptance", acceptances(), text);
}

Result<bool> acceptance_needs_odds(std::string_view text) {
  MILLRACE_TRY(const auto acceptance, make_acceptance(text));
  return acceptance->needs_odds();
}

Result<bool> drafts_trees(std::string_view text) {
  if (text.empty()) return false;
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->trees();
}

Result<std::unique_ptr<std::string>> drafter_model(std::string_view text) {
  if (text.empty()) return std::unique_ptr<std::string>();
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  const bool own = drafter->has_model() && !drafter->skips();
  return own ? std::make_unique<std::string>(drafter->model_path()) : nullptr;
}

Result<std::unique_ptr<SkipChoice>> drafter_skips(std::string_view text) {
  if (text.empty()) return std::unique_ptr<SkipChoice>();
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->skips() ? std::make_unique<SkipChoice>(*drafter->skips()) : nullptr;
}

Result<std::unique_ptr<FeatureChoice>> drafter_features(std::string_view text) {
  if (text.empty()) return std::unique_ptr<FeatureChoice>();
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->features() ? std::make_unique<FeatureChoice>(*drafter->features()) : nullptr;
}

Result<int64_t> drafter_model_rows(std::string_view text) {
  if (text.empty()) return 1;
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->model_rows();
}

Result<DrafterMemory> drafter_memory(std::string_view text, int64_t vocab) {
  if (text.empty()) return DrafterMemory{};
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return DrafterMemory{drafter->memory_bytes(), drafter->shared_bytes(vocab)};
}

Result<void> check_drafter(std::string_view text, int64_t vocab, std::span<const std::string> tokens) {
  if (text.empty()) return {};
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->check(tokens.empty() ? vocab : std::ssize(tokens), tokens);
}

Result<int64_t> longest_draft(std::string_view text) {
  if (text.empty()) return 0;
  MILLRACE_TRY(const auto drafter, make_drafter(text));
  return drafter->longest();
}

}  // namespace millrace
