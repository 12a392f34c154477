// millrace run: generates a completion and streams it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>

#include "base/ordered_json.h"
#include "command.h"
#include "constraint_flags.h"
#include "draft_decisions.h"
#include "input.h"
#include "interrupt.h"
#include "memory_report.h"
#include "model_flags.h"
#include "prompt/document_prompt.h"
#include "prompt/prompt_report.h"
#include "prompt_flags.h"

namespace millrace {
namespace {

constexpr const char* kRunExamples = R"(Examples:
  millrace run                                    a story from the built-in model
  millrace run -p "Once upon a time" -n 200 -s 7  the same story every time
  millrace run -m model.gguf -f prompt.txt --temp 0
  echo "The capital of France is" | millrace run -m model.gguf -n 8
  millrace run --prompt-tokens 1,403,407 -n 16 --ignore-eos --json
  millrace run -m model.gguf -p "Name and age: " --json-schema person.json
  millrace run -p "Was it good? " --choice yes,no,maybe
  millrace run -p "Once upon a time" --answers 2 --best-of 8  the two most likely of eight answers
  millrace run -p "Once upon a time" --beams 4 --answers 4    beam search
  millrace run -m model.gguf -f long.txt --compress-prompt selective_context:ratio=0.5

With --answers, --best-of or --beams, answers are printed one after the other when all have finished.)";

constexpr const char* kDefaultPrompt = "Once upon a time";

struct RunFlags {
  ModelFlags model;
  EngineFlags engine;
  SamplingFlags sampling;
  ConstraintFlags constraint;
  PromptFlags compression;
  std::string prompt, file, kv_load, kv_save;
  std::vector<std::string> documents;
  std::vector<TokenId> prompt_tokens;
  int64_t max_tokens = 256;
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  bool max_tokens_given = false, ignore_eos = false, json = false, no_special = false;
  int64_t answers = 1, best_of = 0, beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
};

// One answer being collected.
struct AnswerText {
  std::vector<TokenId> tokens;
  std::string text;
  nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();
  TokenEvent last;
};

Result<std::string> read_prompt(const RunFlags& flags, bool prompt_given) {
  if (prompt_given) return flags.prompt;
  if (!flags.file.empty()) return read_text_file(flags.file);
  if (!isatty(STDIN_FILENO)) {
    MILLRACE_TRY(std::string text, read_all(stdin, "standard input"));
    while (text.ends_with('\n')) text.pop_back();
    if (!text.empty()) return text;
  }
  return std::string(kDefaultPrompt);
}

struct Speed {
  double prompt_per_second = 0, generated_per_second = 0, gb_per_second = 0;
};

Speed measure(const RequestTimings& t, const LanguageModel& model) {
  Speed speed;
  if (t.prefill_seconds > 0)
    speed.prompt_per_second =
        static_cast<double>(t.prompt_tokens - t.cached_tokens - t.left_out_tokens) / t.prefill_seconds;
  if (t.decode_seconds > 0 && t.generated_tokens > 1)
    speed.generated_per_second = static_cast<double>(t.generated_tokens - 1) / t.decode_seconds;
  speed.gb_per_second = speed.generated_per_second * static_cast<double>(model.info().step_bytes) * 1e-9;
  return speed;
}

nlohmann::ordered_json answer_json(const AnswerText& answer, bool ranked) {
  nlohmann::ordered_json out;
  out["tokens"] = answer.tokens;
  out["text"] = answer.text;
  out["finish_reason"] = finish_reason_name(answer.last.finish);
  if (ranked) out["score"] = answer.last.score;
  if (!answer.logprobs.empty()) out["logprobs"] = answer.logprobs;
  return out;
}

// Of the drafts that reached a position, the share that was accepted there.
nlohmann::ordered_json acceptance_json(const EngineStats& stats) {
  auto out = nlohmann::ordered_json::array();
  for (size_t i = 0; i < kDraftPositions && stats.drafted_at[i] > 0; ++i)
    out.push_back(static_cast<double>(stats.accepted_at[i]) / static_cast<double>(stats.drafted_at[i]));
  return out;
}

// The first answer's fields are in the object itself; with several answers, all are also in "answers".
void print_json(const std::vector<TokenId>& prompt, const std::vector<AnswerText>& answers, const RunFlags& flags,
                const TokenEvent& last, const Speed& speed, const EngineStats& stats,
                const std::vector<AppliedTechnique>& applied, const std::vector<PromptEffect>& compressed) {
  const RequestTimings& t = last.timings;
  const bool ranked = flags.best_of > flags.answers || flags.beams > 1;
  nlohmann::ordered_json out;
  out["prompt_tokens"] = prompt;
  out.update(answer_json(answers.front(), ranked));
  if (flags.answers > 1) {
    out["answers"] = nlohmann::ordered_json::array();
    for (const AnswerText& answer : answers) out["answers"].push_back(answer_json(answer, ranked));
  }
  out["timings"] = {{"prompt_tokens", t.prompt_tokens},
                    {"cached_tokens", t.cached_tokens},
                    {"left_out_tokens", t.left_out_tokens},
                    {"kept_tokens", t.kept_tokens},
                    {"evicted_tokens", t.evicted_tokens},
                    {"evictions", t.evictions},
                    {"prompt_seconds", t.prefill_seconds},
                    {"prompt_tokens_per_second", speed.prompt_per_second},
                    {"generated_tokens", t.generated_tokens},
                    {"generated_seconds", t.decode_seconds},
                    {"generated_tokens_per_second", speed.generated_per_second},
                    {"time_to_first_token_seconds", t.first_token_seconds},
                    {"gb_per_s", speed.gb_per_second}};
  if (std::ranges::find(applied, "drafter", &AppliedTechnique::family) != applied.end()) {
    out["speculation"] = {{"drafted", stats.drafted_tokens},
                          {"accepted", stats.accepted_tokens},
                          {"target_passes", stats.generated_tokens - stats.accepted_tokens},
                          {"acceptance_by_position", acceptance_json(stats)}};  // of all answers
    if (flags.engine.options.draft_length == "auto")
      out["speculation"]["auto"] = draft_decisions_json(stats.draft_decisions);
  }
  if (stats.attention_rows > 0)
    out["attention"] = {{"rows", stats.attention_rows}, {"flat_rows", stats.flat_rows}};  // of all answers
  if (!compressed.empty()) out["prompt"] = prompt_json(compressed);
  out["memory"] = memory_json(stats.memory_budget, stats.memory);
  out["applied"] = applied_json(applied);
  for (auto& one : applied_prompts(compressed)) out["applied"].push_back(std::move(one));
  print_json_line(out);
}

void print_timings(const TokenEvent& last, const Speed& speed) {
  const RequestTimings& t = last.timings;
  fmt::print(
      stderr,
      "prompt {} tokens, {:.1f} tok/s | generated {} tokens, {:.1f} tok/s | first token {:.1f} ms | {:.2f} GB/s\n",
      t.prompt_tokens, speed.prompt_per_second, t.generated_tokens, speed.generated_per_second,
      t.first_token_seconds * 1e3, speed.gb_per_second);
}

void print_store(const KvStoreStats& store) {
  if (store.left_out_tokens > 0)
    fmt::print(stderr, "KV store: {} tokens left out of attention: answers are approximate\n", store.left_out_tokens);
  const bool remote = store.capacity_blocks == 0;
  const std::string blocks = remote ? fmt::format("{} blocks known", store.blocks)
                                    : fmt::format("{} of {} blocks", store.blocks, store.capacity_blocks);
  const std::string io =
      remote ? std::string(store.connected ? "connected" : "not connected")
             : fmt::format("{}, {} I/O", store.io_uring ? "io_uring" : "pread", store.direct ? "direct" : "buffered");
  fmt::print(stderr,
             "KV store: {} tokens loaded, {} faster to compute, {} failed to load | {}, {:.1f} MB read, {:.1f} MB "
             "written, {} dropped, {} corrupt | {}\n",
             store.hit_tokens, store.passed_tokens, store.failed_tokens, blocks,
             static_cast<double>(store.read_bytes) * 1e-6, static_cast<double>(store.written_bytes) * 1e-6,
             store.dropped_blocks, store.corrupt_blocks, io);
}

nlohmann::ordered_json logprob_json(const TokenEvent& event) {
  auto one = [](const TokenLogprob& p) { return nlohmann::ordered_json{{"token", p.token}, {"logprob", p.logprob}}; };
  nlohmann::ordered_json out = one(event.logprob);
  out["top"] = nlohmann::ordered_json::array();
  for (const auto& p : event.top_logprobs) out["top"].push_back(one(p));
  return out;
}

Result<std::vector<TokenId>> prompt_ids(const RunFlags& flags, bool prompt_given, const LanguageModel& model,
                                        std::string* shown) {
  if (!flags.prompt_tokens.empty()) return flags.prompt_tokens;
  MILLRACE_TRY(std::string text, read_prompt(flags, prompt_given));
  MILLRACE_TRY(auto ids, model.encode(text, !flags.no_special));
  if (ids.empty())
    return Error::user("prompt: is empty, and this model adds no start token; provide at least one character");
  *shown = std::move(text);
  return ids;
}

// The start token, the documents' tokens, and those of the question; a document's tokens do not depend on its place.
Result<void> add_documents(const RunFlags& flags, const LanguageModel& model, const std::string& question,
                           Request& request) {
  DocumentPrompt prompt;
  if (!flags.no_special) {
    MILLRACE_TRY(prompt.tokens, model.encode("", true));
  }
  std::vector<std::vector<TokenId>> documents;
  for (const std::string& path : flags.documents) {
    MILLRACE_TRY(const std::string text, read_text_file(path));
    MILLRACE_TRY(documents.emplace_back(), model.encode(text, false));
    if (documents.back().empty()) return Error::user(fmt::format("document {}: is empty", path));
  }
  prompt.add_documents(documents);
  MILLRACE_TRY(const auto ids, model.encode(question, false));
  if (ids.empty()) return Error::user("prompt: is empty; documents need a question");
  prompt.add(ids);
  request.prompt = std::move(prompt.tokens);
  request.documents = std::move(prompt.documents);
  return {};
}

Result<Request> make_request(const RunFlags& flags, bool prompt_given, const LanguageModel& model, std::string* shown,
                             std::vector<AppliedTechnique>* applied) {
  Request request;
  MILLRACE_TRY(request.prompt, prompt_ids(flags, prompt_given, model, shown));
  if (!flags.documents.empty()) MILLRACE_TRY_VOID(add_documents(flags, model, *shown, request));
  MILLRACE_TRY(request.sampling, flags.sampling.get(model, flags.engine.use, applied, flags.model.defaults));
  MILLRACE_TRY(request.constraint, flags.constraint.get());
  request.max_tokens = flags.max_tokens;
  if (!flags.max_tokens_given && flags.model.defaults.max_tokens >= 0)
    request.max_tokens = flags.model.defaults.max_tokens;
  request.min_tokens = flags.min_tokens;
  request.ignore_eos = flags.ignore_eos;
  request.stop = flags.stop.empty() ? flags.model.defaults.stop : flags.stop;
  request.adapters = flags.engine.all_adapters(flags.model);
  request.n = flags.answers;
  request.best_of = flags.best_of;
  request.beams = flags.beams;
  request.length_penalty = flags.length_penalty;
  request.early_stopping = flags.early_stopping;
  return request;
}

// Collects the answers and calls `print` with text as it arrives. Returns the request's last event.
TokenEvent collect(Stream& stream, bool wants_logprobs, std::vector<AnswerText>& answers,
                   const std::function<bool(const std::string&)>& print) {
  TokenEvent last;
  for (bool stopping = false, timed_out = false;;) {
    auto event = stream.next(std::chrono::milliseconds(50), &timed_out);
    if (!event && !timed_out) return last;
    if (interrupted() && !stopping) {
      stream.cancel();
      stopping = true;
    }
    if (!event) continue;
    if (event->answer >= static_cast<int64_t>(answers.size())) answers.resize(static_cast<size_t>(event->answer) + 1);
    AnswerText& answer = answers[static_cast<size_t>(event->answer)];
    if (event->token >= 0) {
      answer.tokens.push_back(event->token);
      if (wants_logprobs) answer.logprobs.push_back(logprob_json(*event));
    }
    answer.text += event->text;
    if (!print(event->text)) stream.cancel();  // the output is closed
    if (event->finish == FinishReason::none) continue;
    answer.last = *event;
    last = std::move(*event);
  }
}

bool print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0;
}

