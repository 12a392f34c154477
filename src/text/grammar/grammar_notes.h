// GrammarNotes: the parts of a constraint's source that the grammar does not enforce. `weakened` names each place where
// the grammar may accept a text that violates the source; a strict caller rejects such a constraint. `ignored` names
// the parts that must be ignored according to the standard.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace millrace {

struct GrammarNotes {
  static constexpr size_t kMax = 50;       // entries per list
  static constexpr size_t kLongest = 400;  // bytes per entry; paths in a schema may be long
  std::vector<std::string> weakened, ignored;

  void weaken(std::string text) { add(weakened, std::move(text)); }
  void ignore(std::string text) { add(ignored, std::move(text)); }

 private:
  static void add(std::vector<std::string>& list, std::string text) {
    if (text.size() > kLongest) {
      size_t end = kLongest;
      while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole characters
      text = text.substr(0, end) + "...";
    }
    if (list.size() < kMax && std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
  }
};

}  // namespace millrace
