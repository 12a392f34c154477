// The built-in document contexts, one line each, and how one is made from text.
#include "base/choose.h"
#include "context/contexts/factories.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

}  // namespace

// clang-format off
const Registry<DocumentContextFactory>& document_contexts() {
  static const Registry<DocumentContextFactory> registry({.loss = Loss::lossy, .test = "tests/properties/document_contexts_test.cc", .proof = "docs/document-contexts.md"}, {
      {{"context", "kvlink", "computes each document of a prompt on its own, and moves its keys to where it stands; answers change",
        "Yang et al., 2025, KVLink: Accelerating Large Language Models via Efficient KV Cache Reuse",
        {{"sinks", Type::integer, "1", 0, 1024, "tokens before the first document that every document sees, at most"}}}, make_kvlink},
  });
  return registry;
}
// clang-format on

Result<std::shared_ptr<const DocumentContext>> make_document_context(std::string_view text) {
  if (text.empty() || text == "none") return std::shared_ptr<const DocumentContext>();
  MILLRACE_TRY(const auto chosen, choose_member("context", document_contexts(), text));
  auto made = chosen.member(chosen.options);
  if (!made.ok()) return Error::user(chosen.label + ": " + made.error().message);
  return std::shared_ptr<const DocumentContext>(std::move(*made));
}

}  // namespace millrace
