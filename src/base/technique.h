// TechniqueInfo: the description of a registered technique for users: its name, the paper that it follows, its options,
// whether answers change with it, and the test and the result that prove it. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace millrace {

// Written and printed as "Authors, year, title"; further papers follow after "; ". Empty: there is no paper.
struct Paper {
  Paper() = default;
  Paper(std::string_view printed);
  Paper(const char* printed) : Paper(std::string_view(printed)) {}

  bool empty() const { return text.empty(); }

  std::string text;            // as printed, with all papers
  std::string authors, title;  // authors and title of the first paper
  int64_t year = 0;
};

// lossless: the tokens that the model would choose without the technique stay the same. not_applicable: the technique
// is not part of computing answers (readers of traces).
enum class Loss : uint8_t { not_applicable, lossless, lossy };
inline constexpr Loss kLosses[] = {Loss::not_applicable, Loss::lossless, Loss::lossy};
std::string_view loss_name(Loss loss);

struct TechniqueInfo {
  std::string family;   // "sampler", "format", "arch" ...
  std::string name;     // as typed: "min_p"
  std::string summary;  // one line
  Paper paper;
  std::vector<OptionSpec> options;
  Loss loss = Loss::not_applicable;
  std::string test;   // file of the property test that would fail if it were wrong
  std::string proof;  // page or stored result with its benefit; empty until there is one
};

// Values that most members of a family share; a member's own values take precedence.
struct FamilyFacts {
  Loss loss = Loss::not_applicable;
  std::string_view test = {};
  std::string_view proof = {};
};
void fill(TechniqueInfo& info, const FamilyFacts& facts);

}  // namespace millrace
