#include "replay_recording.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/start_thread.h"
#include "command.h"
#include "interrupt.h"
#include "progress.h"
#include "run/language_model.h"
#include "running.h"
#include "sampling/schema.h"
#include "server/http/http_post.h"
#include "server/telemetry/recording.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kAnswerLimit = std::chrono::milliseconds(600 * 1000);
constexpr size_t kMaxReplyBytes = size_t{64} << 20;
constexpr int64_t kMaxShown = 20;

// One answer of the replay.
struct ReplayedAnswer {
  std::string error;  // "": success
  std::vector<TokenId> tokens;
};

struct Difference {
  std::string id;
  size_t answer;
  std::string what;
};

struct Outcome {
  int64_t requests = 0, same = 0, different = 0, failed = 0, not_compared = 0, tokens = 0;
  std::vector<Difference> differences;
};

// Whether an answer was interrupted: it is compared only up to that point.
bool interrupted_early(const RecordedAnswer& answer) {
  return answer.finish == FinishReason::cancelled || answer.finish == FinishReason::time_limit ||
         answer.finish == FinishReason::error;
}

Request request_again(const RecordedRequest& recorded, int64_t vocab) {
  Request request = recorded.request;
  bool broken = false;
  int64_t longest = 0;
  for (const RecordedAnswer& answer : recorded.answers) {
    broken = broken || interrupted_early(answer);
    longest = std::max(longest, answer.tokens);
  }
  if (broken) request.max_tokens = longest;
  if (!request.prompt.empty()) return request;
  // Only the length is known. Equal hashes give equal prompts, so that shared prefixes remain shared.
  uint64_t state = std::strtoull(recorded.prompt_hash.substr(0, 16).c_str(), nullptr, 16) | 1;
  for (int64_t i = 0; i < recorded.prompt_tokens; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    request.prompt.push_back(static_cast<TokenId>((state >> 33) % static_cast<uint64_t>(std::max<int64_t>(1, vocab))));
  }
  request.max_tokens = std::max<int64_t>(1, longest);
  request.ignore_eos = true;
  request.stop.clear();
  request.constraint = {};
  return request;
}

std::vector<ReplayedAnswer> ask_engine(Engine& engine, Request request) {
  std::vector<ReplayedAnswer> out(static_cast<size_t>(request.n));
  auto stream = engine.submit(std::move(request));
  if (!stream.ok()) {
    for (ReplayedAnswer& one : out) one.error = stream.error().message;
    return out;
  }
  while (const auto event = (*stream)->next()) {
    ReplayedAnswer& one = out[static_cast<size_t>(event->answer)];
    if (counts_as_answer(*event)) one.tokens.push_back(event->token);
    if (event->finish == FinishReason::error) one.error = event->error.message;
    if (event->finish == FinishReason::cancelled) one.error = "cancelled";
  }
  return out;
}

// The part of a request that the API cannot express; "": none.
const char* unsupported_part(const Request& request) {
  if (request.best_of > request.n || request.beams > 1) return "best_of and beam search";
  if (!request.sampling.banned_tokens.empty()) return "banned tokens";
  if (!request.stop_tokens.empty() || !request.bad_words.empty()) return "stop tokens and bad words";
  if (request.thinking.tokens >= 0) return "a thinking budget";
  if (!request.adapters.empty()) return "adapters";
  switch (request.constraint.kind) {
    case Constraint::Kind::none:
    case Constraint::Kind::json_schema:
    case Constraint::Kind::grammar: break;
    case Constraint::Kind::json_object:
    case Constraint::Kind::regex:
    case Constraint::Kind::choice:
    case Constraint::Kind::structure: return "this kind of structured output";
  }
  return request.constraint.trigger.empty() ? "" : "structured output with a trigger";
}

