// A toy language: its dictionary is in the prompt, and a few words are to be translated, in either direction.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kEntryLength = 11;  // about
constexpr int64_t kLeastEntries = 6;
constexpr int64_t kMoreQuestions = 20;  // for training

}  // namespace

LabItem make_dictionary(LabRandom& random, int64_t length) {
  std::vector<std::string_view> all;
  for (Words kind : {kColors, kObjects, kAnimals, kFoods}) all.insert(all.end(), kind.begin(), kind.end());
  const auto words = random.sample(Words(all), std::max(kLeastEntries, length / kEntryLength));
  std::vector<std::string> toys;
  while (toys.size() < words.size()) {
    std::string toy = toy_word(random);
    if (std::ranges::find(toys, toy) == toys.end()) toys.push_back(std::move(toy));
  }
  std::string prompt;
  for (size_t i = 0; i < words.size(); ++i) prompt += toys[i] + " = " + std::string(words[i]) + "\n";
  const auto translation = [&] {
    const bool to_english = random.chance(0.5);
    LabFollowUp out;
    for (int64_t i = random.between(1, 4); i > 0; --i) {
      const auto at = static_cast<size_t>(random.below(std::ssize(words)));
      const std::string english(words[at]);
      out.question += (out.question.empty() ? "" : " ") + (to_english ? toys[at] : english);
      out.answer += (out.answer.empty() ? "" : " ") + (to_english ? english : toys[at]);
    }
    out.question = "Translate: " + out.question;
    return out;
  };
  const LabFollowUp asked = translation();
  LabItem item = {.messages = {{"user", prompt + "\n" + asked.question}}, .answer = asked.answer};
  for (int64_t i = 0; i < kMoreQuestions; ++i) item.more.push_back(translation());
  return item;
}

}  // namespace millrace::lab
