// LabTask: a kind of exercise that a small model can learn and that a technique can break: finding a fact, reading
// documents, calculating, keeping to a form. A generator makes unlimited items, each with its answer, and a checker
// scores an answer exactly. One file each under tasks/ and one line in builtin.cc. Everything is deterministic: item i
// depends on (task, seed, i, split, lengths) alone.
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
  std::vector<std::string> documents;  // texts that the last message begins with, one after the other; may be empty
  std::vector<LabFollowUp> more;       // further questions about the same prompt; for training, no part of the item

  // As plain text: the message itself if it is the only one, else "role: content" lines.
  std::string prompt() const;
};

struct LabTask {
  std::string_view name;
  std::string_view summary;
  bool grows = false;  // true: its prompts grow with the requested length
  // `length`: characters that the prompt should have, about; tasks that do not grow ignore it.
  LabItem (*make)(LabRandom& random, int64_t length) = nullptr;
  // The share of the answer that is right: 0 to 1, for most tasks one of the two.
  double (*score)(const LabItem& item, std::string_view given) = nullptr;
};

std::span<const LabTask> lab_tasks();
const LabTask* find_lab_task(std::string_view name);  // null if there is none
std::string lab_task_names();                         // "a, b, c", for messages

// An item belongs to one split, by the hash of its prompt, for any seed: one of ten to the held-out one.
enum class LabSplit : uint8_t { train, held_out };
Result<LabSplit> find_lab_split(std::string_view name);  // "train" or "held_out"; errors: user
LabSplit split_of(const LabItem& item);

// Lengths of prompts in characters, drawn log-uniformly; both at least 100.
struct LabLengths {
  int64_t least = 200;
  int64_t most = 6000;
};

LabItem make_lab_item(const LabTask& task, uint64_t seed, uint64_t index, LabSplit split, const LabLengths& lengths);

// 1 if both say the same, apart from spaces at the ends and between words and a full stop at the end; else 0.
double score_text(const LabItem& item, std::string_view given);
// Scores an answer that quotes a text and ends with the requested word: that word alone is right, too.
double score_quote(const LabItem& item, std::string_view given);

}  // namespace millrace
