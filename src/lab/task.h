// LabTask: a kind of exercise that a small model can learn and that a lossy technique can break, for example finding a
// fact, reading documents, calculating, or answering in a given form. A generator creates any number of items with
// their answers, and a checker scores answers exactly. Each task is one file under tasks/ and one line in builtin.cc.
// Item i depends only on (task, seed, i, split, lengths).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/lab_random.h"

namespace millrace {

struct LabMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

struct LabFollowUp {
  std::string question, answer;
};

struct LabItem {
  std::string task;
  std::vector<LabMessage> messages;  // the last one is the user's
  std::string answer;
  std::vector<std::string> documents;  // texts at the beginning of the last message, one after the other; may be empty
  std::vector<LabFollowUp> more;       // additional questions about the prompt, for training only

  // Returns the messages as plain text: the content if there is one message, otherwise lines of "role: content".
  std::string prompt() const;
};

struct LabTask {
  std::string_view name;
  std::string_view summary;
  bool grows = false;  // true: its prompts grow with the requested length
  // Generates an item. `length`: approximate characters of the prompt; ignored by tasks that do not grow.
  LabItem (*make)(LabRandom& random, int64_t length) = nullptr;
  // Scores the answer `given`, from 0 to 1. Most tasks return only 0 or 1.
  double (*score)(const LabItem& item, std::string_view given) = nullptr;
};

std::span<const LabTask> lab_tasks();
const LabTask* find_lab_task(std::string_view name);  // null if there is none
std::string lab_task_names();                         // "a, b, c", for messages

// The split that an item belongs to. It depends on the hash of the item's prompt, not on the seed. One of ten items is
// held out.
enum class LabSplit : uint8_t { train, held_out };
Result<LabSplit> find_lab_split(std::string_view name);  // "train" or "held_out"; errors: user
LabSplit split_of(const LabItem& item);

// Range of prompt lengths in characters. Lengths are drawn log-uniformly. Both limits are at least 100.
struct LabLengths {
  int64_t least = 200;
  int64_t most = 6000;
};

LabItem make_lab_item(const LabTask& task, uint64_t seed, uint64_t index, LabSplit split, const LabLengths& lengths);

// Returns 1 if the answer has the expected text, otherwise 0. Differences in spaces and a full stop at the end are
// ignored.
double score_text(const LabItem& item, std::string_view given);
// Scores an answer that should quote a text and end with a word. The word alone also scores 1.
double score_quote(const LabItem& item, std::string_view given);

}  // namespace millrace
