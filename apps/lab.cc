// millrace lab: exercises with exact answers, for training and for measuring what a technique costs.
#include <fmt/format.h>

#include <cstdio>

#include "command.h"
#include "input.h"
#include "lab/lab_files.h"
#include "lab_picture.h"
#include "picture_flags.h"

namespace millrace {
namespace {

constexpr const char* kLabExamples = R"(Examples:
  millrace lab generate --task needle --n 100 --split held_out > items.jsonl
  millrace lab generate --task needle --n 100 --split held_out --requests > requests.jsonl
  millrace batch -m model.gguf -i requests.jsonl -o results.jsonl
  millrace lab check --items items.jsonl --answers results.jsonl
  millrace lab map --cells needles.json --picture needles.png    (needles.json: of tools/needle_map --cells)

Item i depends on the task, the seed, i, the split and the lengths alone; the splits share no item. Without --task, all
tasks take turns. A line of --answers is {"answer": "..."}, in the order of the items, or a line from `millrace batch`.
Tasks: )";

struct LabFlags {
  std::string action, task, split = "train", items, answers, cells;
  uint64_t seed = 0;
  int64_t count = 10, max_tokens = 256;
  LabLengths lengths;
  bool requests = false, json = false;
  PictureFlags picture;
};

Result<int> generate(const LabFlags& flags) {
  MILLRACE_TRY(const LabSplit split, find_lab_split(flags.split));
  const LabTask* only = flags.task.empty() ? nullptr : find_lab_task(flags.task);
  if (!only && !flags.task.empty())
    return Error::user(fmt::format("--task {}: no such task; there are {}", flags.task, lab_task_names()));
  if (flags.lengths.least > flags.lengths.most)
    return Error::user(
        fmt::format("--least-length {} is more than --most-length {}", flags.lengths.least, flags.lengths.most));
  const auto tasks = lab_tasks();
  for (int64_t i = 0; i < flags.count; ++i) {
    const LabTask& task = only ? *only : tasks[static_cast<size_t>(i % std::ssize(tasks))];
    const auto index = static_cast<uint64_t>(only ? i : i / std::ssize(tasks));
    const LabItem item = make_lab_item(task, flags.seed, index, split, flags.lengths);
    print_json_line(flags.requests ? lab_request_json(item, i, flags.max_tokens) : lab_item_json(item));
    if (std::ferror(stdout)) return Error::resource("standard output: cannot be written");
  }
  return 0;
}

nlohmann::ordered_json score_json(const LabScore& score) {
  const auto items = static_cast<double>(score.items);
  return {{"items", score.items}, {"score", score.sum / items}, {"right", static_cast<double>(score.right) / items}};
}

Result<int> check(const LabFlags& flags) {
  if (flags.items.empty() || flags.answers.empty())
    return Error::user("lab check: needs --items, from `millrace lab generate`, and --answers");
  MILLRACE_TRY(const std::string item_text, read_text_file(flags.items));
  MILLRACE_TRY(const std::vector<LabItem> items, parse_lab_items(item_text, flags.items));
  MILLRACE_TRY(const std::string answer_text, read_text_file(flags.answers));
  MILLRACE_TRY(const auto answers, parse_lab_answers(answer_text, flags.answers, items.size()));
  const LabScores scores = score_lab_answers(items, answers);
  if (flags.json) {
    auto tasks = nlohmann::ordered_json::array();
    for (const auto& [name, score] : scores.tasks) {
      tasks.push_back({{"task", name}});
      tasks.back().update(score_json(score));
      auto& lengths = tasks.back()["lengths"] = nlohmann::ordered_json::array();
      for (const auto& [at, part] : scores.lengths) {
        if (at.first != name) continue;
        lengths.push_back({{"characters", at.second}});
        lengths.back().update(score_json(part));
      }
    }
    print_json_line({{"tasks", std::move(tasks)}});
    return 0;
  }
  fmt::print("| task | prompts of up to | items | score | all right |\n|---|---:|---:|---:|---:|\n");
  for (const auto& [name, score] : scores.tasks) {
    const auto row = [&](const std::string& length, const LabScore& s) {
      const auto n = static_cast<double>(s.items);
      fmt::print("| {} | {} | {} | {:.1f} % | {:.1f} % |\n", name, length, s.items, 100 * s.sum / n,
                 100 * static_cast<double>(s.right) / n);
    };
    row("all", score);
    for (const auto& [at, part] : scores.lengths)
      if (at.first == name) row(fmt::format("{} characters", at.second), part);
  }
  return 0;
}

Result<int> draw_map(const LabFlags& flags) {
  if (flags.cells.empty() || !flags.picture.wanted())
    return Error::user("lab map: needs --cells, a file of heat maps, and --picture");
  MILLRACE_TRY_VOID(flags.picture.check());
  MILLRACE_TRY(const Chart chart, heat_map_chart(flags.cells));
  MILLRACE_TRY_VOID(flags.picture.write(chart));
  return 0;
}

}  // namespace

void add_lab_command(CLI::App& app) {
  auto flags = std::make_shared<LabFlags>();
  static const std::string examples = kLabExamples + lab_task_names();
  CLI::App* command = add_command(
      app, "lab", "Generate exercises with exact answers, and score answers to them", examples.c_str(), [flags] {
        return flags->action == "check" ? check(*flags) : flags->action == "map" ? draw_map(*flags) : generate(*flags);
      });
  command->add_option("ACTION", flags->action, "generate, check or map")
      ->required()
      ->check(CLI::IsMember({"generate", "check", "map"}));
  command->add_option("--task", flags->task, "generate: one task; default: all take turns");
  command->add_option("--seed", flags->seed, "generate: another seed, other items")->capture_default_str();
  command->add_option("-n,--n", flags->count, "generate: items")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--split", flags->split, "generate: train or held_out")->capture_default_str();
  command
      ->add_option("--least-length", flags->lengths.least,
                   "generate: characters of the shortest prompts, about, of tasks that grow")
      ->check(CLI::Range(100, 1'000'000))
      ->capture_default_str();
  command->add_option("--most-length", flags->lengths.most, "generate: characters of the longest prompts, about")
      ->check(CLI::Range(100, 1'000'000))
      ->capture_default_str();
  command->add_flag("--requests", flags->requests, "generate: requests for `millrace batch` in place of items");
  command->add_option("--max-tokens", flags->max_tokens, "generate: of each answer to a request")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--items", flags->items, "check: file of items, - is standard input");
  command->add_option("--answers", flags->answers, "check: file of answers");
  command->add_option("--cells", flags->cells, "map: JSON file of heat maps (docs/lab.md), - is standard input");
  flags->picture.add_to(command, "map: the heat maps");
  command->add_flag("--json", flags->json, "check: scores as one line of JSON");
}

}  // namespace millrace
