// Reads and writes files of items, requests and answers, with one JSON object a line.
//
//   item     {"task": "needle", "prompt": "...", "messages": [{"role": "user", "content": "..."}], "answer": "4821"}
//   request  {"custom_id": "0", "url": "/v1/chat/completions", "body": {"messages": [...], ...}}
//   answer   {"answer": "..."}
//
// Requests are input of `millrace batch`. Answers are either in the order of the items, or lines of the output of
// `millrace batch` in any order.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "lab/task.h"

namespace millrace {

nlohmann::ordered_json lab_item_json(const LabItem& item);
// Returns a request with greedy sampling for item number `index`.
nlohmann::ordered_json lab_request_json(const LabItem& item, int64_t index, int64_t max_tokens);

// `name`: beginning of error messages. Errors: corrupt (with the line number).
Result<std::vector<LabItem>> parse_lab_items(std::string_view text, const std::string& name);
// Returns one answer for each item; "" for items without an answer. Errors: corrupt, with the line number (an invalid
// line, more answers than items, or two answers to one item).
Result<std::vector<std::string>> parse_lab_answers(std::string_view text, const std::string& name, size_t items);

struct LabScore {
  int64_t items = 0;
  int64_t right = 0;  // number of items with a score of 1
  double sum = 0;     // sum of the scores
};

// Scores by task, and by task and prompt length. A length class has the prompts of up to a power of two characters.
struct LabScores {
  std::map<std::string, LabScore> tasks;
  std::map<std::pair<std::string, int64_t>, LabScore> lengths;
};

// `answers`: one for each item. The tasks of all items must exist.
LabScores score_lab_answers(std::span<const LabItem> items, std::span<const std::string> answers);

}  // namespace millrace
