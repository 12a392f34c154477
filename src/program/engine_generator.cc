#include "program/engine_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/ordered_json.h"
#include "prompt/chat_prompt.h"

namespace millrace {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(50);

Result<std::vector<TokenId>> prompt_of(const GenerationAsk& ask, const LanguageModel& model) {
  if (ask.messages.empty()) return model.encode(ask.text);
  auto messages = nlohmann::ordered_json::array();
  for (const ProgramMessage& message : ask.messages)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  if (ask.text.empty()) {
    MILLRACE_TRY(const std::string text, chat_text(model, messages, true));
    return encode_chat(model, text);
  }
  messages.push_back({{"role", "assistant"}, {"content", ask.text}});
  MILLRACE_TRY(const RenderedChat rendered, render_unfinished_chat(model, messages));
  return encode_chat(model, rendered.text);
}

}  // namespace

Result<Request> request_of(const GenerationAsk& ask, const ProgramModel& model) {
  Request out;
  MILLRACE_TRY(out.prompt, prompt_of(ask, *model.model));
  const GenSettings& settings = ask.settings;
  out.sampling = model.sampling;
  out.sampling.seed = settings.seed.value_or(0);
  out.sampling.temperature = settings.temperature.value_or(out.sampling.temperature);
  out.sampling.top_p = settings.top_p.value_or(out.sampling.top_p);
  out.sampling.min_p = settings.min_p.value_or(out.sampling.min_p);
  out.sampling.top_k = settings.top_k.value_or(out.sampling.top_k);
  out.sampling.logprobs = ask.score ? 0 : -1;
  out.max_tokens = settings.max_tokens;
  out.stop = settings.stop;
  out.constraint = settings.constraint;
  return out;
}

struct EngineGenerator::Open {
  Engine* engine = nullptr;
  RequestId id = 0;  // 0: not submitted
  GenerationOutcome outcome;
  std::optional<Error> error;
  Done done;
};

void EngineGenerator::begin(const GenerationAsk& ask, Done done) {
  const auto open = std::make_shared<Open>();
  open->done = std::move(done);
  open_.push_back(open);
  const auto finish = [inbox = inbox_, open] {
    {
      const std::lock_guard lock(inbox->mutex);
      inbox->finished.push_back(open);
    }
    inbox->wake.notify_one();
  };
  const auto refuse = [&](Error error) {
    open->error = std::move(error);
    finish();
  };
  const auto model = ask.settings.model.empty() ? models_.begin()
                                                : std::ranges::find(models_, ask.settings.model, &ProgramModel::name);
  if (model == models_.end())
    return refuse(Error::user(fmt::format("model '{}': is not a model of this run", ask.settings.model)));
  auto request = request_of(ask, *model);
  if (!request.ok()) return refuse(request.error());
  open->engine = model->engine;
  auto id = model->engine->submit(std::move(*request), [open, finish](TokenEvent&& event) {
    GenerationOutcome& out = open->outcome;
    out.text += event.text;
    if (event.token >= 0 && !event.end_token) out.logprobs.push_back(event.logprob.logprob);
    if (!event.last) return;
    out.finish = finish_reason_name(event.finish);
    out.prompt_tokens = event.timings.prompt_tokens;
    out.cached_tokens = event.timings.cached_tokens;
    out.generated_tokens = event.timings.generated_tokens;
    if (event.finish == FinishReason::error) open->error = std::move(event.error);
    if (event.finish == FinishReason::cancelled) open->error = Error::cancelled("the generation was cancelled");
    finish();
  });
  if (!id.ok()) return refuse(id.error());
  open->id = *id;
}

void EngineGenerator::cancel_all() {
  for (const auto& open : open_) {
    open->done = nullptr;
    if (open->engine && open->id != 0) open->engine->cancel(open->id);
  }
  open_.clear();
}

void EngineGenerator::wait(std::chrono::milliseconds limit) {
  std::deque<std::shared_ptr<Open>> finished;
  {
    std::unique_lock lock(inbox_->mutex);
    inbox_->wake.wait_for(lock, limit, [&] { return !inbox_->finished.empty(); });
    finished.swap(inbox_->finished);
  }
  for (const auto& one : finished) {
    std::erase(open_, one);
    const Done done = std::exchange(one->done, nullptr);
    if (!done) continue;  // cancelled
    if (one->error)
      done(std::move(*one->error));
    else
      done(std::move(one->outcome));
  }
}

Result<ProgramResult> run_program(Program program, const ProgramVariables& given, EngineGenerator& generator,
                                  ProgramRun::Options options, const std::function<bool()>& wanted) {
  std::optional<Result<ProgramResult>> result;
  MILLRACE_TRY(const auto run, ProgramRun::start(std::move(program), given, generator, std::move(options),
                                                 [&](Result<ProgramResult> out) { result = std::move(out); }));
  while (!result) {
    if (!wanted()) {
      run->cancel();
      return Error::cancelled("program: stopped");
    }
    generator.wait(kPollInterval);
  }
  return std::move(*result);
}

}  // namespace millrace
