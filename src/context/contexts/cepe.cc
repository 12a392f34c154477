// CEPE (Yen, Gao and Chen, 2024, Long-Context Language Modeling with Parallel Context Encoding): documents are not in
// the prompt at all. A small encoder with attention in both directions reads each piece of them alone, and layers of
// cross-attention, which were trained between the decoder's self-attention and MLP, read the encoder's hidden states.
// The checkpoint, the pieces and their cache are run/documents/encoded_documents.h.
#include "context/contexts/factories.h"

namespace millrace {
namespace {

class Cepe final : public DocumentContext {
 public:
  explicit Cepe(EncoderChoice choice) : choice_(std::move(choice)) {}

  ContextPlan plan(std::span<const PromptDocument>) const override { return {}; }
  const EncoderChoice* encoder() const override { return &choice_; }

 private:
  EncoderChoice choice_;
};

}  // namespace

Result<std::unique_ptr<const DocumentContext>> make_cepe(const OptionValues& options) {
  return std::unique_ptr<const DocumentContext>(std::make_unique<Cepe>(EncoderChoice{
      options.text("model"), options.integer("piece"), options.integer("tokens"), options.boolean("start")}));
}

}  // namespace millrace
