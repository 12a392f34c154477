#include "server/generation/engine_choices.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace millrace {
namespace {

// The folder of a file of levels is the server's own business.
std::string without_folder(std::string text) {
  constexpr std::string_view kFile = "levels=";
  const size_t at = text.find(kFile);
  if (at == std::string::npos) return text;
  const size_t begin = at + kFile.size(), end = std::min(text.find(',', begin), text.size());
  const size_t slash = text.rfind('/', end - 1);
  if (slash != std::string::npos && slash >= begin) text.erase(begin, slash + 1 - begin);
  return text;
}

}  // namespace

Json engine_choices(const EngineOptions& options, bool own_evictor) {
  static const std::string plain_format = EngineOptions().kv_format;
  constexpr std::string_view kPattern = "attention=";
  Json out = Json::object();
  if (options.kv_format != plain_format) out["kv_format"] = without_folder(options.kv_format);
  for (const std::string& kernel : options.kernels)
    if (kernel.starts_with(kPattern)) out["attention"] = kernel.substr(kPattern.size());
  if (!own_evictor && !options.evictor.empty() && options.evictor != "none") out["evictor"] = options.evictor;
  return out;
}

}  // namespace millrace
