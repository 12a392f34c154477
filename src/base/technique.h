// TechniqueInfo: the description of a registered technique for users: its name, paper and options, whether it changes
// answers, the test of its correctness, and a measured result that shows its benefit.
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

// lossless: the technique does not change the tokens that the model chooses. lossy: it may change them. not_applicable:
// the technique does not take part in computing answers, such as a reader of traces.
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
  std::string test;   // file of the property test that fails if the technique is wrong
  std::string proof;  // page or stored result that shows its benefit; empty: none yet
};

// Values that most members of a family share; a member's own values take precedence.
struct FamilyFacts {
  Loss loss = Loss::not_applicable;
  std::string_view test = {};
  std::string_view proof = {};
};
void fill(TechniqueInfo& info, const FamilyFacts& facts);

}  // namespace millrace
