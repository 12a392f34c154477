// A toy language: its dictionary is in the prompt, and a few words are to be translated, in either direction. The
// answer repeats each word before its translation.
#include <algorithm>
#include <sstream>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kEntryLength = 11;  // about
constexpr int64_t kMinEntries = 6;
constexpr int64_t kMoreTranslations = 20;  // for training

// The words behind "=", or all of them where there is none.
std::vector<std::string> translations(std::string_view text) {
  std::vector<std::string> out;
  std::istringstream in{std::string(text)};
  for (std::string word; in >> word;) {
    while (!word.empty() && (word.back() == ',' || word.back() == '.')) word.pop_back();
    if (word == "=" && !out.empty()) out.pop_back();
    if (word != "=") out.push_back(word);
  }
  return out;
}

}  // namespace

LabItem make_dictionary(LabRandom& random, int64_t length) {
  std::vector<std::string_view> all;
  for (Words kind : {kColors, kObjects, kAnimals, kFoods}) all.insert(all.end(), kind.begin(), kind.end());
  const auto words = random.sample(Words(all), std::max(kMinEntries, length / kEntryLength));
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
      out.answer +=
          (out.answer.empty() ? "" : ", ") + (to_english ? toys[at] + " = " + english : english + " = " + toys[at]);
    }
    out.question = "Translate: " + out.question;
    return out;
  };
  const LabFollowUp asked = translation();
  LabItem item = {.messages = {{"user", prompt + "\n" + asked.question}}, .answer = asked.answer};
  for (int64_t i = 0; i < kMoreTranslations; ++i) item.more.push_back(translation());
  return item;
}

// With the words before their translations or without them.
double score_dictionary(const LabItem& item, std::string_view given) {
  return translations(given) == translations(item.answer) ? 1 : 0;
}

}  // namespace millrace::lab
