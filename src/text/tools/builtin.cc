// The dialects; the first one that speaks a template's language is taken, so that narrower ones come first.
#include "text/tools/dialects.h"

namespace millrace {

std::span<const ToolDialect> tool_dialects() {
  static const ToolDialect all[] = {kQwenXmlTools, kHermesTools, kMistralArgsTools, kMistralTools, kLlamaTools};
  return all;
}

const ToolDialect& described_tools() { return kHermesTools; }

const ToolDialect& tool_dialect_of(std::string_view chat_template) {
  for (const ToolDialect& dialect : tool_dialects())
    if (dialect.speaks(chat_template)) return dialect;
  return described_tools();
}

}  // namespace millrace
