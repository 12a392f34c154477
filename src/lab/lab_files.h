// Files of items and of answers to them, one JSON object a line.
//
//   item     {"task": "needle", "prompt": "...", "messages": [{"role": "user", "content": "..."}], "answer": "4821"}
//   request  {"custom_id": "0", "url": "/v1/chat/completions", "body": {"messages": [...], ...}}     for `millrace
//   batch` answer   {"answer": "..."}, in the order of the items, or a line of `millrace batch`'s output, in any order
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "lab/task.h"

namespace millrace {

nlohmann::ordered_json lab_item_json(const LabItem& item);
// The request for item `index`; greedy.
nlohmann::ordered_json lab_request_json(const LabItem& item, int64_t index, int64_t max_tokens);

// `name` begins error messages. Errors: corrupt (with the line).
Result<std::vector<LabItem>> parse_lab_items(std::string_view text, const std::string& name);
// One answer an item; an item without one has "". Errors: corrupt (with the line; more answers than items, two answers
// to one item).
Result<std::vector<std::string>> parse_lab_answers(std::string_view text, const std::string& name, size_t items);

struct LabScore {
  int64_t items = 0;
  int64_t right = 0;  // with a score of 1
  double sum = 0;     // sum of the scores
};

// Scores by task, and by task and length: prompts of up to that many characters, a power of two.
struct LabScores {
  std::map<std::string, LabScore> tasks;
  std::map<std::pair<std::string, int64_t>, LabScore> lengths;
};

// `answers` has one for each item, whose tasks exist.
LabScores score_lab_answers(std::span<const LabItem> items, std::span<const std::string> answers);

}  // namespace millrace
