// millrace perplexity: measures how well a model predicts a text, and its divergence from a reference model.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/ordered_json.h"
#include "command.h"
#include "evaluate/divergence.h"
#include "evaluate/logits_file.h"
#include "evaluate/scorer.h"
#include "hub_model.h"
#include "input.h"
#include "interrupt.h"
#include "likelihood_totals.h"
#include "model_flags.h"
#include "models/arch.h"
#include "models/kept_mass_observer.h"
#include "progress.h"
#include "sampling/logprobs.h"
#include "table_room.h"

namespace millrace {
namespace {

constexpr const char* kPerplexityExamples = R"(Examples:
  millrace perplexity -m model.gguf -f wiki.txt            score the second halves of chunks of 512 tokens, like llama.cpp
  millrace perplexity -m model.gguf -f wiki.txt --all      score every token but the first (default for short texts)
  millrace perplexity -f book.txt -c 1024 --all --by-position 256     and the perplexity of each quarter of a window
  millrace perplexity -m big.gguf -f wiki.txt --save-logits big.logits
  millrace perplexity -m small.gguf -f wiki.txt --kl-divergence big.logits)";

constexpr int64_t kDefaultContext = 512;

struct PerplexityFlags {
  ModelFlags model;
  std::vector<std::string> kernels;
  std::string file, kv_format = "f32", evictor, save, compare, element = "f32";
  UseFlag use;
  CLI::Option *kv_format_option = nullptr, *evictor_option = nullptr;
  int64_t stride = 0, batch = 512, chunks = 0, by_position = 0;
  bool all = false, json = false, no_bos = false;
};

struct Plan {
  std::vector<TokenId> tokens;
  std::vector<ScoreWindow> windows;
  TokenId window_start = -1;
  int64_t context = 0;
  int64_t scored = 0;
  const char* mode = "chunks";
};

Result<Plan> make_plan(const PerplexityFlags& flags, const LanguageModel& model, int64_t context) {
  Plan plan;
  plan.context = context;
  MILLRACE_TRY(std::string text, read_text_file(flags.file));
  MILLRACE_TRY(plan.tokens, model.encode(text, !flags.no_bos, false));
  const auto total = static_cast<int64_t>(plan.tokens.size());
  const TokenizerSpec& spec = model.parts().tokenizer->spec();
  if (spec.add_bos && spec.bos && !flags.no_bos) plan.window_start = *spec.bos;
  // A text shorter than one window is scored completely.
  if (flags.all || (flags.stride == 0 && total < plan.context)) {
    plan.mode = "all";
    plan.windows = document_windows(total, plan.context);
    if (plan.windows.empty())
      return Error::user(fmt::format("{}: has {} tokens; scoring needs at least 2", flags.file, total));
  } else {
    if (flags.stride > 0) plan.mode = "stride";
    plan.windows =
        flags.stride > 0 ? strided_windows(total, plan.context, flags.stride) : chunk_windows(total, plan.context);
    if (plan.windows.empty())
      return Error::user(fmt::format(
          "{}: {} tokens do not fill a window of {}; use a longer text, a smaller -c, or --all instead of --stride",
          flags.file, total, plan.context));
  }
  if (flags.chunks > 0 && flags.chunks < static_cast<int64_t>(plan.windows.size()))
    plan.windows.resize(static_cast<size_t>(flags.chunks));
  for (const ScoreWindow& w : plan.windows) plan.scored += w.scored();
  if (plan.scored == 0)
    return Error::user(fmt::format("-c {}: no token of a window would be scored; must be at least 3", plan.context));
  return plan;
}

// Processes each row of logits: sums the negative log-likelihood, and saves or compares rows if requested.
class Meter {
 public:
  static Result<std::unique_ptr<Meter>> create(const PerplexityFlags& flags, const Plan& plan, Scorer& scorer) {
    auto meter = std::unique_ptr<Meter>(new Meter(plan, scorer, flags.by_position));
    if (!flags.compare.empty()) {
      MILLRACE_TRY(auto reader, LogitsReader::open(flags.compare));
      if (reader.vocab() != scorer.vocab() || reader.rows() != plan.scored)
        return Error::user(
            fmt::format("{}: was saved with a vocabulary of {} and {} tokens, but this run has {} and {}; use the same "
                        "tokenizer, text and window flags",
                        flags.compare, reader.vocab(), reader.rows(), scorer.vocab(), plan.scored));
      meter->reader_ = std::make_unique<LogitsReader>(std::move(reader));
      meter->compare_path_ = flags.compare;
    }
    if (!flags.save.empty()) {
      const LogitsElement element = flags.element == "f32" ? LogitsElement::f32 : LogitsElement::f16;
      MILLRACE_TRY(auto writer, LogitsWriter::create(flags.save, element, scorer.vocab(), plan.scored));
      meter->writer_ = std::make_unique<LogitsWriter>(std::move(writer));
    }
    return meter;
  }

