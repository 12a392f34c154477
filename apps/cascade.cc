// millrace cascade: learns the threshold of a cascade of two models from questions with known answers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/ordered_json.h"
#include "command.h"
#include "input.h"
#include "interrupt.h"
#include "lab/lab_files.h"
#include "model_flags.h"
#include "program/builder.h"
#include "program/cascade_threshold.h"
#include "program/engine_generator.h"
#include "program/variables.h"

namespace millrace {
namespace {

constexpr const char* kCascadeExamples = R"(Examples:
  millrace cascade -m lab-draft --with lab                             from exercises of every kind of millrace lab
  millrace cascade -m lab-draft --with lab --task multidoc,steps -n 100
  millrace cascade -m small.gguf --with large.gguf --items items.jsonl   from lines as millrace lab generate writes them

Both models answer every question greedily. The threshold is the cheapest one whose answers are as good as those of the
larger model alone; the cost of an answer is the model's parameters times the tokens that it computes. The last line is
the choice for --use.)";

constexpr int64_t kCascadeStreams = 8;
constexpr int64_t kCascadeAnswerTokens = 256;

struct CascadeFlags {
  ModelFlags model;
  std::string with, items;
  std::vector<std::string> tasks;
  int64_t count = 20;
  double loss = 0;
  bool json = false;
};

struct CascadeModel {
  std::shared_ptr<const LanguageModel> model;
  std::unique_ptr<Engine> engine;
};

Result<CascadeModel> open_cascade_model(const CascadeFlags& flags, const std::string& path) {
  ModelFlags of = flags.model;
  of.path = path;
  MILLRACE_TRY(const ModelFlags found, of.found());
  CascadeModel out;
  MILLRACE_TRY(out.model, found.load());
  EngineOptions options;
  options.threads = flags.model.threads;
  options.max_streams = kCascadeStreams;
  MILLRACE_TRY(out.engine, Engine::create(out.model, options));
  return out;
}

// Items of each task, alternating. Errors: user (a task's name), those of the file.
Result<std::vector<LabItem>> cascade_items(const CascadeFlags& flags, LabSplit split) {
  std::vector<LabItem> out;
  if (!flags.items.empty()) {
    MILLRACE_TRY(const std::string text, read_text_file(flags.items));
    MILLRACE_TRY(std::vector<LabItem> items, parse_lab_items(text, flags.items));
    // The last fifth is kept for the check.
    const size_t learned = items.size() - items.size() / 5;
    const bool learns = split == LabSplit::train;
    out.assign(items.begin() + (learns ? 0 : static_cast<std::ptrdiff_t>(learned)),
               learns ? items.begin() + static_cast<std::ptrdiff_t>(learned) : items.end());
    return out;
  }
  std::vector<const LabTask*> tasks;
  for (const std::string& name : flags.tasks) {
    tasks.push_back(find_lab_task(name));
    if (!tasks.back()) return Error::user(fmt::format("--task {}: no such task; there are {}", name, lab_task_names()));
  }
  if (tasks.empty())
    for (const LabTask& task : lab_tasks()) tasks.push_back(&task);
  const LabLengths lengths{.least = 200, .most = 2000};
  for (int64_t i = 0; i < flags.count; ++i)
    for (const LabTask* task : tasks) out.push_back(make_lab_item(*task, 0, static_cast<uint64_t>(i), split, lengths));
  return out;
}

// The greedy answers of one model. Errors: those of the engine, cancelled.
Result<std::vector<StepReport>> answers_of(const CascadeModel& model, const std::vector<LabItem>& items) {
  EngineGenerator generator({{.name = "", .model = model.model, .engine = model.engine.get(), .sampling = {}}});
  std::vector<StepReport> out;
  for (const LabItem& item : items) {
    GenStep step;
    step.name = "answer";
    step.settings.temperature = 0;
    step.settings.max_tokens = kCascadeAnswerTokens;
    step.score = true;
    std::vector<ProgramMessage> messages;
    for (const LabMessage& message : item.messages) messages.push_back({message.role, escaped(message.content)});
    ProgramBuilder build;
    build.messages(std::move(messages)).gen(step);
    MILLRACE_TRY(ProgramResult result, run_program(build.take(), {}, generator, {}, [] { return !interrupted(); }));
    out.push_back(std::move(result.steps.front()));
  }
  return out;
}

double cost_of_answer(const LanguageModel& model, const StepReport& step) {
  return static_cast<double>(model.info().parameters) *
         static_cast<double>(step.prompt_tokens - step.cached_tokens + step.generated_tokens);
}

Result<std::vector<CascadeSample>> cascade_samples(const CascadeModel& small, const CascadeModel& large,
                                                   const std::vector<LabItem>& items) {
  MILLRACE_TRY(const auto by_small, answers_of(small, items));
  MILLRACE_TRY(const auto by_large, answers_of(large, items));
  std::vector<CascadeSample> out;
  for (size_t i = 0; i < items.size(); ++i) {
    const LabTask* task = find_lab_task(items[i].task);
    const auto score = [&](const StepReport& step) {
      return task ? task->score(items[i], step.text) : score_text(items[i], step.text);
    };
    out.push_back({by_small[i].confidence, score(by_small[i]), score(by_large[i]),
                   cost_of_answer(*small.model, by_small[i]), cost_of_answer(*large.model, by_large[i])});
  }
  return out;
}

nlohmann::ordered_json choice_json(const std::vector<CascadeSample>& samples, double threshold) {
  const CascadeChoice cascade = cascade_with(samples, threshold);
  double small_score = 0, large_score = 0, large_cost = 0;
  const auto count = static_cast<double>(samples.size());
  for (const CascadeSample& sample : samples) {
    small_score += sample.small_score / count;
    large_score += sample.large_score / count;
    large_cost += sample.large_cost / count;
  }
  return {{"questions", samples.size()},     {"small_score", small_score},
          {"large_score", large_score},      {"score", cascade.score},
          {"asked", cascade.asked},          {"cost", cascade.cost * 1e-9},
          {"large_cost", large_cost * 1e-9}, {"saved", 1 - cascade.cost / large_cost}};
}

void print_choice(const char* name, const nlohmann::ordered_json& one) {
  fmt::print(
      "{:<9} {:>5} questions: smaller model {:.3f}, larger {:.3f}, cascade {:.3f}; {:.0f} % asked again, {:.0f} % "
      "of the cost saved\n",
      name, one["questions"].get<size_t>(), one["small_score"].get<double>(), one["large_score"].get<double>(),
      one["score"].get<double>(), 100 * one["asked"].get<double>(), 100 * one["saved"].get<double>());
}

Result<int> learn_cascade(const CascadeFlags& flags) {
  MILLRACE_TRY(const auto learned_from, cascade_items(flags, LabSplit::train));
  MILLRACE_TRY(const auto checked_with, cascade_items(flags, LabSplit::held_out));
  if (learned_from.empty() || checked_with.empty())
    return Error::user("cascade: needs at least 5 questions: most to learn from, the others to check");
  MILLRACE_TRY(const CascadeModel small, open_cascade_model(flags, flags.model.path));
  MILLRACE_TRY(const CascadeModel large, open_cascade_model(flags, flags.with));
  catch_interrupts();
  MILLRACE_TRY(const auto samples, cascade_samples(small, large, learned_from));
  const CascadeChoice choice = learn_threshold(samples, flags.loss);
  MILLRACE_TRY(const auto unseen, cascade_samples(small, large, checked_with));
  const auto learned = choice_json(samples, choice.threshold), held_out = choice_json(unseen, choice.threshold);
  const std::string use =
      fmt::format("program=model_cascade:models={},thresholds={:.4g}", flags.with, choice.threshold);
  if (flags.json) {
    print_json_line({{"threshold", choice.threshold}, {"use", use}, {"learned", learned}, {"held_out", held_out}});
    return 0;
  }
  print_choice("learned", learned);
  print_choice("held out", held_out);
  fmt::print("--use {}\n", use);
  return 0;
}

}  // namespace

void add_cascade_command(CLI::App& app) {
  auto flags = std::make_shared<CascadeFlags>();
  CLI::App* command = add_command(app, "cascade", "Learn when a smaller model may answer", kCascadeExamples,
                                  [=] { return learn_cascade(*flags); });
  flags->model.add_to(command);
  command->add_option("--with", flags->with, "The larger model")->required();
  command->add_option("--task", flags->tasks, "Tasks of millrace lab, comma-separated; default: all")->delimiter(',');
  command->add_option("--items", flags->items,
                      "File of questions with answers, as millrace lab generate writes; the last fifth checks");
  command->add_option("-n,--n", flags->count, "Questions of each task, to learn from and again to check")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{10000}));
  command->add_option("--loss", flags->loss, "How far the mean score may be below that of the larger model")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