// Uses llama-server's /completion, which accepts and returns token ids. Answer i of a request has the seed + i.
ReplayedAnswer ask_server(const PostTarget& target, const std::string& model, const Request& request, int64_t answer) {
  if (const std::string what = unsupported_part(request); !what.empty())
    return {what + ": not supported by this API", {}};
  Json body = {{"prompt", request.prompt},
               {"n_predict", request.max_tokens},
               {"stream", false},
               {"return_tokens", true},
               {"ignore_eos", request.ignore_eos},
               {"min_tokens", request.min_tokens},
               {"cache_prompt", request.cache_prompt},
               {"seed", request.sampling.seed + static_cast<uint64_t>(answer)}};
  if (!model.empty()) body["model"] = model;
  if (!request.stop.empty()) body["stop"] = request.stop;
  for (const OptionSpec& spec : sampling_schema()) {
    if (spec.type == OptionSpec::Type::text || spec.name == "seed" || spec.name == "logprobs") continue;
    body[spec.name] = parse_json(sampling_option_text(request.sampling, spec.name));
  }
  for (const auto& [name, alias] : {std::pair{"repetition_penalty", "repeat_penalty"},
                                    {"penalty_window", "repeat_last_n"},
                                    {"dry_window", "dry_penalty_last_n"},
                                    {"dynamic_temperature_range", "dynatemp_range"},
                                    {"dynamic_temperature_exponent", "dynatemp_exponent"}})
    body[alias] = body[name];
  if (!request.sampling.logit_bias.empty()) {
    body["logit_bias"] = Json::object();
    for (const auto& [token, bias] : request.sampling.logit_bias)
      body["logit_bias"][std::to_string(token)] = std::max(bias, -1e6);
  }
  if (!request.sampling.allowed_tokens.empty()) body["allowed_token_ids"] = request.sampling.allowed_tokens;
  if (request.constraint.kind == Constraint::Kind::json_schema)
    body["json_schema"] = parse_json(request.constraint.text);
  if (request.constraint.kind == Constraint::Kind::grammar) body["grammar"] = request.constraint.text;
  HttpHeaders headers;
  if (const std::string key = api_key_of_environment(); !key.empty())
    headers.emplace_back("Authorization", "Bearer " + key);
  const auto reply = http_post(target, headers, body.dump(-1, ' ', false, Json::error_handler_t::replace), kAnswerLimit,
                               kMaxReplyBytes);
  if (!reply.ok()) return {reply.error().message, {}};
  const Json json = parse_json(reply->body);
  if (reply->status != 200) return {fmt::format("HTTP {}: {}", reply->status, reply->body.substr(0, 200)), {}};
  if (!json.is_object() || !json.contains("tokens") || !json["tokens"].is_array())
    return {"the server's answer has no tokens", {}};
  ReplayedAnswer out;
  for (const Json& token : json["tokens"])
    if (token.is_number_integer()) out.tokens.push_back(token.get<TokenId>());
  return out;
}

// Describes the first difference; "": identical.
std::string compare(const RecordedAnswer& recorded, std::vector<TokenId> now) {
  const auto count = static_cast<size_t>(recorded.tokens);
  if (interrupted_early(recorded) && now.size() > count) now.resize(count);
  if (now.size() == count && token_digest(now) == recorded.digest) return "";
  if (recorded.ids.empty())
    return fmt::format("{} tokens instead of {}, or different tokens", now.size(), recorded.tokens);
  size_t at = 0;
  while (at < now.size() && at < recorded.ids.size() && now[at] == recorded.ids[at]) ++at;
  const auto name = [&](const std::vector<TokenId>& tokens) {
    return at < tokens.size() ? std::to_string(tokens[at]) : std::string("nothing");
  };
  return fmt::format("differs from token {} on: recorded {}, now {}", at, name(recorded.ids), name(now));
}

class RecordingReplay {
 public:
  RecordingReplay(const ReplayRecordingFlags& flags, const Recording& recording)
      : flags_(flags), recording_(recording) {}

  // `params` returns all answers of a request; called from several threads. Errors: resource (the system starts none).
  Result<Outcome> run(const std::function<std::vector<ReplayedAnswer>(const RecordedRequest&)>& params) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    const auto count = std::min<size_t>(static_cast<size_t>(flags_.in_flight), recording_.requests.size());
    running_ = count;
    const auto work = [&] {
      for (size_t next; (next = next_++) < recording_.requests.size() && !interrupted();) {
        const RecordedRequest& request = recording_.requests[next];
        if (flags_.speed > 0)
          std::this_thread::sleep_until(start +
                                        std::chrono::duration_cast<std::chrono::nanoseconds>(
                                            std::chrono::duration<double>(request.arrival_seconds / flags_.speed)));
        take(request, params(request));
      }
      std::lock_guard lock(mutex_);
      --running_;
      ended_.notify_all();
    };
    for (size_t i = 0; i < count; ++i) {
      auto started = start_thread("replay", work);
      if (started.ok()) {
        threads.push_back(std::move(*started));
        continue;
      }
      if (threads.empty()) return started.error();
      std::lock_guard lock(mutex_);
      running_ -= count - i;  // the others send its requests
      break;
    }
    {
      ProgressBar bar("replaying");
      std::unique_lock lock(mutex_);
      while (running_ > 0) {
        ended_.wait_for(lock, std::chrono::milliseconds(100));
        bar.update(static_cast<double>(outcome_.requests) / static_cast<double>(recording_.requests.size()),
                   fmt::format("{} done", outcome_.requests));
      }
    }
    for (std::thread& thread : threads) thread.join();
    return std::move(outcome_);
  }

 private:
  void take(const RecordedRequest& request, const std::vector<ReplayedAnswer>& answers) {
    std::lock_guard lock(mutex_);
    ++outcome_.requests;
    for (size_t i = 0; i < request.answers.size(); ++i) {
      const ReplayedAnswer again =
          i < answers.size() ? answers[i] : ReplayedAnswer{"the recording has more answers than the request", {}};
      outcome_.tokens += static_cast<int64_t>(again.tokens.size());
      std::string what = again.error.empty() ? "" : again.error;
      if (!what.empty())
        ++outcome_.failed;
      else if (!recording_.head.prompts)
        ++outcome_.not_compared;
      else if ((what = compare(request.answers[i], again.tokens)).empty())
        ++outcome_.same;
      else
        ++outcome_.different;
      if (!what.empty()) outcome_.differences.push_back({request.id, i, std::move(what)});
    }
  }

  const ReplayRecordingFlags& flags_;
  const Recording& recording_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;  // guards the members below
  std::condition_variable ended_;
  size_t running_ = 0;  // threads
  Outcome outcome_;
};

