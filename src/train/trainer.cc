#include "train/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numbers>

#include "base/publish.h"
#include "base/system.h"
#include "learn/bpe_trainer.h"
#include "train/fast_sgemm.h"
#include "train/token_stream.h"

namespace millrace {
namespace {

constexpr int64_t kEvaluationRows = 4, kEvaluationBatches = 16, kEvaluationWindow = 512;  // 32k tokens

class TrainRun {
 public:
  TrainRun(const TrainOptions& options, StoryCorpus corpus, const TokenizerSpec& spec)
      : options_(options),
        train_(encode(spec, corpus.train), options.seed),
        held_out_(encode(spec, corpus.held_out), 0),
        model_(options.model, options.seed),
        optimizer_(model_, options.optimizer) {}

  Result<TrainReport> run();

 private:
  static std::vector<std::vector<TokenId>> encode(const TokenizerSpec& spec, const std::vector<std::string>& stories) {
    BpeEncoder encoder(spec);
    std::vector<std::vector<TokenId>> ids;
    ids.reserve(stories.size());
    for (const std::string& story : stories) ids.push_back(encoder.encode(story));
    return ids;
  }
  std::string path(const char* name) const { return options_.out + "/" + name; }
  double elapsed() const {
    return before_s_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  double progress() const {
    const double by_step = static_cast<double>(step_) / static_cast<double>(options_.steps);
    const double by_time = options_.minutes > 0 ? elapsed() / (60.0 * options_.minutes) : 0.0;
    return std::max(by_step, by_time);
  }
  double schedule(double progress) const {
    const double warm = std::min(1.0, static_cast<double>(step_ + 1) / static_cast<double>(options_.warmup));
    return warm * (0.02 + 0.98 * 0.5 * (1.0 + std::cos(std::numbers::pi * std::min(1.0, progress))));
  }
  double train_step(double progress);
  double evaluate();
  Result<void> record(double train_loss, double rate, double speed);
  Result<void> save() const;
  Result<void> restore();

  TrainOptions options_;
  TokenStream train_, held_out_;
  StoryModel model_;
  StoryOptimizer optimizer_;
  int64_t step_ = 0, seen_ = 0;
  double best_ = 1e9, before_s_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double TrainRun::train_step(double progress) {
  const bool full = progress >= 1.0 - options_.long_share || (step_ + 1) % options_.long_every == 0;
  const int64_t window = full ? options_.model.context : options_.window;
  const int64_t rows = std::max<int64_t>(1, options_.batch_tokens / window);
  const TokenBatch batch = train_.next(rows, window);
  torch::Tensor loss = torch::nn::functional::cross_entropy(model_.forward(batch.inputs), batch.targets);
  loss.backward();
  optimizer_.step(schedule(progress));
  ++step_;
  seen_ += rows * window;
  return loss.item<double>();
}

// Nats per token, always over the same windows of the held-out stories.
double TrainRun::evaluate() {
  torch::NoGradGuard no_gradient;
  model_.eval();
  held_out_.seek(0, 0);
  const int64_t window = std::min(kEvaluationWindow, options_.model.context);
  double sum = 0;
  int64_t batches = 0;
  while (batches < kEvaluationBatches && held_out_.epoch() == 0) {
    const TokenBatch batch = held_out_.next(kEvaluationRows, window);
    sum += torch::nn::functional::cross_entropy(model_.forward(batch.inputs), batch.targets).item<double>();
    ++batches;
  }
  model_.train();
  return sum / static_cast<double>(batches);
}

Result<void> TrainRun::record(double train_loss, double rate, double speed) {
  const double held_out = evaluate();
  std::FILE* csv = std::fopen(path("loss.csv").c_str(), "a");
  if (!csv) return Error::user("cannot write the loss curve: " + path("loss.csv"));
  fmt::print(csv, "{},{},{:.3f},{:.4f},{:.4f},{:.5f},{:.0f},{:.1f}\n", step_, seen_, train_.epochs_done(), train_loss,
             held_out, rate, speed, elapsed());
  std::fclose(csv);
  const double done = progress();
  fmt::print("step {:5d}  epoch {:5.2f}  train {:.4f}  held-out {:.4f}{}  {:.0f} tok/s  {:.1f} min, {:.1f} min to go\n",
             step_, train_.epochs_done(), train_loss, held_out, held_out < best_ ? " *" : "  ", speed, elapsed() / 60,
             done > 0 ? elapsed() / 60 * (1 - done) / done : 0.0);
  std::fflush(stdout);
  if (held_out < best_) {
    best_ = held_out;
    torch::serialize::OutputArchive archive;
    model_.save(archive);
    archive.save_to(path("best.pt.new"));
    if (publish(path("best.pt.new"), path("best.pt")))
      return Error::user("cannot write the best checkpoint: " + path("best.pt"));
  }
  return save();
}

// Written to a temporary file and renamed: a run killed while writing keeps the previous checkpoint.
Result<void> TrainRun::save() const {
  torch::serialize::OutputArchive archive;
  model_.save(archive);
  optimizer_.save(archive);
  archive.write("progress", torch::tensor({static_cast<double>(step_), static_cast<double>(seen_), best_, elapsed(),
                                           static_cast<double>(train_.epoch()), static_cast<double>(train_.cursor())},
                                          torch::kFloat64));
  archive.save_to(path("checkpoint.pt.new"));
  if (publish(path("checkpoint.pt.new"), path("checkpoint.pt")))
    return Error::user("cannot write the checkpoint: " + path("checkpoint.pt"));
  return {};
}

Result<void> TrainRun::restore() {
  if (!std::filesystem::exists(path("checkpoint.pt")))
    return Error::user("no checkpoint to resume from (omit --resume to start a new run): " + path("checkpoint.pt"));
  torch::serialize::InputArchive archive;
  archive.load_from(path("checkpoint.pt"));
  model_.load(archive);
  optimizer_.load(archive);
  torch::Tensor state;
  archive.read("progress", state);
  const double* s = state.data_ptr<double>();
  step_ = static_cast<int64_t>(s[0]);
  seen_ = static_cast<int64_t>(s[1]);
  best_ = s[2];
  before_s_ = s[3];
  train_.seek(static_cast<int64_t>(s[4]), static_cast<int64_t>(s[5]));
  model_.seed_dropout(options_.seed + static_cast<uint64_t>(step_));
  fmt::print("resumed at step {} after {:.1f} min\n", step_, before_s_ / 60);
  return {};
}

Result<TrainReport> TrainRun::run() {
  fmt::print("{} parameters; {} training tokens an epoch, {} held-out tokens\n", options_.model.parameters(),
             train_.tokens_per_epoch(), held_out_.tokens_per_epoch());
  if (options_.resume) {
    MILLRACE_TRY_VOID(restore());
  } else {
    std::ofstream(path("loss.csv")) << "step,tokens,epoch,train_loss,held_out_loss,rate,tokens_per_second,elapsed_s\n";
  }
  start_ = std::chrono::steady_clock::now();
  model_.train();
  double loss_sum = 0, mark_s = elapsed();
  int64_t losses = 0, mark_tokens = seen_;
  while (progress() < 1.0) {
    const double now = progress();
    loss_sum += train_step(now);
    ++losses;
    if (step_ % options_.evaluate_every != 0 && progress() < 1.0) {
      if (step_ % options_.save_every == 0) MILLRACE_TRY_VOID(save());
      continue;
    }
    const double speed = static_cast<double>(seen_ - mark_tokens) / (elapsed() - mark_s);
    MILLRACE_TRY_VOID(record(loss_sum / static_cast<double>(losses), schedule(now), speed));
    loss_sum = 0;
    losses = 0;
    mark_s = elapsed();
    mark_tokens = seen_;
  }
  return TrainReport{step_, seen_, train_.tokens_per_epoch(), best_, elapsed()};
}

}  // namespace

Result<StoryModelConfig> story_model_config(const std::string& size) {
  StoryModelConfig config;
  if (size == "main") return config;
  if (size == "draft") {
    config.dim = 128;
    config.layers = 3;
    config.heads = 4;
    config.kv_heads = 2;
    config.ffn = 352;
    config.dropout = 0.0;
    return config;
  }
  return Error::user("unknown model size (--size); available: main, draft: " + size);
}

Result<void> write_vocabulary(const std::string& path, const TokenizerSpec& spec) {
  std::ofstream out(path);
  for (size_t id = kFirstPieceId; id < spec.tokens.size(); ++id) out << spec.tokens[id] << '\n';
  if (!out) return Error::user("cannot write the vocabulary: " + path);
  return {};
}

Result<TokenizerSpec> read_vocabulary(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error::user("cannot open the vocabulary: " + path);
  std::vector<std::string> pieces;
  for (std::string line; std::getline(in, line);) pieces.push_back(line);
  return vocabulary_of(pieces);
}

Result<void> load_weights(StoryModel& model, const std::string& path) {
  if (!std::filesystem::exists(path)) return Error::user("weights file not found: " + path);
  try {
    torch::serialize::InputArchive archive;
    archive.load_from(path);
    model.load(archive);
  } catch (const std::exception&) {
    return Error::corrupt("the weights do not fit the model's shape, or the file is damaged: " + path);
  }
  return {};
}

Result<TrainReport> train_stories(const TrainOptions& options) {
  // libtorch allocates and frees the same large tensors each step: keep them in the heap instead of mapping and
  // clearing fresh pages every time.
  keep_freed_memory();
  torch::set_num_threads(options.threads);
  if (!has_fast_sgemm()) fmt::print("note: no oneDNN in this libtorch, using the system's BLAS\n");
  std::error_code failed;
  std::filesystem::create_directories(options.out, failed);
  if (failed) return Error::user("cannot make the output folder (--out): " + options.out);
  MILLRACE_TRY(StoryCorpus corpus, read_corpus(options.data));
  fmt::print("{} stories to train on, {} held out; dropped {} duplicates, {} too short\n", corpus.train.size(),
             corpus.held_out.size(), corpus.doubles, corpus.too_short);
  std::string vocabulary = options.vocabulary;
  if (vocabulary.empty() && options.resume) vocabulary = options.out + "/vocabulary.txt";
  auto spec =
      vocabulary.empty() ? train_bpe(corpus.train, static_cast<int>(options.model.vocab)) : read_vocabulary(vocabulary);
  if (!spec.ok()) return spec.error();
  if (static_cast<int64_t>(spec->tokens.size()) != options.model.vocab)
    return Error::user("the vocabulary's size differs from the model's: " + std::to_string(spec->tokens.size()));
  MILLRACE_TRY_VOID(write_vocabulary(options.out + "/vocabulary.txt", *spec));
  try {
    return std::make_unique<TrainRun>(options, std::move(corpus), *spec)->run();
  } catch (const std::exception& e) {
    return Error::internal(fmt::format("training stopped: {}", e.what()));
  }
}

}  // namespace millrace
