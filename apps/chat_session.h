// ChatSession: a chat on one engine. Converts the conversation to a prompt, streams the answer, and keeps both within
// the context. All turns use the same engine, so that its prefix cache has the earlier turns. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat_conversation.h"
#include "millrace/engine.h"

namespace millrace {

struct ChatSettings {
  SamplingOptions sampling;
  int64_t max_tokens = 512;  // per answer; -1: until the context is full
  std::vector<std::string> stop;
  bool trim = false;  // drop the oldest turns when the context is full
  std::vector<AdapterUse> adapters;
  bool timings = false;  // a line on stderr after each answer
  bool wrap = true;      // break answers at words in a terminal
  bool remember = true;  // messages go to the input history
  std::string name;      // the model's name as the user typed it; "": its own name
  std::string path;      // the model's file or folder, or the name of a built-in model
};

class ChatSession {
 public:
  static Result<std::unique_ptr<ChatSession>> create(std::shared_ptr<const LanguageModel> model,
                                                     const EngineOptions& options, ChatSettings settings);

  // Adds a user message and writes the answer to stdout. An error leaves the conversation unchanged.
  Result<void> say(const std::string& text);

  // Generates the last answer again: with `seed`, with a seed set since then, or with the next seed.
  Result<void> regenerate(std::optional<uint64_t> seed);

  void seed_was_set() { fresh_seed_ = true; }

  // Tokens of the conversation so far, without a generation prompt.
  Result<int64_t> count_tokens() const;

  const LanguageModel& model() const { return *model_; }
  const std::string& shown_name() const { return settings.name.empty() ? model_->info().name : settings.name; }
  int64_t context() const { return engine_->context(); }
  bool has_template() const;
  const RequestTimings& last_timings() const { return last_timings_; }

  Conversation conversation;
  ChatSettings settings;

 private:
  struct Answer {
    std::string text;
    FinishReason finish = FinishReason::none;
  };

  ChatSession() = default;
  Result<std::vector<TokenId>> encode(const Conversation& conversation, bool add_generation_prompt) const;
  Result<std::vector<TokenId>> make_prompt(Conversation& conversation) const;
  Result<void> answer(Conversation pending);
  Result<Answer> generate(std::vector<TokenId> prompt);
  void explain_truncation(int64_t prompt_tokens) const;
  void print_timings() const;

  std::shared_ptr<const LanguageModel> model_;
  std::unique_ptr<Engine> engine_;
  RequestTimings last_timings_;
  bool fresh_seed_ = false;  // the seed was set after the last answer
};

}  // namespace millrace
