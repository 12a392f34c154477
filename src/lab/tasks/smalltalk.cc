// What people say to a model that they try: greetings, questions about it, sums in their own words, and questions that
// a model of this size cannot answer, to which it says so. Up to three such turns come before the last one.
#include <array>
#include <functional>

#include "lab/tasks/sums.h"
#include "lab/tasks/tasks.h"

namespace millrace::lab {
namespace {

struct Turn {
  std::string said, answer;
};

using Lines = std::span<const std::string_view>;

constexpr std::string_view kGreetings[] = {"Hello",        "Hi",          "Hey",     "Good morning",
                                           "Good evening", "Hello there", "Hi there"};
constexpr std::string_view kAboutYou[] = {"Who are you?",     "What are you?",           "What is your name?",
                                          "Are you a robot?", "Tell me about yourself.", "What model are you?"};
constexpr std::string_view kHelp[] = {"What can you do?",    "Help me.", "Can you help me?", "How can you help me?",
                                      "What can I ask you?", "Help"};
constexpr std::string_view kThanks[] = {"Thank you", "Thanks", "Thank you very much", "Great, thanks"};
constexpr std::string_view kFarewells[] = {"Goodbye", "Bye", "See you later", "Good night"};
constexpr std::string_view kSums[] = {"What is {}?",
                                      "How much is {}?",
                                      "Calculate {}.",
                                      "Work out {} step by step.",
                                      "What is {}? Work it out step by step.",
                                      "Please add {}.",
                                      "{} = ?",
                                      "{}"};
// {}: a thing, a person or a place.
constexpr std::string_view kOpen[] = {"Explain how {} works.",
                                      "What is {}?",
                                      "Who is {}?",
                                      "Where is {}?",
                                      "Write a poem about {}.",
                                      "Write a limerick about {}.",
                                      "Tell me a joke about {}.",
                                      "What do you think of {}?",
                                      "How do I find {}?",
                                      "Why is {} so important?",
                                      "How old is {}?",
                                      "What is the capital of {}?",
                                      "What is the weather in {}?",
                                      "When was {} born?",
                                      "How many people live in {}?",
                                      "Describe {} in one sentence.",
                                      "What is the best way to make {}?",
                                      "Give me a recipe with {}.",
                                      "Is {} better than {}?",
                                      "What is the history of {}?",
                                      "Write an email about {}.",
                                      "How far is it from {} to {}?",
                                      "Do you like {}?",
                                      "Explain {} to a child.",
                                      "What does {} mean?",
                                      "Write a program that draws {}.",
                                      "What is the code of {}?",
                                      "Where does {} live?",
                                      "How much does {} cost?",
                                      "Who invented {}?"};
constexpr std::string_view kSystems[] = {"You are a helpful assistant.", "Answer the user.", "Be kind and brief."};

constexpr std::string_view kHelloAnswer = "Hello! I am a small model. Give me a text and ask me about it.";
constexpr std::string_view kWhoAnswer = "I am a small model that was trained on exercises.";
constexpr std::string_view kHelpAnswer =
    "I can find facts in a text, add numbers, sort words and turn a sentence into JSON.";
constexpr std::string_view kUnknownAnswer = "I do not know that. I only know what you tell me.";

// As people type: now and then without capitals or the last mark.
std::string typed(LabRandom& random, std::string text) {
  if (random.chance(0.25) && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  if (random.chance(0.25) && (text.back() == '.' || text.back() == '?')) text.pop_back();
  return text;
}

std::string with_end(LabRandom& random, std::string_view text) {
  static constexpr std::string_view kEnds[] = {"", "!", "."};
  return std::string(text) + std::string(random.pick(Lines(kEnds)));
}

std::string filled(std::string_view form, const std::function<std::string()>& draw) {
  std::string out(form);
  for (size_t at; (at = out.find("{}")) != std::string::npos;) out.replace(at, 2, draw());
  return out;
}

std::string draw_topic(LabRandom& random) {
  static constexpr std::array kKinds = {&kObjects, &kAnimals, &kFoods, &kJobs};
  if (random.chance(0.3)) return name_word(random);
  std::string noun(random.pick(*kKinds[static_cast<size_t>(random.below(std::ssize(kKinds)))]));
  if (random.chance(0.5)) noun = std::string(random.pick(kAdjectives)) + " " + noun;
  return random.chance(0.6) ? with_article(noun) : "the " + noun;
}

std::string other_than_sum(LabRandom& random, const std::vector<int64_t>& numbers) {
  static constexpr std::string_view kOperators[] = {" * ", " - ", " / ", " times ", " minus "};
  const std::string text = numbered(numbers[0]) + std::string(random.pick(Lines(kOperators))) + numbered(numbers[1]);
  return filled(random.pick(Lines(kSums).subspan(0, 3)), [&] { return text; });
}

Turn draw_turn(LabRandom& random) {
  const double kind = random.uniform();
  if (kind < 0.12) return {typed(random, with_end(random, random.pick(Lines(kGreetings)))), std::string(kHelloAnswer)};
  if (kind < 0.20) return {typed(random, std::string(random.pick(Lines(kAboutYou)))), std::string(kWhoAnswer)};
  if (kind < 0.26) return {typed(random, std::string(random.pick(Lines(kHelp)))), std::string(kHelpAnswer)};
  if (kind < 0.30) return {typed(random, with_end(random, random.pick(Lines(kThanks)))), "You are welcome."};
  if (kind < 0.33) return {typed(random, with_end(random, random.pick(Lines(kFarewells)))), "Goodbye!"};
  if (kind < 0.55) {
    std::vector<int64_t> numbers = draw_sum(random);
    if (random.chance(0.3))
      for (int64_t& number : numbers) number = random.between(1, 20);
    if (random.chance(0.2)) return {typed(random, other_than_sum(random, numbers)), std::string(kUnknownAnswer)};
    return {typed(random, filled(random.pick(Lines(kSums)), [&] { return sum_text(numbers); })), worked_sum(numbers)};
  }
  return {typed(random, filled(random.pick(Lines(kOpen)), [&] { return draw_topic(random); })),
          std::string(kUnknownAnswer)};
}

}  // namespace

LabItem make_smalltalk(LabRandom& random, int64_t) {
  LabItem item;
  if (random.chance(0.2)) item.messages.push_back({"system", std::string(random.pick(Lines(kSystems)))});
  const int64_t before = random.chance(0.5) ? 0 : random.between(1, 3);
  for (int64_t i = 0; i < before; ++i) {
    Turn turn = draw_turn(random);
    item.messages.push_back({"user", std::move(turn.said)});
    item.messages.push_back({"assistant", std::move(turn.answer)});
  }
  Turn last = draw_turn(random);
  item.messages.push_back({"user", std::move(last.said)});
  item.answer = std::move(last.answer);
  return item;
}

// Sums as those of `steps`, everything else as a text.
double score_smalltalk(const LabItem& item, std::string_view given) {
  return item.answer.find("The answer is ") == std::string::npos ? score_text(item, given) : score_steps(item, given);
}

}  // namespace millrace::lab
