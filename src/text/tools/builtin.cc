// The list of dialects. The first one that matches a template is used, so more specific ones come first.
#include "text/tools/dialects.h"

namespace millrace {

const Registry<const ToolDialect*>& tool_dialects() {
  static const Registry<const ToolDialect*> registry(
      "tool_dialect", {.loss = Loss::lossless, .test = "src/text/tools/tools_test.cc"},
      {&kHarmonyTools, &kGemmaTools, &kKimiTools, &kDeepseekTools, &kDeepseekNamedTools, &kMinimaxTools, &kLfmTools,
       &kGraniteTools, &kNemotronTools, &kGlmTools, &kQwenXmlTools, &kHermesTools, &kMistralArgsTools, &kMistralTools,
       &kLlamaTools});
  return registry;
}

const ToolDialect& described_tools() { return kHermesTools; }

const ToolDialect& tool_dialect_of(std::string_view chat_template) {
  for (const ToolDialect* dialect : tool_dialects().members())
    if (dialect->speaks(chat_template)) return *dialect;
  return described_tools();
}

}  // namespace millrace
