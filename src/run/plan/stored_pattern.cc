#include "run/plan/stored_pattern.h"

#include "base/ordered_json.h"
#include "models/forward_switches.h"

namespace millrace {

std::vector<std::string> with_stored_patterns(const ModelFiles& files, std::vector<std::string> kernels) {
  if (!files.config) return kernels;
  for (std::string& text : kernels) {
    if (!text.starts_with(kPatternPrefix) || text.find(':') != std::string::npos) continue;
    const auto stored = files.config->find(stored_pattern_key(text.substr(kPatternPrefix.size())));
    if (stored != files.config->end() && stored->is_string()) text += ":" + stored->get<std::string>();
  }
  return kernels;
}

}  // namespace millrace
