// Needles in a haystack (Kamradt, 2023): codes of things, anywhere between filler sentences; some other sentences look
// alike. The question needs one of them, and the answer quotes it.
#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kMaxNeedles = 4;
constexpr std::string_view kOtherNumbers[] = {"price", "weight", "age"};  // of the thing that the question is about

std::string code_of(std::string_view kind, const std::string& thing, int64_t value) {
  return "The " + std::string(kind) + " of the " + thing + " is " + numbered(value) + ".";
}

}  // namespace

LabItem make_needle(LabRandom& random, int64_t length) {
  const auto colors = random.sample(kColors, kMaxNeedles);
  const auto objects = random.sample(kObjects, kMaxNeedles);
  const std::string thing = std::string(colors[0]) + " " + std::string(objects[0]);
  std::vector<std::string> facts = {code_of("code", thing, random.between(1000, 9999))};
  std::vector<std::string> others;
  const int64_t needles = random.between(1, kMaxNeedles);
  for (int64_t i = 1; i < needles; ++i) {  // the others share its color, its object or nothing
    const auto other = static_cast<size_t>(i);
    const bool same_color = random.chance(0.4), same_object = !same_color && random.chance(0.5);
    const std::string near =
        std::string(colors[same_color ? 0 : other]) + " " + std::string(objects[same_object ? 0 : other]);
    others.push_back(near);
    facts.push_back(code_of("code", near, random.between(1000, 9999)));
  }
  if (random.chance(0.5)) {
    const int64_t number = random.between(1000, 9999);
    facts.push_back(code_of(random.pick(Words(kOtherNumbers)), thing, number));
  }
  const std::vector<std::string> answers(facts.begin(), facts.begin() + needles);
  random.shuffle(facts);
  const std::string question = "Question: What is the code of the " + thing + "?";
  const std::string text = hide_facts(random, facts, length - std::ssize(question));
  LabItem item = {.messages = {{"user", text + "\n\n" + question}}, .answer = answers[0]};
  for (size_t i = 0; i < others.size(); ++i)
    item.more.push_back({"Question: What is the code of the " + others[i] + "?", answers[i + 1]});
  return item;
}

}  // namespace millrace::lab
