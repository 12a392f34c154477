// millrace run: generates a completion and streams it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>

#include "arguments.h"
#include "base/ordered_json.h"
#include "chat.h"
#include "command.h"
#include "config_file.h"
#include "input.h"
#include "interrupt.h"
#include "parse_again.h"
#include "prompt/chat_prompt.h"
#include "run/embedded_model.h"
#include "run_documents.h"
#include "run_output.h"
#include "terminal/display_width.h"
#include "terminal/word_wrap.h"

namespace millrace {
namespace {

constexpr const char* kRunExamples = R"(Examples:
  millrace run qwen3:0.6b "Why is the sky blue?"  a model by its short name answers; the download is offered
  millrace run qwen3:0.6b                         talk with it, as millrace chat
  cat letter.txt | millrace run qwen3:0.6b "Summarize this letter."
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
  millrace run qwen3:0.6b "Who was right?" --retrieve notes.index   answers from your documents (millrace index)

With --answers, --best-of or --beams, answers are printed one after the other when all have finished.)";

constexpr const char* kDefaultPrompt = "Once upon a time";

Result<std::string> piped_text() {
  if (isatty(STDIN_FILENO) == 1) return std::string();
  MILLRACE_TRY(std::string text, read_all(stdin, "standard input"));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> read_prompt(const RunFlags& flags, bool prompt_given) {
  if (prompt_given) return flags.prompt;
  if (!flags.file.empty()) return read_text_file(flags.file);
  MILLRACE_TRY(std::string text, piped_text());
  return text.empty() ? std::string(kDefaultPrompt) : text;
}

// A message to the model, as opposed to a text that it continues.
bool has_message(const RunFlags& flags) { return !flags.words.text.empty(); }

// The piped text, if any, and the words of the command line.
Result<std::string> read_message(const RunFlags& flags) {
  MILLRACE_TRY(std::string text, piped_text());
  const std::string words = flags.words.message();
  if (!text.empty() && !words.empty()) text += "\n\n";
  return text + words;
}

// A conversation that consists of `message`.
nlohmann::ordered_json messages_of(const RunFlags& flags, const std::string& message) {
  auto messages = nlohmann::ordered_json::array();
  const std::string& system = flags.system.empty() ? flags.model.system : flags.system;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", message}});
  return messages;
}

Result<std::vector<TokenId>> message_ids(const RunFlags& flags, const LanguageModel& model,
                                         const std::string& message) {
  if (!has_chat_template(model))
    fmt::print(stderr, "millrace: {} has no chat template: it continues your text instead of answering\n",
               model.info().name);
  MILLRACE_TRY(const std::string text, chat_text(model, messages_of(flags, message), true));
  return encode_chat(model, text);
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
  if (has_message(flags)) return message_ids(flags, model, flags.words.message());
  MILLRACE_TRY(std::string text, read_prompt(flags, prompt_given));
  MILLRACE_TRY(auto ids, model.encode(text, !flags.no_special));
  if (ids.empty())
    return Error::user("prompt: is empty, and this model adds no start token; provide at least one character");
  *shown = std::move(text);
  return ids;
}

// Places documents and passages before the question.
Result<void> add_documents(const RunFlags& flags, const LanguageModel& model, const std::string& question,
                           Request& request, std::vector<SearchHit>& sources) {
  const bool message = has_message(flags);
  const std::string asked = message ? flags.words.message() : question;
  if (!flags.prompt_tokens.empty()) return Error::user("--retrieve: needs a question as text, not tokens");
  MILLRACE_TRY(sources, find_passages(flags, asked));
  MILLRACE_TRY(const auto texts, document_texts(flags, sources));
  if (texts.empty()) return {};  // nothing was found
  DocumentPrompt prompt;
  if (message) {
    MILLRACE_TRY(prompt, documents_in_message(model, texts, messages_of(flags, asked)));
  } else {
    MILLRACE_TRY(prompt, documents_before(flags, model, texts, question));
  }
  request.prompt = std::move(prompt.tokens);
  request.documents = std::move(prompt.documents);
  return {};
}

// An answer to a message ends by itself; a text that a model continues has no end.
int64_t default_max_tokens(const RunFlags& flags, const LanguageModel& model) {
  if (flags.max_tokens_given) return flags.max_tokens;
  if (flags.model.defaults.max_tokens >= 0) return flags.model.defaults.max_tokens;
  return has_message(flags) && has_chat_template(model) ? -1 : flags.max_tokens;
}

Result<Request> make_request(const RunFlags& flags, bool prompt_given, const LanguageModel& model, std::string* shown,
                             std::vector<AppliedTechnique>* applied, std::vector<SearchHit>* sources) {
  Request request;
  MILLRACE_TRY(request.prompt, prompt_ids(flags, prompt_given, model, shown));
  if (!flags.documents.empty() || !flags.retrieve.empty())
    MILLRACE_TRY_VOID(add_documents(flags, model, *shown, request, *sources));
  MILLRACE_TRY(request.sampling, flags.sampling.get(model, flags.engine.use, applied, flags.model.defaults));
  MILLRACE_TRY(request.constraint, flags.constraint.get());
  request.max_tokens = default_max_tokens(flags, model);
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

// Text on standard output while it arrives; lines of a terminal are broken at words.
class TerminalText {
 public:
  // Returns false if the output is closed.
  bool print(const std::string& text) {
    wrap_.set_columns(terminal_columns());
    return write(wrap_.add(text));
  }
  void end(const std::string& last) { write(wrap_.finish() + last); }

 private:
  static bool write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }
  WordWrap wrap_;
};

// Says what ended an answer in its middle. `limit`: tokens that it could have; negative: as many as the context holds.
void explain_length(const RequestTimings& timings, int64_t limit) {
  if (limit >= 0 && timings.generated_tokens >= limit)
    fmt::print(stderr, "millrace: the text was cut off after {} tokens; -n N allows more, -n -1 as many as fit\n",
               limit);
  else
    fmt::print(stderr, "millrace: the text was cut off: {} prompt and {} generated tokens fill the context (-c)\n",
               timings.prompt_tokens, timings.generated_tokens);
}

// `millrace run MODEL` in a terminal.
Result<int> talk(const RunFlags& flags) {
  ChatFlags chatting{.model = flags.model, .engine = flags.engine, .sampling = flags.sampling};
  chatting.engine.use.command = "chat";
  chatting.settings.stop = flags.stop;
  chatting.system = flags.system;
  chatting.max_tokens_given = flags.max_tokens_given;
  if (flags.max_tokens_given) chatting.settings.max_tokens = flags.max_tokens;
  return chat(std::move(chatting));
}

// Refuses flags on the command line that a conversation does not use. For those of the config file, prints a note.
// Errors: user.
Result<void> check_flags_of_talk(const RunFlags& flags, const CLI::App& command) {
  CLI::App scratch;
  add_chat_command(scratch);
  const CLI::App& talks = *scratch.get_subcommand("chat");
  for (const auto& [name, values] : given_flags(command)) {
    if (talks.get_option_no_throw(name)) continue;
    if (on_command_line(command, name))
      return Error::user(fmt::format("run: {}: needs a message after the model, or -p TEXT", name));
    fmt::print(stderr, "millrace: note: {} of the config file: is not used in a conversation\n", name);
  }
  UseFlag use = flags.engine.use;
  use.command = "chat";
  if (const auto uses = use.get(); !uses.ok()) return uses.error();
  return {};
}

// Finds out what the words are, and offers the download of MODEL. Returns true if the user wants a conversation in the
// terminal. Errors: user (words or flags that do not go together; no message), and those of offer_model.
Result<bool> place_words(RunFlags& flags, const CLI::App& command) {
  const bool continues = command.count("--prompt") > 0 || !flags.file.empty() || !flags.prompt_tokens.empty();
  const bool model_word = flags.words.place(&flags.model.path, on_command_line(command, "--model"));
  if (model_word) MILLRACE_TRY_VOID(check_model_name(flags.model.path));
  const bool talks = model_word && !continues && !has_message(flags) && isatty(STDIN_FILENO) == 1;
  if (continues && has_message(flags))
    return Error::user(fmt::format("run: '{}' is not expected here: values follow their flag, a prompt is -p TEXT",
                                   flags.words.text.front()));
  if (talks) MILLRACE_TRY_VOID(check_flags_of_talk(flags, command));
  if (!talks && !continues && (model_word || has_message(flags))) {
    MILLRACE_TRY(std::string message, read_message(flags));
    if (message.empty())
      return Error::user(fmt::format("run: there is no message; write one after {}, or pipe it in",
                                     flags.model.path.empty() ? kDefaultModel : flags.model.path));
    flags.words.text = {std::move(message)};
    if (!flags.documents.empty()) return Error::user("run: --document: goes with a prompt of -p, not with a message");
  }
  if (!talks && !has_message(flags) && !flags.system.empty())
    return Error::user("run: --system: a text to continue has no system message; write the prompt after the model");
  if (model_word) MILLRACE_TRY_VOID(offer_model(flags.model.path, flags.words.yes));
  return talks;
}

Result<int> run(RunFlags flags, const CLI::App& command) {
  const bool prompt_given = command.count("--prompt") > 0;
  std::vector<AppliedTechnique> applied;
  MILLRACE_TRY(const bool wants_chat, place_words(flags, command));
  if (wants_chat) return talk(flags);
  MILLRACE_TRY(flags.model, flags.model.found());
  MILLRACE_TRY(auto model, flags.model.load(&flags.engine.use, &applied));
  if (!flags.json) introduce_built_in(flags.model.path, model->info().parameters);
  std::string shown;
  std::vector<SearchHit> sources;
  MILLRACE_TRY(EngineOptions options, flags.engine.get(flags.model, &applied));
  MILLRACE_TRY(Request request, make_request(flags, prompt_given, *model, &shown, &applied, &sources));
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
  const int64_t limit = request.max_tokens;
  const bool wants_logprobs = flags.json && request.sampling.logprobs >= 0;
  MILLRACE_TRY(auto stream, engine->submit(std::move(request)));

  catch_interrupts();
  const bool several = flags.answers > 1;
  TerminalText terminal;
  if (!flags.json && !flags.no_display_prompt && !shown.empty()) terminal.print(several ? shown + "\n" : shown);
  std::vector<AnswerText> answers(1);
  const TokenEvent last = collect(*stream, wants_logprobs, answers, [&](const std::string& text) {
    return flags.json || several || terminal.print(text);
  });
  if (last.finish == FinishReason::error) return last.error;
  if (!flags.kv_save.empty()) {
    saved.prompt.insert(saved.prompt.end(), answers.front().tokens.begin(), answers.front().tokens.end());
    MILLRACE_TRY(const int64_t tokens, engine->save_prefix(saved, flags.kv_save));
    fmt::print(stderr, "{}: keys and values of {} tokens saved\n", flags.kv_save, tokens);
  }
  const Speed speed = measure(last.timings, *model);
  if (const KvStoreStats store = engine->stats().store; store.open) print_store(store);
  if (const KeyStreamStats keys = engine->stats().key_stream; keys.blocks > 0)
    print_key_stream(keys, last.timings.prompt_tokens + last.timings.generated_tokens);
  if (flags.json) {
    print_json(prompt, answers, flags, last, speed, engine->stats(), applied, compressed, sources);
  } else {
    for (size_t i = 0; several && i < answers.size(); ++i)
      terminal.print(fmt::format("--- {}\n{}\n", i + 1, answers[i].text));
    terminal.end(several ? "" : "\n");
    if (last.finish == FinishReason::length) explain_length(last.timings, limit);
    for (const PromptEffect& pass : compressed)
      fmt::print(stderr, "prompt compressed by {} from {} to {} tokens in {:.1f} ms\n", pass.name, pass.tokens_before,
                 pass.tokens_after, pass.seconds * 1e3);
    print_sources(sources);
    print_timings(last, speed);
  }
  return last.finish == FinishReason::cancelled ? 130 : 0;
}

}  // namespace

void add_run_command(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = add_command(app, "run", "Answer a message, or continue a text", kRunExamples,
                                  [=, &app] { return run(*flags, *app.get_subcommand("run")); });
  flags->words.add_to(command, true);
  flags->model.add_to(command);
  flags->model.add_pack_to(command);
  CLI::Option* prompt = command->add_option(
      "-p,--prompt", flags->prompt,
      "Text to continue as it is, without a chat template; default: -f, piped standard input, or the beginning of a "
      "story");
  command->add_option("--system", flags->system, "System message before the PROMPT");
  command->add_flag("--no-display-prompt", flags->no_display_prompt, "Print the answer without the text it continues");
  CLI::Option* file = command->add_option("-f,--file", flags->file, "File with the text to continue")->excludes(prompt);
  CLI::Option* tokens = command->add_option("--prompt-tokens", flags->prompt_tokens, "Token ids instead of text: 1,2,3")
                            ->delimiter(',')
                            ->excludes(prompt)
                            ->excludes(file);
  command
      ->add_option("--document", flags->documents,
                   "File with a document that comes before the prompt; repeatable. --use context=... chooses how "
                   "documents are computed")
      ->excludes(tokens);
  command
      ->add_option("--retrieve", flags->retrieve,
                   "Folder of an index (millrace index): the passages that match the prompt come before it")
      ->excludes(tokens);
  command->add_option("--retrieve-k", flags->retrieved, "Passages that --retrieve finds")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{100}));
  command->add_option("--retrieve-mode", flags->retrieve_mode, "How --retrieve searches")
      ->capture_default_str()
      ->check(CLI::IsMember({"hybrid", "vector", "text"}));
  command->add_option("--retrieve-tenant", flags->retrieve_tenant, "Owner of the documents that --retrieve finds");
  command
      ->add_option("-n,--max-tokens", flags->max_tokens,
                   "Maximum number of tokens to generate; -1: until the context is full, which is the default for an "
                   "answer to a PROMPT")
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
  take_one_value_each(command);
}

}  // namespace millrace
