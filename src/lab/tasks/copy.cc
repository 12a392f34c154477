// Words to be copied, reversed, sorted or repeated.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {

LabItem make_copy(LabRandom& random, int64_t) {
  std::vector<std::string_view> words;
  for (Words kind : {kColors, kObjects, kAnimals, kFoods}) words.insert(words.end(), kind.begin(), kind.end());
  words = random.sample(Words(words), random.between(3, 10));
  const auto joined = [&] {
    std::string text;
    for (std::string_view word : words) text += (text.empty() ? "" : " ") + std::string(word);
    return text;
  };
  const std::string given = joined();
  switch (random.below(4)) {
    case 0: return {.messages = {{"user", "Copy: " + given}}, .answer = given};
    case 1: std::ranges::reverse(words); return {.messages = {{"user", "Reverse: " + given}}, .answer = joined()};
    case 2: std::ranges::sort(words); return {.messages = {{"user", "Sort: " + given}}, .answer = joined()};
    default: return {.messages = {{"user", "Repeat: " + given}}, .answer = given + " " + given};
  }
}

}  // namespace millrace::lab