  Result<void> add(std::span<const ScoredRow> rows) {
    if (interrupted()) return Error::cancelled("interrupted");
    const auto n = static_cast<int64_t>(rows.size());
    const int64_t vocab = scorer_.vocab();
    nll_.resize(rows.size());
    scorer_.pool().parallel_for(n, [&](int64_t i, int) {
      const ScoredRow& row = rows[static_cast<size_t>(i)];
      nll_[static_cast<size_t>(i)] =
          log_sum_exp({row.logits, static_cast<size_t>(vocab)}) - static_cast<double>(row.logits[row.target]);
    });
    for (double nll : nll_) totals_.add(nll), positions_.add(nll);
    if (reader_ || writer_) MILLRACE_TRY_VOID(use_log_probs(rows));
    bar_.update(static_cast<double>(totals_.count) / static_cast<double>(plan_.scored),
                fmt::format("PPL {:.4f}", totals_.perplexity()));
    return {};
  }

  Result<void> finish() { return writer_ ? writer_->finish() : Result<void>(); }
  const LikelihoodTotals& totals() const { return totals_; }
  const PositionTotals& positions() const { return positions_; }
  const std::vector<TokenDivergence>& divergences() const { return divergences_; }

 private:
  Meter(const Plan& plan, Scorer& scorer, int64_t by_position)
      : plan_(plan), scorer_(scorer), bar_("scoring"), positions_(plan.windows, by_position) {}

  Result<void> use_log_probs(std::span<const ScoredRow> rows) {
    const auto vocab = static_cast<size_t>(scorer_.vocab());
    log_probs_.resize(rows.size() * vocab);
    const size_t first = divergences_.size();
    if (reader_) {
      reference_.resize(rows.size() * vocab);
      divergences_.resize(first + rows.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        TokenId target = 0;
        MILLRACE_TRY_VOID(reader_->next(&target, reference_.data() + i * vocab));
        if (target != rows[i].target)
          return Error::user(
              fmt::format("{}: row {} was saved for token {}, but this run has token {}; use the same tokenizer, text "
                          "and window flags",
                          compare_path_, first + i, target, rows[i].target));
      }
    }
    scorer_.pool().parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t r, int) {
      const auto i = static_cast<size_t>(r);
      float* own = log_probs_.data() + i * vocab;
      log_softmax(rows[i].logits, scorer_.vocab(), own);
      if (reader_)
        divergences_[first + i] = compare_rows(reference_.data() + i * vocab, own, scorer_.vocab(), rows[i].target);
    });
    for (size_t i = 0; writer_ && i < rows.size(); ++i)
      MILLRACE_TRY_VOID(writer_->add(rows[i].target, log_probs_.data() + i * vocab));
    return {};
  }

  const Plan& plan_;
  Scorer& scorer_;
  ProgressBar bar_;
  std::unique_ptr<LogitsReader> reader_;
  std::unique_ptr<LogitsWriter> writer_;
  std::string compare_path_;
  LikelihoodTotals totals_;
  PositionTotals positions_;
  std::vector<double> nll_;
  std::vector<float> log_probs_, reference_;
  std::vector<TokenDivergence> divergences_;
};

// Adds the choice of a flag that was given, unless --use made it.
Result<void> add_flag(const PerplexityFlags& flags, const char* family, const CLI::Option* option,
                      const std::string& value, std::vector<TechniqueUse>& uses) {
  if (option->count() == 0) return {};
  MILLRACE_TRY_VOID(check_flag_against(uses, family, option->get_name(), value, flags.use.command));
  if (std::ranges::find(uses, family, &TechniqueUse::family) != uses.end()) return {};
  for (TechniqueUse& flagged : use_of_flag(family, value, flags.use.command)) uses.push_back(std::move(flagged));
  return {};
}

// Sets flags.kv_format and flags.evictor.
Result<std::vector<AppliedTechnique>> apply_techniques(PerplexityFlags& flags) {
  MILLRACE_TRY(auto uses, flags.use.get());
  MILLRACE_TRY_VOID(add_flag(flags, "kv_format", flags.kv_format_option, flags.kv_format, uses));
  MILLRACE_TRY_VOID(add_flag(flags, "evictor", flags.evictor_option, flags.evictor, uses));
  EngineOptions options;
  options.kv_format = "f32";
  MILLRACE_TRY(auto applied, apply_uses(uses, options));
  if (std::ranges::find(uses, "kv_format", &TechniqueUse::family) != uses.end()) flags.kv_format = options.kv_format;
  if (std::ranges::find(uses, "evictor", &TechniqueUse::family) != uses.end()) flags.evictor = options.evictor;
  flags.kernels = options.kernels;
  return applied;
}

