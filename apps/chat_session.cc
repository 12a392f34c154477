#include "chat_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/ordered_json.h"
#include "interrupt.h"
#include "prompt/chat_prompt.h"
#include "terminal/display_width.h"
#include "terminal/word_wrap.h"

namespace millrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);  // for Ctrl-C

// Replaces control characters except tabs and line ends: they could move the cursor or rename the window.
std::string without_controls(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1) {
      out += "\xEF\xBF\xBD";  // U+FFFD
      i += c1;
    } else {
      out += text[i];
    }
  }
  return out;
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 && count > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

Result<std::unique_ptr<ChatSession>> ChatSession::create(std::shared_ptr<const LanguageModel> model,
                                                         const EngineOptions& options, ChatSettings settings) {
  auto session = std::unique_ptr<ChatSession>(new ChatSession());
  MILLRACE_TRY(session->engine_, Engine::create(model, options));
  session->model_ = std::move(model);
  session->settings = std::move(settings);
  return session;
}

bool ChatSession::has_template() const { return has_chat_template(*model_); }

Result<std::vector<TokenId>> ChatSession::encode(const Conversation& pending, bool add_generation_prompt) const {
  MILLRACE_TRY(std::string text, chat_text(*model_, to_json(pending.messages()), add_generation_prompt));
  return encode_chat(*model_, text);
}

Result<int64_t> ChatSession::count_tokens() const {
  if (conversation.empty()) return int64_t{0};
  MILLRACE_TRY(auto tokens, encode(conversation, false));
  return static_cast<int64_t>(tokens.size());
}

// The prompt's tokens. Trimming goes down to half the context at once, so that the prompts of the following turns share
// a prefix again and hit the prefix cache.
Result<std::vector<TokenId>> ChatSession::make_prompt(Conversation& pending) const {
  MILLRACE_TRY(auto prompt, encode(pending, true));
  int64_t room = 1;
  if (settings.trim)
    room = std::max<int64_t>(1, settings.max_tokens < 0 ? context() / 4 : std::min(settings.max_tokens, context() / 4));
  int dropped = 0;
  const bool trimming = settings.trim && static_cast<int64_t>(prompt.size()) + room > context();
  while (trimming && static_cast<int64_t>(prompt.size()) > context() / 2) {
    const int count = pending.drop_oldest();
    if (count == 0) break;
    dropped += count;
    MILLRACE_TRY(prompt, encode(pending, true));
  }
  if (static_cast<int64_t>(prompt.size()) >= context()) {
    const char* advice =
        settings.trim
            ? "the last message alone is too long: shorten it, or use a larger -c"
            : "/reset clears the conversation, /set trim on drops the oldest messages, -c N enlarges the context";
    return Error::user(fmt::format(
        "context: the conversation has {} tokens, which leaves no room for an answer in a context of {}; {}",
        prompt.size(), context(), advice));
  }
  if (dropped > 0)
    fmt::print(stderr, "millrace: the context of {} tokens was full: dropped the {} oldest messages\n", context(),
               dropped);
  return prompt;
}

Result<void> ChatSession::say(const std::string& text) {
  Conversation pending = conversation;
  pending.turns.push_back({"user", text});
  return answer(std::move(pending));
}

Result<void> ChatSession::regenerate(std::optional<uint64_t> seed) {
  Conversation pending = conversation;
  if (pending.ends_with("assistant")) pending.turns.pop_back();
  if (!pending.ends_with("user")) return Error::user("/regen: there is no message to answer yet");
  const uint64_t before = settings.sampling.seed;
  if (seed) {
    settings.sampling.seed = *seed;
  } else if (!fresh_seed_ && conversation.ends_with("assistant")) {
    ++settings.sampling.seed;
  }
  auto done = answer(std::move(pending));
  if (!done.ok()) settings.sampling.seed = before;
  return done;
}

Result<void> ChatSession::answer(Conversation pending) {
  MILLRACE_TRY(auto prompt, make_prompt(pending));
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  MILLRACE_TRY(Answer given, generate(std::move(prompt)));
  if (given.finish == FinishReason::cancelled && given.text.empty()) return {};  // discard the question too
  if (given.finish == FinishReason::length) explain_truncation(prompt_tokens);
  if (settings.timings) print_timings();
  pending.turns.push_back({"assistant", std::move(given.text)});
  conversation = std::move(pending);
  fresh_seed_ = false;
  return {};
}

Result<ChatSession::Answer> ChatSession::generate(std::vector<TokenId> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling = settings.sampling;
  request.max_tokens = settings.max_tokens;
  request.stop = settings.stop;
  request.adapters = settings.adapters;
  MILLRACE_TRY(auto stream, engine_->submit(std::move(request)));
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  WordWrap wrap;
  const auto show = [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  };
  Answer given;
  for (bool timed_out = false;;) {
    auto event = stream->next(kPollInterval, &timed_out);
    if (!event && !timed_out) break;
    if (interrupted()) {
      clear_interrupt();
      stream->cancel();
    }
    if (!event) continue;
    given.text += event->text;
    if (terminal) wrap.set_columns(terminal_columns());
    const std::string text = terminal ? without_controls(event->text) : event->text;
    if (!show(terminal && settings.wrap ? wrap.add(text) : text)) stream->cancel();  // the output is closed
    if (event->finish != FinishReason::none) show(wrap.finish());
    if (event->finish == FinishReason::error) return event->error;
    if (event->finish != FinishReason::none) {
      given.finish = event->finish;
      last_timings_ = event->timings;
    }
  }
  if (!given.text.ends_with('\n')) std::fputc('\n', stdout);
  std::fflush(stdout);
  if (given.finish == FinishReason::cancelled) std::fputs("millrace: interrupted\n", stderr);
  return given;
}

void ChatSession::explain_truncation(int64_t prompt_tokens) const {
  if (prompt_tokens + last_timings_.generated_tokens >= context()) {
    fmt::print(stderr,
               "millrace: the answer was truncated: {} prompt and {} generated tokens fill the context of {}; /reset "
               "clears the conversation{}\n",
               prompt_tokens, last_timings_.generated_tokens, context(),
               settings.trim ? "" : ", /set trim on drops the oldest messages");
  } else {
    fmt::print(stderr, "millrace: the answer was truncated after n = {} tokens; /set n N allows more\n",
               settings.max_tokens);
  }
}

void ChatSession::print_timings() const {
  const RequestTimings& t = last_timings_;
  fmt::print(
      stderr,
      "prompt {} tokens, {} from the cache, {:.1f} tok/s | generated {} tokens, {:.1f} tok/s | first token {:.1f} ms\n",
      t.prompt_tokens, t.cached_tokens, per_second(t.prompt_tokens - t.cached_tokens, t.prefill_seconds),
      t.generated_tokens, per_second(t.generated_tokens - 1, t.decode_seconds), t.first_token_seconds * 1e3);
}

}  // namespace millrace
