#include "base/technique.h"

#include <charconv>
#include <string>

#include "base/enum_table.h"

namespace millrace {

static_assert(std::size(kLosses) == kEnumerators<Loss>, "kLosses lists them all");

Paper::Paper(std::string_view printed) : text(printed) {
  const std::string_view first = printed.substr(0, printed.find("; "));
  for (size_t comma = first.find(", "); comma != std::string_view::npos; comma = first.find(", ", comma + 1)) {
    const std::string_view rest = first.substr(comma + 2);
    if (rest.size() < 7 || rest.substr(4, 2) != ", ") continue;
    int64_t number = 0;
    if (std::from_chars(rest.data(), rest.data() + 4, number).ptr != rest.data() + 4) continue;
    authors = first.substr(0, comma);
    year = number;
    title = rest.substr(6);
    return;
  }
}

std::string_view loss_name(Loss loss) {
  switch (loss) {
    case Loss::not_applicable: return "not_applicable";
    case Loss::lossless: return "lossless";
    case Loss::lossy: return "lossy";
  }
  return "";
}

void fill(TechniqueInfo& info, const FamilyFacts& facts) {
  if (info.loss == Loss::not_applicable) info.loss = facts.loss;
  if (info.test.empty()) info.test = facts.test;
  if (info.proof.empty()) info.proof = facts.proof;
}

}  // namespace millrace