Result<int> run(RunFlags flags, bool prompt_given) {
  std::vector<AppliedTechnique> applied;
  MILLRACE_TRY(flags.model, flags.model.found());
  MILLRACE_TRY(auto model, flags.model.load(&flags.engine.use, &applied));
  std::string shown;
  MILLRACE_TRY(EngineOptions options, flags.engine.get(flags.model, &applied));
  MILLRACE_TRY(Request request, make_request(flags, prompt_given, *model, &shown, &applied));
  MILLRACE_TRY(const auto passes, flags.compression.all(flags.engine.use));
  if (!passes.empty() && !request.documents.empty())
    return Error::unsupported("--document: a compressed prompt has other tokens; compress the documents before");
  MILLRACE_TRY(const auto compressed,
               compress_prompt(model, passes, flags.model.threads, flags.model.context, request));
  options.max_streams = std::clamp<int64_t>(std::max({flags.answers, flags.best_of, flags.beams}), 1, 128);
  MILLRACE_TRY(auto engine, Engine::create(model, options));
  if (!flags.kv_load.empty()) {
    MILLRACE_TRY(const int64_t tokens, engine->load_prefix(request, flags.kv_load));
    fmt::print(stderr, "{}: keys and values of {} tokens loaded\n", flags.kv_load, tokens);
  }
  Request saved = request;
  const std::vector<TokenId> prompt = request.prompt;
  const bool wants_logprobs = flags.json && request.sampling.logprobs >= 0;
  MILLRACE_TRY(auto stream, engine->submit(std::move(request)));

  catch_interrupts();
  const bool several = flags.answers > 1;
  if (!flags.json) print_text(several ? shown + "\n" : shown);
  std::vector<AnswerText> answers(1);
  const TokenEvent last = collect(*stream, wants_logprobs, answers,
                                  [&](const std::string& text) { return flags.json || several || print_text(text); });
  if (last.finish == FinishReason::error) return last.error;
  if (!flags.kv_save.empty()) {
    saved.prompt.insert(saved.prompt.end(), answers.front().tokens.begin(), answers.front().tokens.end());
    MILLRACE_TRY(const int64_t tokens, engine->save_prefix(saved, flags.kv_save));
    fmt::print(stderr, "{}: keys and values of {} tokens saved\n", flags.kv_save, tokens);
  }
  const Speed speed = measure(last.timings, *model);
  if (const KvStoreStats store = engine->stats().store; store.open) print_store(store);
  if (flags.json) {
    print_json(prompt, answers, flags, last, speed, engine->stats(), applied, compressed);
  } else {
    for (size_t i = 0; several && i < answers.size(); ++i)
      print_text(fmt::format("--- {}\n{}\n", i + 1, answers[i].text));
    if (!several) print_text("\n");
    for (const PromptEffect& pass : compressed)
      fmt::print(stderr, "prompt compressed by {} from {} to {} tokens in {:.1f} ms\n", pass.name, pass.tokens_before,
                 pass.tokens_after, pass.seconds * 1e3);
    print_timings(last, speed);
  }
  return last.finish == FinishReason::cancelled ? 130 : 0;
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  auto prompt_given = std::make_shared<CLI::Option*>(nullptr);
  CLI::App* command = add_command(app, "run", "Generate a completion of a prompt", kRunExamples,
                                  [=] { return run(*flags, (*prompt_given)->count() > 0); });
  flags->model.add_to(command);
  flags->model.add_pack_to(command);
  *prompt_given = command->add_option(
      "-p,--prompt", flags->prompt, "Text to continue; default: -f, piped standard input, or the beginning of a story");
  CLI::Option* file =
      command->add_option("-f,--file", flags->file, "File with the text to continue")->excludes(*prompt_given);
  CLI::Option* tokens = command->add_option("--prompt-tokens", flags->prompt_tokens, "Token ids instead of text: 1,2,3")
                            ->delimiter(',')
                            ->excludes(*prompt_given)
                            ->excludes(file);
  command
      ->add_option("--document", flags->documents,
                   "File with a document that comes before the prompt; repeatable. --use context=... chooses how "
                   "documents are computed")
      ->allow_extra_args(false)
      ->excludes(tokens);
  command
      ->add_option("-n,--max-tokens", flags->max_tokens,
                   "Maximum number of tokens to generate; -1: until the context is full")
      ->each([=](const std::string&) { flags->max_tokens_given = true; })
      ->capture_default_str()
      ->check(CLI::Range(int64_t{-1}, int64_t{INT32_MAX}));
  command->add_option("--min-tokens", flags->min_tokens, "Do not stop before this many tokens");
  command->add_option("--stop", flags->stop, "Stop before this text; repeatable");
  const auto count = CLI::Range(int64_t{1}, int64_t{128});
  command->add_option("--answers", flags->answers, "Answers to print; each uses a different seed")
      ->capture_default_str()
      ->check(count);
  command
      ->add_option("--best-of", flags->best_of,
                   "Generate this many answers and print those (--answers) with the highest mean log-probability")
      ->check(count);
  command
      ->add_option("--beams", flags->beams,
                   "Beam search of this width on the model's own distribution; prints the best ones (--answers)")
      ->capture_default_str()
      ->check(count);
  command
      ->add_option("--length-penalty", flags->length_penalty,
                   "Beam search: score = sum of log-probabilities / tokens ^ this")
      ->capture_default_str();
  command
      ->add_option("--early-stopping", flags->early_stopping,
                   "Beam search: end early: no, yes (as soon as there are enough answers) or never (until no better "
                   "one is possible)")
      ->transform(CLI::CheckedTransformer(std::map<std::string, EarlyStopping>{
          {"no", EarlyStopping::no}, {"yes", EarlyStopping::yes}, {"never", EarlyStopping::never}}));
  command->add_option("--kv-load", flags->kv_load,
                      "Load keys and values that --kv-save wrote: a prompt that begins with the same tokens continues "
                      "there");
  command->add_option("--kv-save", flags->kv_save,
                      "At the end, save the keys and values of the prompt and the first answer to this file");
  command->add_flag("--ignore-eos", flags->ignore_eos, "Continue after the model's end token");
  command->add_flag("--no-special", flags->no_special, "Do not add a start token to the prompt");
  command->add_flag("--json", flags->json, "Print one JSON object at the end instead of text");
  flags->engine.add_to(command);
  flags->engine.add_adapters_to(command, "All of them are applied");
  flags->sampling.add_to(command);
  flags->compression.add_to(command);
  flags->constraint.add_to(command);
}

}  // namespace millrace
