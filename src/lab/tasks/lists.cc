// An answer of independent points: a skeleton, then each point's sentence, which follows from the facts by rule (what
// Skeleton-of-Thought, Ning et al., 2024, decodes in parallel).
//
//   The bell is red and belongs to Tamo.       Points:      Details:
//   The cup is small and belongs to ...        1. bell      1. The bell is red. It belongs to Tamo.
//   List the bell and the cup.                 2. cup       2. ...
#include <algorithm>

#include "lab/tasks/tasks.h"
#include "lab/words.h"

namespace millrace::lab {
namespace {

struct Parts {
  std::vector<std::string> points, details;
};

// The numbered lines behind each heading; empty where the form is wrong.
Parts parse(std::string_view text) {
  Parts out;
  std::vector<std::string>* into = nullptr;
  while (!text.empty()) {
    const size_t end = std::min(text.size(), text.find('\n'));
    std::string line(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    while (!line.empty() && line.back() == ' ') line.pop_back();
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty()) continue;
    if (line == "Points:" && !into) {
      into = &out.points;
    } else if (line == "Details:" && into == &out.points) {
      into = &out.details;
    } else {
      const std::string number = into ? std::to_string(into->size() + 1) + ". " : "";
      if (!into || !line.starts_with(number)) return {};
      into->push_back(line.substr(number.size()));
    }
  }
  return out;
}

}  // namespace

LabItem make_lists(LabRandom& random, int64_t) {
  const auto things = random.sample(kObjects, random.between(3, 8));
  std::string facts;
  std::vector<std::string> details;
  for (std::string_view thing : things) {
    const std::string how(random.chance(0.5) ? random.pick(kColors) : random.pick(kAdjectives));
    const std::string owner = name_word(random);
    const std::string begin = "The " + std::string(thing) + " is " + how;
    facts += begin + " and belongs to " + owner + ".\n";
    details.push_back(begin + ". It belongs to " + owner + ".");
  }
  std::vector<size_t> order(things.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  random.shuffle(order);
  order.resize(static_cast<size_t>(random.between(2, std::min<int64_t>(5, std::ssize(things)))));
  std::vector<std::string> named;
  std::string points = "Points:\n", sentences = "Details:\n";
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string thing(things[order[i]]), number = std::to_string(i + 1) + ". ";
    named.push_back("the " + thing);
    points += number + thing + "\n";
    sentences += number + details[order[i]] + "\n";
  }
  sentences.pop_back();
  return {.messages = {{"user", facts + "\nList " + enumeration(named) + "."}}, .answer = points + sentences};
}

// The share of sentences that are right; 0 if the form or the points are wrong.
double score_lists(const LabItem& item, std::string_view given) {
  const Parts expected = parse(item.answer), found = parse(given);
  if (found.points != expected.points || found.details.size() != expected.details.size()) return 0;
  int64_t right = 0;
  for (size_t i = 0; i < found.details.size(); ++i) right += found.details[i] == expected.details[i];
  return static_cast<double>(right) / static_cast<double>(expected.details.size());
}

}  // namespace millrace::lab
