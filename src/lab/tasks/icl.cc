// In-context learning (Brown et al., 2020): examples show a rule, its labels are made up, and one more example is asked
// for.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kExampleLength = 13;  // about
constexpr int64_t kMinExamples = 6, kMaxExamples = 40;

// Inputs of the two labels.
struct Rule {
  std::vector<std::string> first, second;
};

std::vector<std::string> strings(Words words) { return {words.begin(), words.end()}; }

Rule words_rule(LabRandom& random) {
  auto kinds = random.sample(std::span<const Words>(std::vector{kColors, kObjects, kAnimals, kFoods, kJobs}), 2);
  return {strings(kinds[0]), strings(kinds[1])};
}

Rule numbers_rule(LabRandom& random) {
  const bool parity = random.chance(0.5);
  Rule rule;
  for (int64_t n = 10; n < 100; ++n) {
    if (!parity && n > 40 && n < 60) continue;  // which side of the limit these are on, examples might not show
    ((parity ? n % 2 == 0 : n < 50) ? rule.first : rule.second).push_back(numbered(n));
  }
  return rule;
}

}  // namespace

LabItem make_icl(LabRandom& random, int64_t length) {
  Rule rule = random.chance(0.7) ? words_rule(random) : numbers_rule(random);
  random.shuffle(rule.first);
  random.shuffle(rule.second);
  std::string labels[2] = {toy_word(random), toy_word(random)};
  while (labels[1] == labels[0]) labels[1] = toy_word(random);
  const int64_t most = std::min({std::ssize(rule.first), std::ssize(rule.second), kMaxExamples / 2}) - 1;
  const int64_t each = std::clamp(length / kExampleLength / 2, kMinExamples / 2, most);
  std::vector<std::string> lines;
  for (int64_t i = 0; i < each; ++i) {
    lines.push_back(rule.first[static_cast<size_t>(i)] + " -> " + labels[0]);
    lines.push_back(rule.second[static_cast<size_t>(i)] + " -> " + labels[1]);
  }
  random.shuffle(lines);
  std::string prompt;
  for (const std::string& line : lines) prompt += line + "\n";
  const bool second = random.chance(0.5);
  prompt += (second ? rule.second : rule.first)[static_cast<size_t>(each)] + " ->";
  return {.messages = {{"user", prompt}}, .answer = labels[second ? 1 : 0]};
}

}  // namespace millrace::lab