nlohmann::ordered_json positions_json(const PositionTotals& positions) {
  auto out = nlohmann::ordered_json::array();
  positions.for_each([&](int64_t first, const LikelihoodTotals& totals) {
    out.push_back(
        {{"first", first}, {"tokens", totals.count}, {"nll_mean", totals.mean()}, {"perplexity", totals.perplexity()}});
  });
  return out;
}

void print_json(const PerplexityFlags& flags, const Plan& plan, const Scorer& scorer, const LikelihoodTotals& totals,
                const PositionTotals& positions, const DivergenceSummary* d, const KeptMass* kept,
                const std::vector<AppliedTechnique>& applied) {
  nlohmann::ordered_json out = {{"nll_sum", totals.sum},
                                {"nll_mean", totals.mean()},
                                {"tokens", totals.count},
                                {"perplexity", totals.perplexity()},
                                {"perplexity_stderr", totals.perplexity() * totals.mean_stderr()},
                                {"mode", plan.mode},
                                {"context", plan.context},
                                {"windows", plan.windows.size()},
                                {"text_tokens", plan.tokens.size()},
                                {"kv_format", flags.kv_format},
                                {"kv_bytes_per_token", scorer.kv_bytes_per_token()},
                                {"kv_tail_bytes", scorer.kv_tail_bytes()},
                                {"kv_tokens", scorer.stored_tokens()},
                                {"kv_bytes", scorer.stored_bytes()}};
  if (!flags.evictor.empty()) out["evictor"] = flags.evictor;
  if (flags.by_position > 0) out["by_position"] = positions_json(positions);
  if (const ResidualReads* reads = scorer.residual_reads()) out["flat_rows"] = reads->share();
  if (kept) {
    out["attention_mass_kept"] = kept->mean_mass();
    out["attention_keys_seen"] = kept->mean_keys();
  }
  if (d) {
    out["kl_divergence"] = {{"mean", d->kl_mean},
                            {"mean_stderr", d->kl_mean_stderr},
                            {"median", d->kl_median},
                            {"p90", d->kl_p90},
                            {"p99", d->kl_p99},
                            {"max", d->kl_max},
                            {"same_top", d->same_top},
                            {"probability_change_rms", d->probability_change_rms},
                            {"reference_perplexity", std::exp(d->reference_nll_mean)}};
  }
  out["applied"] = applied_json(applied);
  print_json_line(out);
}

void print_positions(const PositionTotals& positions, const TableRoom& room) {
  TextTable table(TableLook::plain, {{.name = "from position"}, {.name = "PPL"}, {.name = "tokens"}});
  bool any = false;
  positions.for_each([&](int64_t first, const LikelihoodTotals& part) {
    any = true;
    table.add({fmt::format("{}", first), fmt::format("{:.4f}", part.perplexity()), fmt::format("{}", part.count)});
  });
  if (any) fmt::print("{}", table.text(room));
}

void print_text(const Plan& plan, const LikelihoodTotals& totals, const PositionTotals& positions,
                const DivergenceSummary* d) {
  const TableRoom room = table_room(false, "--json");
  const auto say = [&](const std::string& text) { print_wrapped(text, room.columns); };
  say(fmt::format("PPL = {:.4f} +/- {:.5f}", totals.perplexity(), totals.perplexity() * totals.mean_stderr()));
  say(fmt::format("{} tokens scored in {} windows of {} ({}), NLL {:.6f} per token", totals.count, plan.windows.size(),
                  plan.context, plan.mode, totals.mean()));
  print_positions(positions, room);
  if (!d) return;
  say(fmt::format("reference PPL = {:.4f}", std::exp(d->reference_nll_mean)));
  say(fmt::format("KL divergence: mean {:.6f} +/- {:.6f}, median {:.6f}, p90 {:.6f}, p99 {:.6f}, max {:.6f}",
                  d->kl_mean, d->kl_mean_stderr, d->kl_median, d->kl_p90, d->kl_p99, d->kl_max));
  say(fmt::format("same top token: {:.3f} %, RMS change of the token's probability: {:.3f} %", 100 * d->same_top,
                  100 * d->probability_change_rms));
}

