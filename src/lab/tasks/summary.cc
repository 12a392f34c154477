// A long record of days. The facts about people are its key facts; the rest is filler.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kMinFacts = 2, kMaxFacts = 6;
constexpr int64_t kLengthOfFact = 300;  // of the record, for each of its facts

// Draws are statements of their own: the order of operands is the compiler's.
std::string fact(LabRandom& random) {
  const std::string name = name_word(random);
  switch (random.below(4)) {
    case 0: {
      const std::string object(random.pick(kObjects));
      return name + " found " + with_article(random.pick(kColors)) + " " + object + ".";
    }
    case 1: return name + " became " + with_article(random.pick(kJobs)) + ".";
    case 2: return name + " moved to " + name_word(random) + ".";
    default: {
      const std::string food(random.pick(kFoods));
      return name + " sold " + numbered(random.between(2, 99)) + " pieces of " + food + ".";
    }
  }
}

std::vector<std::string> sentences(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = std::min(text.size(), text.find('.'));
    std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    while (!one.empty() && (one.front() == ' ' || one.front() == '\n')) one.remove_prefix(1);
    if (!one.empty()) out.emplace_back(one);
  }
  return out;
}

}  // namespace

LabItem make_summary(LabRandom& random, int64_t length) {
  std::vector<std::string> facts(static_cast<size_t>(std::clamp(length / kLengthOfFact, kMinFacts, kMaxFacts)));
  std::string answer;
  for (std::string& one : facts) {
    one = fact(random);
    answer += (answer.empty() ? "" : " ") + one;
  }
  return {.messages = {{"user", hide_facts(random, facts, length) + "\n\nWhat did the people do?"}}, .answer = answer};
}

// The longest common subsequence of sentences, as a share of the longer answer.
double score_summary(const LabItem& item, std::string_view given) {
  const auto expected = sentences(item.answer), found = sentences(given);
  std::vector<size_t> common(found.size() + 1);
  for (const std::string& sentence : expected) {
    size_t diagonal = 0;
    for (size_t j = 0; j < found.size(); ++j) {
      const size_t above = common[j + 1];
      common[j + 1] = sentence == found[j] ? diagonal + 1 : std::max(above, common[j]);
      diagonal = above;
    }
  }
  const size_t longer = std::max(expected.size(), found.size());
  return longer == 0 ? 0 : static_cast<double>(common.back()) / static_cast<double>(longer);
}

}  // namespace millrace::lab
