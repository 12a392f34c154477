// The list of dialects. The first one that matches a template is used, so more specific ones come first.
#include "text/tools/dialects.h"
#include "text/tools/frames.h"

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

ToolDescription tool_description_of(const ToolDialect& dialect) {
  return dialect.structure == kDeepseekNamedTools.structure ? describe_deepseek_tools : nullptr;
}
CallWriter call_writer_of(const ToolDialect& dialect) {
  if (dialect.structure == kGraniteTools.structure) return write_granite_calls;
  return dialect.structure == kLfmTools.structure ? write_lfm_calls : nullptr;
}
AnswerFrames answer_frames_of(const ToolDialect& dialect) {
  return dialect.structure == kHarmonyTools.structure ? harmony_frames : nullptr;
}

}  // namespace millrace
