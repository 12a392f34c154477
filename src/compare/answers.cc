#include "compare/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "program/engine_generator.h"
#include "program/member.h"

namespace millrace {
namespace {

// The first configuration of each model: prompts are the same tokens in the others.
std::vector<const CompareConfig*> with_own_model(std::span<const CompareConfig> configs) {
  std::vector<const CompareConfig*> out;
  for (const CompareConfig& config : configs)
    if (config.model && std::ranges::none_of(out, [&](const auto* other) { return other->model == config.model; }))
      out.push_back(&config);
  return out;
}

// Errors: of the stream, cancelled.
Result<GeneratedAnswer> whole_answer(Stream& stream, const SuiteWanted& wanted) {
  GeneratedAnswer answer;
  for (bool timed_out = false;;) {
    auto event = stream.next(std::chrono::milliseconds(100), &timed_out);
    if (!wanted()) return Error::cancelled("interrupted");
    if (!event && timed_out) continue;
    if (!event) return Error::internal("an answer ended without its last event");
    answer.text += event->text;
    if (event->token >= 0 && !event->end_token) answer.tokens.push_back(event->token);
    if (event->finish == FinishReason::error) return event->error;
    if (!event->last) continue;
    answer.timings = event->timings;
    return answer;
  }
}

double cost_of(const LanguageModel& model, int64_t prompt, int64_t cached, int64_t generated) {
  return static_cast<double>(model.info().parameters) * static_cast<double>(prompt - cached + generated) * 1e-9;
}

Result<ProgramQuestion> program_question(const AnswerRequest& from) {
  if (from.messages.is_null())
    return Error::unsupported("program: answers questions of conversations; choose the suite lab or exact");
  ProgramQuestion out;
  out.max_tokens = from.max_tokens;
  out.stop = from.stop;
  for (const auto& message : from.messages)
    out.messages.push_back({message.value("role", ""), message.value("content", "")});
  return out;
}

}  // namespace

int64_t model_passes(const RequestTimings& timings, bool drafts_with_model) {
  // Every step with a draft has reached the draft's first position.
  const int64_t drafts = drafts_with_model && !timings.drafted_at.empty() ? timings.drafted_at[0] : 0;
  return timings.target_passes + drafts;
}

nlohmann::ordered_json user_message(const std::string& text) {
  auto out = nlohmann::ordered_json::array();
  out.push_back(nlohmann::ordered_json::object({{"role", "user"}, {"content", text}}));
  return out;
}

Result<std::vector<size_t>> fitting_requests(std::span<const CompareConfig> configs,
                                             std::span<const AnswerRequest> requests, int64_t& longest) {
  longest = 1;
  std::vector<size_t> out;
  int64_t context = INT64_MAX;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  const auto models = with_own_model(configs);
  for (size_t i = 0; i < requests.size(); ++i) {
    int64_t most = 1;
    bool fits = true;
    for (const CompareConfig* const config : models) {
      MILLRACE_TRY(const auto prompt, whole_prompt(*config->model, requests[i]));
      const int64_t tokens = std::ssize(prompt.tokens) + requests[i].max_tokens;
      most = std::max(most, tokens);
      fits &= !prompt.tokens.empty() && tokens <= context;
    }
    if (!fits) continue;
    longest = std::max(longest, most);
    out.push_back(i);
  }
  return out;
}

Result<GeneratedAnswer> answer_alone(Engine& engine, Request request, const SuiteWanted& wanted) {
  MILLRACE_TRY(auto stream, engine.submit(std::move(request)));
  return whole_answer(*stream, wanted);
}

Result<std::vector<GeneratedAnswer>> AnswerEngines::answer_externally(size_t config,
                                                                      std::span<const AnswerRequest> requests,
                                                                      const SuiteWanted& wanted) {
  if (!servers_[config]) {
    MILLRACE_TRY(servers_[config], configs_[config].external->serve(longest_, wanted));
  }
  std::vector<GeneratedAnswer> out(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const AnswerRequest& request = requests[i];
    const ExternalQuestion question{request.messages.is_null() ? "" : request.messages.dump(), request.text,
                                    request.max_tokens, request.stop};
    MILLRACE_TRY(out[i].text, servers_[config]->answer(question, wanted));
  }
  return out;
}

// The configuration's model, and the others that its program names.
Result<std::vector<ProgramModel>> AnswerEngines::program_models(size_t config) {
  const CompareConfig& of = configs_[config];
  std::vector<ProgramModel> out = {
      {.name = "", .model = of.model, .engine = engines_[config].get(), .sampling = of.sampling}};
  for (const auto& [name, model] : of.program_models) {
    auto& engine = program_engines_[std::to_string(config) + " " + name];
    if (!engine) {
      CompareConfig other = of;
      other.model = model;
      MILLRACE_TRY(engine, make_compare_engine(other, streams_, compare_context(other)));
    }
    out.push_back({.name = name, .model = model, .engine = engine.get(), .sampling = of.sampling});
  }
  return out;
}

// One program after the other: the branches of each fill the batch.
Result<std::vector<GeneratedAnswer>> AnswerEngines::answer_by_program(size_t config,
                                                                      std::span<const AnswerRequest> requests,
                                                                      const SuiteWanted& wanted) {
  const CompareConfig& of = configs_[config];
  MILLRACE_TRY(const auto member, make_program_member(of.program));
  MILLRACE_TRY(const std::vector<ProgramModel> models, program_models(config));
  std::vector<GeneratedAnswer> out;
  for (const AnswerRequest& from : requests) {
    MILLRACE_TRY(const ProgramQuestion question, program_question(from));
    EngineGenerator generator(models);
    const auto began = std::chrono::steady_clock::now();
    MILLRACE_TRY(ProgramResult result, run_program(member->program(question), {}, generator,
                                                   {.at_once = streams_, .limits = {}, .on_step = {}}, wanted));
    GeneratedAnswer answer;
    answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    answer.text = std::move(result.text);
    answer.prompt_tokens = result.usage.prompt_tokens;
    answer.generated_tokens = result.usage.generated_tokens;
    for (const StepReport& step : result.steps)
      answer.cost += cost_of(*std::ranges::find(models, step.model, &ProgramModel::name)->model, step.prompt_tokens,
                             step.cached_tokens, step.generated_tokens);
    out.push_back(std::move(answer));
  }
  return out;
}

Result<std::vector<GeneratedAnswer>> AnswerEngines::answer(size_t config, std::span<const AnswerRequest> requests,
                                                           const SuiteWanted& wanted) {
  const CompareConfig& of = configs_[config];
  if (!of.model) return answer_externally(config, requests, wanted);
  if (!engines_[config]) {
    const int64_t longest = of.program.empty() ? longest_ : compare_context(of);  // a program has prompts of its own
    MILLRACE_TRY(engines_[config], make_compare_engine(of, streams_, longest));
    MILLRACE_TRY(prompts_[config], AnswerPrompts::create(of));
  }
  if (!of.program.empty()) return answer_by_program(config, requests, wanted);
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<AnswerPrompts::Prompt> prompts;
  const auto began = std::chrono::steady_clock::now();
  for (const AnswerRequest& from : requests) {
    if (!wanted()) return Error::cancelled("interrupted");
    MILLRACE_TRY(AnswerPrompts::Prompt prompt, prompts_[config]->prompt(from));
    Request request;
    request.prompt = prompt.shown.tokens;
    request.documents = prompt.shown.documents;
    request.sampling = of.sampling;
    request.max_tokens = from.max_tokens;
    request.stop = from.stop;
    prompts.push_back(std::move(prompt));
    MILLRACE_TRY(auto stream, engines_[config]->submit(std::move(request)));
    streams.push_back(std::move(stream));
  }
  std::vector<GeneratedAnswer> out;
  for (size_t i = 0; i < streams.size(); ++i) {
    MILLRACE_TRY(GeneratedAnswer answer, whole_answer(*streams[i], wanted));
    answer.text = prompts_[config]->recovered(prompts[i], answer.tokens, std::move(answer.text));
    answer.prompt_tokens = std::ssize(prompts[i].shown.tokens);
    answer.compression_seconds = prompts[i].seconds;
    answer.generated_tokens = answer.timings.generated_tokens;
    answer.cost =
        cost_of(*of.model, answer.timings.prompt_tokens, answer.timings.cached_tokens, answer.generated_tokens);
    answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    out.push_back(std::move(answer));
    streams[i].reset();
  }
  return out;
}

}  // namespace millrace
