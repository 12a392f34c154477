#include "server/generation/engine_choices.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace millrace {
namespace {

// Where a file that an option names is, is the server's own business.
std::string without_folders(std::string text) {
  for (const std::string_view option : {"levels=", "model=", "link_embeddings="}) {
    const size_t at = text.find(option);
    if (at == std::string::npos) continue;
    const size_t begin = at + option.size();
    size_t end = std::min(text.find(',', begin), text.size());
    while (end > begin + 1 && text[end - 1] == '/') text.erase(--end, 1);
    const size_t slash = text.rfind('/', end - 1);
    if (slash != std::string::npos && slash >= begin) text.erase(begin, slash + 1 - begin);
  }
  return text;
}

bool chosen(const std::string& technique) { return !technique.empty() && technique != "none"; }

}  // namespace

Json engine_choices(const EngineOptions& options, const Request& request) {
  static const std::string plain_format = EngineOptions().kv_format;
  constexpr std::string_view kPattern = "attention=";
  Json out = Json::object();
  if (options.kv_format != plain_format) out["kv_format"] = without_folders(options.kv_format);
  for (const std::string& kernel : options.kernels)
    if (kernel.starts_with(kPattern)) out["attention"] = kernel.substr(kPattern.size());
  if (request.evictor.empty() && chosen(options.evictor)) out["evictor"] = options.evictor;
  if (!request.documents.empty() && request.document_context.empty() && chosen(options.document_context))
    out["context"] = without_folders(options.document_context);
  return out;
}

}  // namespace millrace
