// Looks up a filter in the three tables: text_filters.cc, sequence_filters.cc, selection_filters.cc.
#include "text/template/natives.h"

namespace millrace::jinja {

const Native* find_filter(std::string_view name) {
  for (std::span<const Native> table : {text_filters(), sequence_filters(), selection_filters()}) {
    for (const Native& n : table) {
      if (n.name == name) return &n;
    }
  }
  return nullptr;
}

}  // namespace millrace::jinja
