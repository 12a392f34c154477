// The built-in document contexts, and how one is made from text.
#include "base/choose.h"
#include "context/contexts/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

OptionSpec sinks() {
  return {"sinks", Type::integer, "1", 0, 1024, "tokens before the first document that every document sees, at most"};
}

}  // namespace

const Registry<DocumentContextFactory>& document_contexts() {
  static const Registry<DocumentContextFactory> registry(
      {.loss = Loss::lossy, .test = "tests/properties/document_contexts_test.cc", .proof = "docs/document-contexts.md"},
      {
          {{"context",
            "independent",
            "computes each document as if nothing came before it, all at the same positions; the baseline, and answers "
            "change",
            "Ratner et al., 2023, Parallel Context Windows for Large Language Models",
            {}},
           make_independent},
          {{"context",
            "kvlink",
            "computes each document of a prompt on its own, and moves its keys to where it stands; answers change",
            "Yang et al., 2025, KVLink: Accelerating Large Language Models via Efficient KV Cache Reuse",
            {sinks(),
             {"links", Type::integer, "0", 0, 64,
              "link tokens behind each document, of a model that was trained with them"},
             {"link_token", Type::integer, "0", 0, 16777216,
              "id of the first document's first link token, or its row in link_embeddings; the others follow it"},
             {"link_embeddings", Type::text, "", 0, 0,
              "safetensors or GGUF file with embeddings of link tokens that the vocabulary lacks; must be given for "
              "the whole engine"}}},
           make_kvlink},
          {{"context",
            "ape",
            "computes documents behind a shared prefix at the same positions, and changes the weights of their keys; "
            "answers "
            "change",
            "Yang et al., 2025, APE: Faster and Longer Context-Augmented Generation via Adaptive Parallel Encoding",
            {{"prefix", Type::integer, "1024", 0, 1048576,
              "tokens before the first document that every document sees, at most"},
             {"T", Type::number, "0.9", 0.01, 1, "temperature that scores of documents are divided by"},
             {"S", Type::number, "0.9", 0.01, 1, "factor of the logarithm of the documents' weights, times T"}}},
           make_ape},
          {{"context",
            "entropy",
            "computes documents behind shared sinks at the same positions, and lets each head see the best few; "
            "answers change",
            "Zhang et al., 2024, Attention Entropy is a Key Factor: An Analysis of Parallel Context Encoding with "
            "Full-attention-based Pre-trained Language Models",
            {sinks(),
             {"top", Type::integer, "4", 0, kMaxChosenDocuments,
              "documents that a head sees of a token behind them; 0: all"}}},
           make_entropy},
          {{"context",
            "epic",
            "moves documents to where they stand, and computes the first tokens of each again; answers change",
            "Hu et al., 2024, EPIC: Efficient Position-Independent Context Caching for Serving Large Language Models",
            {sinks(),
             {"recompute", Type::integer, "16", 1, 1024, "first tokens of each document that are computed again"}}},
           make_epic},
          {{"context",
            "cacheblend",
            "moves documents to where they stand, and computes the tokens again that change the most; answers change",
            "Yao et al., 2024, CacheBlend: Fast Large Language Model Serving for RAG with Cached Knowledge Fusion",
            {sinks(),
             {"ratio", Type::number, "0.15", 0.001, 1, "share of each document's tokens that is computed again"}}},
           make_cacheblend},
          {{"context",
            "cepe",
            "a trained encoder reads each document alone, and cross-attention in the model's layers reads the encoder; "
            "answers change",
            "Yen, Gao and Chen, 2024, Long-Context Language Modeling with Parallel Context Encoding",
            {{"model", Type::text, "", 0, 0,
              "folder with the encoder's and the cross-attention's config.json and safetensors; must be given for the "
              "whole engine"},
             {"piece", Type::integer, "256", 2, 65536,
              "tokens that the encoder reads at once; longer documents are cut"},
             {"tokens", Type::integer, "4096", 2, 16777216,
              "tokens of documents whose keys and values are kept, of all requests together"},
             {"start", Type::boolean, "true", 0, 0, "each piece begins with the encoder's start token, if it has one"}},
            Loss::lossy,
            "tests/properties/encoded_documents_test.cc"},
           make_cepe},
      });
  return registry;
}

Result<std::shared_ptr<const DocumentContext>> make_document_context(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const DocumentContext>();
  MILLRACE_TRY(const auto chosen, choose_member("context", document_contexts(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return std::shared_ptr<const DocumentContext>(std::move(*made));
}

}  // namespace millrace
