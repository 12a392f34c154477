// A conversation with a rule for every answer in its system message. The user tells facts and asks for one of them at
// the end.
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

constexpr int64_t kLengthOfTurn = 70;  // about
constexpr int64_t kMaxTurns = 40;

constexpr std::string_view kRules[] = {"End every answer with the word sir.", "Begin every answer with the word Well.",
                                       "Write every answer in capital letters.", "Put every answer in brackets."};

std::string by_rule(int64_t rule, const std::string& text) {
  switch (rule) {
    case 0: return text.substr(0, text.size() - 1) + ", sir.";
    case 1: return "Well, " + text;
    case 2: return capitals(text);
    default: return "[" + text + "]";
  }
}

struct Fact {
  std::string told, asked, answer;
};

std::vector<Fact> draw_facts(LabRandom& random) {
  std::vector<Fact> out;
  for (std::string_view animal : random.sample(kAnimals, 3)) {
    const std::string kind(animal), name = name_word(random);
    out.push_back({"My " + kind + " is called " + name + ".", "What is my " + kind + " called?",
                   "Your " + kind + " is called " + name + "."});
  }
  for (std::string_view object : random.sample(kObjects, 3)) {
    const std::string thing(object), color(random.pick(kColors));
    out.push_back({"My " + thing + " is " + color + ".", "What color is my " + thing + "?",
                   "Your " + thing + " is " + color + "."});
  }
  const std::string town = name_word(random), job(random.pick(kJobs));
  out.push_back({"I live in " + town + ".", "Where do I live?", "You live in " + town + "."});
  out.push_back({"I work as " + with_article(job) + ".", "What is my job?", "You work as " + with_article(job) + "."});
  random.shuffle(out);
  return out;
}

}  // namespace

LabItem make_dialogue(LabRandom& random, int64_t length) {
  const int64_t rule = random.below(std::ssize(kRules));
  const auto facts = draw_facts(random);
  LabItem item;
  item.messages.push_back({"system", std::string(kRules[static_cast<size_t>(rule)])});
  const int64_t turns = std::clamp<int64_t>(length / kLengthOfTurn, 2, kMaxTurns);
  int64_t told = 0;
  for (int64_t turn = 0; turn < turns; ++turn) {
    const bool tells = told == 0 || (told < std::ssize(facts) && random.chance(0.4));
    const std::string said = tells ? facts[static_cast<size_t>(told++)].told : filler_sentence(random);
    item.messages.push_back({"user", said});
    item.messages.push_back({"assistant", by_rule(rule, tells ? "I will remember that." : "That is nice.")});
  }
  const Fact& asked = facts[static_cast<size_t>(random.below(told))];
  item.messages.push_back({"user", asked.asked});
  item.answer = by_rule(rule, asked.answer);
  for (int64_t i = 0; i < told; ++i) {
    const Fact& another = facts[static_cast<size_t>(i)];
    item.more.push_back({another.asked, by_rule(rule, another.answer)});
  }
  return item;
}

}  // namespace millrace::lab
