#include "learn/lab_trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "learn/lab_checkpoint.h"
#include "learn/lab_mixture.h"
#include "learn/story_corpus.h"
#include "learn/story_rows.h"

namespace millrace {
namespace {

constexpr double kRopeBase = 50000;
constexpr uint64_t kEvaluationSeed = 1000;
constexpr int64_t kEvaluationTokens = 8192;                                 // at a time
constexpr int64_t kShortLength = 600, kLongLengths[] = {2000, 6000, 9000};  // of prompts, in characters

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::unique_ptr<LabExamples> examples_of(const LabTrainOptions& options, const TokenizerSpec& spec,
                                         std::vector<std::string> stories) {
  const int64_t context = options.spec.context;
  if (options.only_stories) return std::make_unique<StoryRows>(spec, std::move(stories), options.seed, context);
  return std::make_unique<LabMixture>(spec, std::move(stories), options.seed, context);
}

LabPass make_pass(const LabTrainOptions& options, LabModel& model, ThreadPool& pool) {
  return options.exact ? LabPass(model, pool, exact_training_kernels()) : LabPass(model, pool, training_kernels());
}

class LabRun {
 public:
  LabRun(const LabTrainOptions& options, const TokenizerSpec& spec, StoryCorpus corpus)
      : options_(options),
        examples_(examples_of(options, spec, std::move(corpus.train))),
        held_out_(spec, {}, options.seed, options.spec.context),
        held_out_rows_(spec, std::move(corpus.held_out), kEvaluationSeed, options.spec.context),
        pool_(options.threads),
        model_(options.spec, options.seed),
        pass_(make_pass(options, model_, pool_)),
        optimizer_(model_, pool_, training_kernels(), options.rates) {}

  void begin_with(const LabModel& model) { model_.weights() = model.weights(); }  // of the same spec
  Result<LabTrainReport> run();

 private:
  std::string path(const char* name) const { return options_.out + "/" + name; }
  double elapsed() const { return progress_.elapsed_s + now_s() - started_s_; }
  int64_t longest() const;
  double schedule() const;
  Result<void> begin();
  double update();
  Result<void> log(double loss);
  Result<void> evaluate();
  void score_task(const LabTask& task, int64_t length, std::FILE* csv);
  void score_rows(std::FILE* csv);
  void score(std::string_view name, int64_t length, const std::vector<LabExample>& items, std::FILE* csv);
  Result<void> save();

