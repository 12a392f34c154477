#include "base/json_text.h"

namespace millrace {

template nlohmann::ordered_json parse_json(std::string_view text, int64_t depth);
template nlohmann::json parse_json(std::string_view text, int64_t depth);

bool nests_deeper(std::string_view text, int64_t depth) {
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (--depth < 0) return true;
    } else if (c == '}' || c == ']') {
      ++depth;
    }
  }
  return false;
}

}  // namespace millrace