Result<int> run(PerplexityFlags flags) {
  MILLRACE_TRY(auto applied, apply_techniques(flags));
  ModelFlags model_flags = flags.model;
  if (model_flags.context == 0) {  // RoPE may depend on the context that a model is loaded for
    MILLRACE_TRY(ModelFiles files, open_local_model(model_flags.path));
    MILLRACE_TRY(ArchSpec spec, read_arch_spec(files));
    model_flags.context = std::min(kDefaultContext, spec.context);
  }
  MILLRACE_TRY(auto model, model_flags.load(&flags.use, &applied));
  MILLRACE_TRY(Plan plan, make_plan(flags, *model, model_flags.context));
  ScorerOptions options;
  options.threads = flags.model.threads;
  options.context = plan.context;
  options.batch_tokens = flags.batch;
  options.kv_format = flags.kv_format;
  options.evictor = flags.evictor;
  options.kernels = flags.kernels;
  MILLRACE_TRY(auto scorer, Scorer::create(model, options));
  std::optional<KeptMassObserver> kept;
  if (scorer->runner().limits().switches.pattern) kept.emplace(scorer->runner());
  MILLRACE_TRY(auto meter, Meter::create(flags, plan, *scorer));
  catch_interrupts();
  auto result = scorer->run(plan.tokens, plan.windows, plan.window_start,
                            [&](std::span<const ScoredRow> rows) { return meter->add(rows); });
  const LikelihoodTotals totals = meter->totals();
  if (!result.ok()) {
    if (result.error().kind != ErrorKind::cancelled) return result.error();
    if (totals.count > 0)
      fmt::print(stderr, "millrace: interrupted after {} of {} tokens, PPL {:.4f}\n", totals.count, plan.scored,
                 totals.perplexity());
    return 130;
  }
  MILLRACE_TRY_VOID(meter->finish());
  const bool compared = !flags.compare.empty();
  const DivergenceSummary divergence = summarize(meter->divergences());
  const PositionTotals positions = meter->positions();
  meter.reset();  // removes the progress bar
  if (totals.perplexity() > static_cast<double>(scorer->vocab()))
    fmt::print(stderr,
               "millrace: warning: the perplexity is above the vocabulary's size of {}, worse than guessing: tokenizer "
               "and weights may not belong together\n",
               scorer->vocab());
  if (flags.json)
    print_json(flags, plan, *scorer, totals, positions, compared ? &divergence : nullptr,
               kept ? &kept->kept() : nullptr, applied);
  else
    print_text(plan, totals, positions, compared ? &divergence : nullptr);
  if (!flags.json && !flags.evictor.empty())
    fmt::print("evictor {}: at most {} of {} tokens stored, {} bytes\n", flags.evictor, scorer->stored_tokens(),
               plan.context, scorer->stored_bytes());
  if (const ResidualReads* reads = scorer->residual_reads(); reads && !flags.json)
    fmt::print("KV format {}: {:.2f} % of the softmaxes are flat and read both parts\n", flags.kv_format,
               100 * reads->share());
  if (kept && !flags.json)
    fmt::print("attention: queries see {:.1f} % of the keys, with {:.1f} % of the attention to all\n",
               100 * kept->kept().mean_keys(), 100 * kept->kept().mean_mass());
  return 0;
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = add_command(app, "perplexity", "Measure how well a model predicts a text", kPerplexityExamples,
                                  [=] { return run(*flags); });
  command->add_option("-m,--model", flags->model.path,
                      "GGUF file, .safetensors file, Hugging Face folder or built-in model; default: the built-in one");
  command->add_option("-t,--threads", flags->model.threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  flags->model.add_memory_to(command);
  command
      ->add_option("-c,--context,--ctx-size", flags->model.context,
                   "Tokens per window [512, or the model's context if that is less]")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  command->add_option("-f,--file", flags->file, "File with the text to score; -: standard input")->required();
  auto* stride = command
                     ->add_option("--stride,--ppl-stride", flags->stride,
                                  "Start a window every N tokens and score its last N tokens")
                     ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command->add_flag("--all", flags->all, "Score every token but the first; windows overlap by half")->excludes(stride);
  command->add_option("--chunks", flags->chunks, "Stop after this many windows")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      ->add_option("--by-position", flags->by_position,
                   "Also print the perplexity of every N positions of the windows, all windows together")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  command
      ->add_option("-b,--batch-tokens,--batch-size", flags->batch,
                   "Tokens per forward pass; affects speed, not results")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  flags->kv_format_option =
      command
          ->add_option("--kv-format", flags->kv_format,
                       "Format of the KV cache: f32, f16, bf16, q8_0 or NAME[:key=value,...]; see millrace techniques "
                       "--family kv_format")
          ->capture_default_str();
  flags->evictor_option =
      command->add_option("--evictor", flags->evictor,
                          "Drop keys and values while the text is read, NAME[:key=value,...]; see millrace techniques "
                          "--family evictor");
  flags->use.add_to(command, "perplexity");
  command->add_flag("--no-bos", flags->no_bos, "Add no start token to the text and the windows");
  command->add_option("--save-logits", flags->save, "Write the log-probabilities of every scored token to this file");
  command
      ->add_option("--save-format", flags->element,
                   "Number format of that file: f32, or f16 (half the size, an error of about 1e-4 in each divergence)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "f32"}));
  command->add_option("--kl-divergence", flags->compare, "Compare with a reference model's --save-logits file");
  command->add_flag("--json", flags->json, "Print one JSON object");
}

}  // namespace millrace