  LabTrainOptions options_;
  std::unique_ptr<LabExamples> examples_;
  LabMixture held_out_;      // encodes exercises
  StoryRows held_out_rows_;  // of stories alone
  ThreadPool pool_;
  LabModel model_;
  LabPass pass_;
  LabOptimizer optimizer_;
  LabProgress progress_;
  double started_s_ = 0, marked_s_ = 0, saved_s_ = 0, norm_ = 0;
  int64_t marked_tokens_ = 0;
};

// In steps of a quarter of a doubling.
int64_t LabRun::longest() const {
  const double quarters =
      std::floor(4.0 * static_cast<double>(progress_.tokens) / static_cast<double>(options_.length_doubling));
  const double length = static_cast<double>(options_.first_length) * std::exp2(quarters / 4.0);
  return static_cast<int64_t>(std::min(length, static_cast<double>(options_.last_length)));
}

double LabRun::schedule() const {
  double rate = std::min(1.0, static_cast<double>(progress_.step + 1) / static_cast<double>(options_.warmup));
  if (options_.decay_tokens > 0 && progress_.tokens > options_.decay_from) {
    const double done =
        static_cast<double>(progress_.tokens - options_.decay_from) / static_cast<double>(options_.decay_tokens);
    rate *= std::max(0.01, 1.0 - done);
  }
  return rate;
}

Result<void> LabRun::begin() {
  if (options_.resume) {
    MILLRACE_TRY(progress_, restore_lab_checkpoint(path("checkpoint.bin"), model_, optimizer_));
    fmt::print("resumed at update {}, {:.2f} M tokens, {:.1f} min\n", progress_.step,
               static_cast<double>(progress_.tokens) / 1e6, progress_.elapsed_s / 60);
  } else {
    if (std::filesystem::exists(path("checkpoint.bin")))
      return Error::user("there is a checkpoint already: add --resume, or remove " + path("checkpoint.bin"));
    if (!options_.start.empty()) {
      MILLRACE_TRY(const LabModel first, load_lab_checkpoint(options_.start));
      if (!same_model(first.spec(), model_.spec()))
        return Error::user("the checkpoint is of a model of another shape: " + options_.start);
      model_.weights() = first.weights();
    }
    std::ofstream(path("loss.csv")) << "step,tokens,longest,loss,rate,gradient,tokens_per_second,elapsed_s\n";
    std::ofstream(path("accuracy.csv")) << "step,tokens,task,characters,items,right,loss,token_accuracy\n";
  }
  started_s_ = marked_s_ = saved_s_ = now_s();
  marked_tokens_ = progress_.tokens;
  return {};
}

double LabRun::update() {
  LabBatch batch;
  progress_.next_example = examples_->fill(progress_.next_example, longest(), options_.batch_tokens, batch);
  const LabLoss loss = pass_.run(batch, true);
  norm_ = optimizer_.step(schedule());
  ++progress_.step;
  progress_.tokens += batch.tokens();
  return loss.loss / loss.weight;
}

Result<void> LabRun::log(double loss) {
  const double speed = static_cast<double>(progress_.tokens - marked_tokens_) / (now_s() - marked_s_);
  marked_s_ = now_s();
  marked_tokens_ = progress_.tokens;
  std::FILE* csv = std::fopen(path("loss.csv").c_str(), "a");
  if (!csv) return Error::resource("cannot write " + path("loss.csv"));
  fmt::print(csv, "{},{},{},{:.4f},{:.4f},{:.3f},{:.0f},{:.1f}\n", progress_.step, progress_.tokens, longest(), loss,
             schedule(), norm_, speed, elapsed());
  std::fclose(csv);
  fmt::print("update {:6d}  {:7.2f} M tokens  longest {:5d}  loss {:.4f}  {:.0f} tok/s  {:.1f} min\n", progress_.step,
             static_cast<double>(progress_.tokens) / 1e6, longest(), loss, speed, elapsed() / 60);
  std::fflush(stdout);
  return {};
}

void LabRun::score_task(const LabTask& task, int64_t length, std::FILE* csv) {
  std::vector<LabExample> items;
  for (uint64_t i = 0; std::ssize(items) < options_.items && i < 4 * static_cast<uint64_t>(options_.items); ++i) {
    const LabItem item = make_lab_item(task, kEvaluationSeed, i, LabSplit::held_out, {length * 9 / 10, length});
    LabExample example = held_out_.encode(item, false);
    if (example.ids.empty()) continue;
    for (size_t at = 0; at < static_cast<size_t>(example.answer); ++at) example.weights[at] = 0;
    items.push_back(std::move(example));
  }
  score(task.name, length, items, csv);
}

void LabRun::score_rows(std::FILE* csv) {
  std::vector<LabExample> items;
  for (uint64_t i = 0; std::ssize(items) < options_.items; ++i) items.push_back(held_out_rows_.example(i, longest()));
  score("stories", longest(), items, csv);
}

// An item is right if the most probable token is the answer's, all along the answer: then greedy decoding gives it.
void LabRun::score(std::string_view name, int64_t length, const std::vector<LabExample>& items, std::FILE* csv) {
  if (items.empty()) return;
  int64_t right = 0, tokens = 0, right_tokens = 0;
  double sum = 0;
  std::vector<LabBatch> batches(1);
  for (const LabExample& item : items) {
    if (batches.back().tokens() > kEvaluationTokens) batches.emplace_back();
    append_example(item, batches.back());
  }
  for (const LabBatch& batch : batches) {
    const LabLoss loss = pass_.run(batch, false);
    std::vector<bool> wrong(batch.starts.size());
    size_t document = 0;
    for (size_t i = 0; i < loss.rows.size(); ++i) {
      while (document + 1 < batch.starts.size() && batch.starts[document + 1] <= loss.rows[i]) ++document;
      const bool hit = loss.predicted[i] == batch.targets[static_cast<size_t>(loss.rows[i])];
      if (!hit) wrong[document] = true;
      right_tokens += hit;
      ++tokens;
      sum += loss.losses[i];
    }
    for (size_t i = 0; i < wrong.size(); ++i) right += !wrong[i];
  }
  fmt::print(csv, "{},{},{},{},{},{},{:.4f},{:.4f}\n", progress_.step, progress_.tokens, name, length, items.size(),
             right, sum / static_cast<double>(tokens), static_cast<double>(right_tokens) / static_cast<double>(tokens));
  fmt::print("  {} {}: {:.0f} % ({:.3f})", name, length,
             100.0 * static_cast<double>(right) / static_cast<double>(items.size()), sum / static_cast<double>(tokens));
}

Result<void> LabRun::evaluate() {
  std::FILE* csv = std::fopen(path("accuracy.csv").c_str(), "a");
  if (!csv) return Error::resource("cannot write " + path("accuracy.csv"));
  if (options_.only_stories) {
    score_rows(csv);
  } else {
    for (const LabTask& task : lab_tasks()) {
      score_task(task, kShortLength, csv);
      if (!task.grows) continue;
      for (int64_t length : kLongLengths)
        if (4 * longest() > 3 * length) score_task(task, length, csv);
    }
  }
  fmt::print("\n");
  std::fclose(csv);
  return {};
}

Result<void> LabRun::save() {
  LabProgress at = progress_;
  at.elapsed_s = elapsed();
  saved_s_ = now_s();
  return save_lab_checkpoint(path("checkpoint.bin"), model_, optimizer_, at);
}

Result<LabTrainReport> LabRun::run() {
  MILLRACE_TRY_VOID(begin());
  fmt::print("{} parameters, {} kernels, {} threads\n", trained_parameters(options_.spec),
             options_.exact ? exact_training_kernels().name : training_kernels().name, pool_.threads());
  double sum = 0, last = 0;
  int64_t count = 0;
  const auto done = [&] {
    return progress_.tokens >= options_.tokens ||
           (options_.stop_after_minutes > 0 && now_s() - started_s_ > 60 * options_.stop_after_minutes);
  };
  while (!done()) {
    const double loss = update();
    if (!std::isfinite(loss))  // before such weights replace the last checkpoint
      return Error::internal(
          "the loss is NaN or infinite; --resume with lower rates continues from the last checkpoint");
    sum += loss;
    ++count;
    if (progress_.step % options_.log_every == 0) {
      last = sum / static_cast<double>(count);
      MILLRACE_TRY_VOID(log(last));
      sum = 0;
      count = 0;
    }
    if (progress_.step % options_.evaluate_every == 0) MILLRACE_TRY_VOID(evaluate());
    if (now_s() - saved_s_ > options_.save_seconds) MILLRACE_TRY_VOID(save());
  }
  MILLRACE_TRY_VOID(evaluate());
  MILLRACE_TRY_VOID(save());
  return LabTrainReport{progress_.step, progress_.tokens, last, elapsed()};
}

}  // namespace

Result<ArchSpec> lab_spec(const std::string& name) {
  struct Size {
    std::string_view name;
    int64_t width, layers, heads, kv_heads, hidden, experts = 0, context = 2048;
    HiddenActivation activation = HiddenActivation::silu;
  };
  static constexpr Size kSizes[] = {
      {"lab", 256, 6, 8, 4, 512},
      {"lab-draft", 128, 3, 4, 2, 320},
      {"lab-relu", 192, 4, 6, 2, 512, 0, 2048, HiddenActivation::relu},
      {"lab-mha", 128, 4, 4, 4, 352},
      {"lab-experts", 128, 4, 4, 2, 96, 8},
      {"stories-long", 128, 4, 2, 1, 352, 0, 8192},
  };
  const auto found = std::ranges::find(kSizes, name, &Size::name);
  if (found == std::end(kSizes))
    return Error::user(
        "unknown model (--size); available: lab, lab-draft, lab-relu, lab-mha, lab-experts, stories-long: " + name);
  ArchSpec spec;
  spec.vocab = 2048;
  spec.context = found->context;
  spec.width = found->width;
  spec.heads = found->heads;
  spec.kv_heads = found->kv_heads;
  spec.activation = found->activation;
  spec.moe.experts = found->experts;
  (found->experts > 0 ? spec.moe.hidden : spec.hidden) = found->hidden;
  complete_llama(spec, found->layers, kRopeBase);
  return spec;
}

bool lab_only_stories(const std::string& name) { return name == "stories-long"; }

Result<LabTrainReport> train_lab(const LabTrainOptions& given) {
  LabTrainOptions options = given;
  std::optional<LabImport> first;
  if (!options.from.empty()) {
    if (!options.start.empty() || !options.vocabulary.empty())
      return Error::user("--from brings weights and vocabulary: omit --start and --vocabulary");
    MILLRACE_TRY(first, import_lab_gguf(options.from));
    options.spec = first->model.spec();
  }
  if (const auto checked = trainable(options.spec); !checked.ok())
    return Error::user("train-lab cannot train " + checked.error().message);
  std::error_code failed;
  std::filesystem::create_directories(options.out, failed);
  if (failed) return Error::user("cannot make the output folder (--out): " + options.out);
  if (options.only_stories && options.stories.empty())
    return Error::user("this model (--size) is trained on stories alone: give their folder with --stories");
  StoryCorpus corpus;
  if (!options.stories.empty()) {
    MILLRACE_TRY(corpus, read_corpus(options.stories));
  }
  const std::string own = options.out + "/vocabulary.txt";
  const std::string from = options.resume ? own : options.vocabulary;
  Result<TokenizerSpec> spec = first && !options.resume ? Result<TokenizerSpec>(first->spec)
                               : from.empty()           ? learn_lab_vocabulary(corpus.train, options.spec.vocab)
                                                        : read_lab_vocabulary(from);
  if (!spec.ok()) return spec.error();
  if (std::ssize(spec->tokens) != options.spec.vocab)
    return Error::user(
        fmt::format("the vocabulary has {} tokens, the model {}", spec->tokens.size(), options.spec.vocab));
  if (!options.resume) MILLRACE_TRY_VOID(write_lab_vocabulary(own, *spec));
  auto run = std::make_unique<LabRun>(options, *spec, std::move(corpus));
  if (first) run->begin_with(first->model);
  return run->run();
}

}  // namespace millrace