void print(const ReplayRecordingFlags& flags, const Outcome& o) {
  if (flags.json) {
    Json out = {{"recording", flags.path},  {"requests", o.requests}, {"same", o.same},
                {"different", o.different}, {"failed", o.failed},     {"not_compared", o.not_compared},
                {"tokens", o.tokens}};
    out["differences"] = Json::array();
    for (const Difference& one : o.differences)
      out["differences"].push_back({{"id", one.id}, {"answer", one.answer}, {"what", one.what}});
    fmt::print("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace));
    return;
  }
  int64_t shown = 0;
  for (const Difference& one : o.differences) {
    if (++shown > kMaxShown) break;
    fmt::print("{} answer {}: {}\n", Json(one.id).dump(-1, ' ', true, Json::error_handler_t::replace), one.answer,
               one.what);
  }
  if (shown > kMaxShown) fmt::print("... and {} more\n", static_cast<int64_t>(o.differences.size()) - kMaxShown);
  fmt::print("{} requests: {} answers identical, {} different, {} failed, {} not compared\n", o.requests, o.same,
             o.different, o.failed, o.not_compared);
}

}  // namespace

Result<int> replay_recording(const ReplayRecordingFlags& flags, const ModelFlags& model_flags,
                             const EngineOptions& options) {
  MILLRACE_TRY(const Recording recording, read_recording(flags.path, !flags.partial));
  if (!recording.head.prompts)
    fmt::print(stderr,
               "millrace: {} contains no prompts: replaying with synthetic prompts of the same lengths; answers "
               "cannot be compared\n",
               flags.path);
  catch_interrupts();
  RecordingReplay replay(flags, recording);
  Outcome outcome;
  if (!flags.url.empty()) {
    MILLRACE_TRY(PostTarget target, PostTarget::parse("url", flags.url, ""));
    while (target.path.ends_with('/')) target.path.pop_back();
    target.path += "/completion";
    constexpr int64_t kSomeVocabulary = 256;
    const auto ask = [&](const RecordedRequest& recorded) {
      const Request request = request_again(recorded, kSomeVocabulary);
      std::vector<ReplayedAnswer> out;
      for (size_t i = 0; i < recorded.answers.size(); ++i)
        out.push_back(ask_server(target, flags.served_model, request, static_cast<int64_t>(i)));
      return out;
    };
    MILLRACE_TRY(outcome, replay.run(ask));
  } else {
    MILLRACE_TRY(const auto model, model_flags.load());
    const std::string isa(isa_name(model->parts().kernels.isa));
    if (recording.head.instruction_set != isa || recording.head.kv_format != options.kv_format)
      fmt::print(stderr, "millrace: recorded with {} and KV format {}, replayed with {} and {}: answers may differ\n",
                 recording.head.instruction_set, recording.head.kv_format, isa, options.kv_format);
    MILLRACE_TRY(auto engine, Engine::create(model, options));
    MILLRACE_TRY(outcome, replay.run([&](const RecordedRequest& recorded) {
      return ask_engine(*engine, request_again(recorded, model->info().vocab));
    }));
  }
  print(flags, outcome);
  if (interrupted()) return 130;
  if (outcome.failed > 0) return exit_code(ErrorKind::internal);
  return outcome.different > 0 ? kAnswersDiffer : 0;
}

}  // namespace millrace
