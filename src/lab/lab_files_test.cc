// Files of items and answers: round trip, scores by task and length, and errors with their line.
#include "lab/lab_files.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

LabItem lab_item(const char* task, uint64_t index) {
  return make_lab_item(*find_lab_task(task), 5, index, LabSplit::held_out, {});
}

TEST(LabFiles, ItemsComeBackAsTheyWere) {
  std::string text;
  for (const LabTask& task : lab_tasks()) text += lab_item_json(lab_item(task.name.data(), 0)).dump() + "\n\n";
  const auto items = parse_lab_items(text, "items.jsonl");
  ASSERT_TRUE(items.ok()) << items.error().message;
  ASSERT_EQ(items->size(), lab_tasks().size());
  for (size_t i = 0; i < items->size(); ++i) {
    const LabItem expected = lab_item(lab_tasks()[i].name.data(), 0);
    EXPECT_EQ((*items)[i].prompt(), expected.prompt());
    EXPECT_EQ((*items)[i].answer, expected.answer);
  }
}

TEST(LabFiles, AnswersInOrderOrFromABatch) {
  const auto plain = parse_lab_answers("{\"answer\": \"a\"}\n{\"answer\": \"b\"}", "x", 3);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, (std::vector<std::string>{"a", "b", ""}));
  const auto batch = parse_lab_answers(
      R"({"custom_id": "2", "response": {"body": {"choices": [{"message": {"content": "c"}}]}}}
{"custom_id": "0", "response": {"body": {"choices": [{"text": "a"}]}}}
{"custom_id": "1", "response": null, "error": {"message": "too long"}})",
      "x", 3);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(*batch, (std::vector<std::string>{"a", "", "c"}));
}

TEST(LabFiles, RequestsAreGreedyChats) {
  const LabItem item = lab_item("copy", 1);
  EXPECT_EQ(lab_request_json(item, 7, 64).dump(),
            R"({"custom_id":"7","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":")" +
                item.prompt() + R"("}],"max_tokens":64,"temperature":0}})");
}

TEST(LabFiles, ScoresByTaskAndLength) {
  std::vector<LabItem> items;
  std::vector<std::string> answers;
  for (uint64_t i = 0; i < 6; ++i) {
    items.push_back(lab_item("steps", i));
    answers.push_back(i < 4 ? items.back().answer : "The answer is 7.");
  }
  items.push_back(lab_item("summary", 0));
  answers.push_back(items.back().answer.substr(items.back().answer.find('.') + 1));  // all facts but the first
  const LabScores scores = score_lab_answers(items, answers);
  ASSERT_EQ(scores.tasks.size(), 2u);
  EXPECT_EQ(scores.tasks.at("steps").items, 6);
  EXPECT_EQ(scores.tasks.at("steps").right, 4);
  EXPECT_EQ(scores.tasks.at("steps").sum, 4);
  const auto facts = static_cast<double>(std::ranges::count(items.back().answer, '.'));
  EXPECT_DOUBLE_EQ(scores.tasks.at("summary").sum, (facts - 1) / facts);
  EXPECT_EQ(scores.tasks.at("summary").right, 0);
  int64_t counted = 0;
  for (const auto& [at, part] : scores.lengths) {
    counted += part.items;
    EXPECT_EQ(at.second & (at.second - 1), 0);
  }
  EXPECT_EQ(counted, 7);
}

TEST(LabFiles, ErrorsNameTheLine) {
  const auto item_error = [](const std::string& text) { return parse_lab_items(text, "items.jsonl").error().message; };
  EXPECT_EQ(item_error("\n[1]"), "items.jsonl: line 2 is not a JSON object");
  EXPECT_EQ(item_error("{\"task\": 3}"), "items.jsonl: line 1: the field task is not a text");
  EXPECT_EQ(item_error(R"({"task": "poem", "answer": ""})"),
            "items.jsonl: line 1: no such task as 'poem'; there are " + lab_task_names());
  EXPECT_EQ(item_error(R"({"task": "copy", "answer": "", "messages": []})"),
            "items.jsonl: line 1: the field messages is not a list of messages");
  EXPECT_EQ(item_error(R"({"task": "copy", "answer": "", "messages": [{"role": "user"}]})"),
            "items.jsonl: line 1: the field content is not a text");
  const auto answer_error = [](const std::string& text) { return parse_lab_answers(text, "a", 1).error().message; };
  EXPECT_EQ(answer_error("{}"), "a: line 1: the field answer is not a text");
  EXPECT_EQ(answer_error("{\"answer\": \"\"}\n{\"answer\": \"\"}"), "a: line 2: an answer to item 1, of 1 items");
  EXPECT_EQ(answer_error(R"({"custom_id": "x"})"), "a: line 1: custom_id 'x' is not the number of an item");
  EXPECT_EQ(answer_error("{\"custom_id\": \"0\"}\n{\"custom_id\": \"0\"}"), "a: line 2: a second answer to item 0");
}

}  // namespace
}  // namespace millrace
