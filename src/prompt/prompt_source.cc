#include "prompt/prompt_source.h"

#include <fmt/format.h>

namespace millrace {

Result<PromptScope> find_prompt_scope(std::string_view name) {
  if (name == "all") return PromptScope::all;
  if (name == "documents") return PromptScope::documents;
  if (name == "history") return PromptScope::history;
  if (name == "tools") return PromptScope::tools;
  return Error::user(fmt::format("scope: expected all, documents, history or tools, got '{}'", name));
}

bool in_scope(PromptScope scope, PromptSource source) {
  switch (scope) {
    case PromptScope::all:
      return source == PromptSource::text || source == PromptSource::turn || source == PromptSource::tool;
    case PromptScope::documents: return source == PromptSource::text;
    case PromptScope::history: return source == PromptSource::turn || source == PromptSource::answer;
    case PromptScope::tools: return source == PromptSource::tool;
  }
  return false;
}

}  // namespace millrace
