#include "server/telemetry/recording.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/enum_table.h"
#include "base/storage_error.h"
#include "sampling/schema.h"
#include "server/json.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little, "digests are over little-endian ids");

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxTokens = int64_t{1} << 31;
constexpr size_t kMaxRecordBytes = size_t{256} << 20;
constexpr size_t kMaxAnswers = 4096;
constexpr double kMaxSeconds = 1e9;

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

// The names are frozen.
constexpr EnumNames<Constraint::Kind> kConstraints("none", "json_object", "json_schema", "regex", "grammar", "choice",
                                                   "structure");
constexpr EnumNames<EarlyStopping> kEarly("no", "yes", "never");
constexpr EnumNames<FinishReason> kFinishes("", "stop", "length", "cancelled", "time_limit", "error");

// Fails to compile when Request gets a field: record it below if the answer depends on it, then add its name here.
[[maybe_unused]] void check_all_fields_are_considered(const Request& request) {
  // Requests with rows instead of tokens (embeddings) are not recorded, nor those of scores and embeddings.
  [[maybe_unused]] const auto& [prompt, not_embeddings, not_reader, sampling, max_tokens, min_tokens, ignore_eos, stop,
                                include_stop, stop_tokens, bad_words, skip_special, show_markers, constraint, thinking,
                                adapters, cache_prompt, evictor, exit, documents, document_context, not_keep_seconds,
                                not_prefix_group, n, best_of, beams, length_penalty, early_stopping, not_tenant,
                                priority, not_deadline_seconds, not_time_limit_seconds, not_predicted_tokens,
                                not_known_tokens, prediction] = request;
}

Json constraint_json(const Constraint& c) {
  return {{"kind", kConstraints[c.kind]}, {"text", c.text}, {"choices", c.choices}, {"trigger", c.trigger}};
}

// All fields that the answer depends on and that differ from a default Request.
Json request_json(const Request& r) {
  const Request plain;
  Json out = Json::object();
  Json sampling = Json::object();
  for (const OptionSpec& spec : sampling_schema()) {
    std::string text = sampling_option_text(r.sampling, spec.name);
    if (spec.name == "seed" || text != sampling_option_text(plain.sampling, spec.name))
      sampling[spec.name] = std::move(text);
  }
  out["sampling"] = std::move(sampling);
  out["max_tokens"] = r.max_tokens;
  if (r.min_tokens != 0) out["min_tokens"] = r.min_tokens;
  if (r.ignore_eos) out["ignore_eos"] = true;
  if (!r.stop.empty()) out["stop"] = r.stop;
  if (r.include_stop) out["include_stop"] = true;
  if (!r.stop_tokens.empty()) out["stop_tokens"] = r.stop_tokens;
  if (!r.bad_words.empty()) out["bad_words"] = r.bad_words;
  if (!r.prediction.empty()) out["prediction"] = r.prediction;  // recorded plans have its drafts
  if (!r.skip_special) out["skip_special"] = false;
  if (r.show_markers) out["show_markers"] = true;
  if (r.constraint.kind != Constraint::Kind::none) out["constraint"] = constraint_json(r.constraint);
  if (r.thinking.tokens >= 0 || (!r.thinking.close.empty() && !r.stop.empty())) {
    out["thinking"] = {
        {"open", r.thinking.open}, {"close", r.thinking.close}, {"begun", r.thinking.begun}, {"call", r.thinking.call}};
    if (r.thinking.tokens >= 0) out["thinking"]["tokens"] = r.thinking.tokens;
  }
  for (const AdapterUse& one : r.adapters) out["adapters"].push_back({{"name", one.name}, {"scale", one.scale}});
  if (!r.cache_prompt) out["cache_prompt"] = false;
  if (!r.evictor.empty()) out["evictor"] = r.evictor;
  if (!r.exit.empty()) out["exit"] = r.exit;
  for (const PromptDocument& one : r.documents) out["documents"].push_back({{"begin", one.begin}, {"end", one.end}});
  if (!r.document_context.empty()) out["document_context"] = r.document_context;
  if (r.n != 1) out["n"] = r.n;
  if (r.best_of != 0) out["best_of"] = r.best_of;
  if (r.beams != 1) {
    out["beams"] = r.beams;
    out["length_penalty"] = r.length_penalty;
    out["early_stopping"] = kEarly[r.early_stopping];
  }
  if (r.priority != 0) out["priority"] = r.priority;
  return out;
}

// Reads the fields of one line and remembers the first error.
class LineReader {
 public:
  explicit LineReader(const Json& line) : line_(line) {}

  const std::string& wrong() const { return wrong_; }
  void fail(const char* name, std::string what) {
    std::ranges::replace_if(
        what, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');  // it may quote the file
    if (wrong_.empty()) wrong_ = fmt::format("{}: {}", name, what.substr(0, 300));
  }
  const Json* find(const char* name) const {
    const auto found = line_.find(name);
    return found == line_.end() ? nullptr : &*found;
  }
  bool boolean(const char* name, bool absent) {
    const Json* value = find(name);
    if (!value) return absent;
    if (!value->is_boolean()) fail(name, "must be true or false");
    return value->is_boolean() && value->get<bool>();
  }
  int64_t integer(const char* name, int64_t least, int64_t most, int64_t absent) {
    const Json* value = find(name);
    if (!value) return absent;
    const bool fits = value->is_number_integer() &&
                      (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
    const int64_t number = fits ? value->get<int64_t>() : least - 1;
    if (number >= least && number <= most) return number;
    fail(name, "must be an integer within its bounds");
    return absent;
  }
  double number(const char* name, double least, double most, double absent) {
    const Json* value = find(name);
    if (!value) return absent;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (number >= least && number <= most) return number;
    fail(name, "must be a number within its bounds");
    return absent;
  }
  std::string text(const char* name) {
    const Json* value = find(name);
    if (!value) return "";
    if (!value->is_string()) fail(name, "must be a string");
    return value->is_string() ? value->get<std::string>() : "";
  }
  std::vector<std::string> texts(const char* name) {
    std::vector<std::string> out;
    for (const Json& one : list(name, "strings")) {
      if (one.is_string())
        out.push_back(one.get<std::string>());
      else
        fail(name, "must be a list of strings");
    }
    return out;
  }
  // The value of `name` as a list; empty if it is absent or not a list.
  const Json::array_t& list(const char* name, const char* of) {
    const Json* value = find(name);
    if (value && !value->is_array()) fail(name, fmt::format("must be a list of {}", of));
    return value && value->is_array() ? value->get_ref<const Json::array_t&>() : none_;
  }
  std::vector<TokenId> tokens(const char* name) { return tokens(name, list(name, "token ids")); }
  std::vector<std::vector<TokenId>> token_lists(const char* name) {
    std::vector<std::vector<TokenId>> out;
    for (const Json& one : list(name, "lists of token ids")) {
      if (!one.is_array())
        fail(name, "must be a list of lists of token ids");
      else
        out.push_back(tokens(name, one.get_ref<const Json::array_t&>()));
    }
    return out;
  }
  template <typename Enum>
  Enum choice(const char* name, const EnumNames<Enum>& names, Enum absent) {
    if (!find(name)) return absent;
    if (const auto found = names.find(text(name))) return *found;
    fail(name, "has an unknown value");
    return absent;
  }

 private:
  std::vector<TokenId> tokens(const char* name, const Json::array_t& list) {
    std::vector<TokenId> out;
    for (const Json& one : list) {
      const bool good = one.is_number_unsigned() && one.get<uint64_t>() < static_cast<uint64_t>(kMaxTokens);
      if (!good) fail(name, "must be a list of token ids");
      out.push_back(good ? static_cast<TokenId>(one.get<uint64_t>()) : 0);
    }
    return out;
  }

  const Json& line_;
  const Json::array_t none_;
  std::string wrong_;
};

RecordedAnswer read_answer(const Json& json, LineReader& line) {
  RecordedAnswer out;
  if (!json.is_object()) {
    line.fail("answers", "must be a list of objects");
    return out;
  }
  LineReader reader(json);
  out.tokens = reader.integer("tokens", 0, kMaxTokens, -1);
  out.digest = reader.text("digest");
  out.finish = reader.choice("finish", kFinishes, FinishReason::none);
  out.ids = reader.tokens("ids");
  const bool is_digest =
      out.digest.size() == 32 && out.digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!reader.wrong().empty() || out.tokens < 0 || !is_digest)
    line.fail("answers", "an answer lacks a valid token count or digest");
  else if (reader.find("ids") &&
           (static_cast<int64_t>(out.ids.size()) != out.tokens || token_digest(out.ids) != out.digest))
    line.fail("answers", "the tokens of an answer do not match its digest");
  return out;
}

void read_sampling(const Json& json, Request& request, LineReader& line) {
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) return line.fail("sampling", "values must be strings");
    if (auto set = set_sampling_option(request.sampling, name, value.get<std::string>()); !set.ok())
      return line.fail("sampling", set.error().message);
  }
}

// Reads the fields that are objects or lists of objects.
void read_parts(LineReader& line, Request& r) {
  const auto read = [&line](const char* name, const Json& json, const auto& take) {
    if (!json.is_object()) return line.fail(name, "must be an object");
    LineReader inner(json);
    take(inner);
    if (!inner.wrong().empty()) line.fail(name, inner.wrong());
  };
  if (const Json* constraint = line.find("constraint"))
    read("constraint", *constraint, [&](LineReader& inner) {
      r.constraint = {inner.choice("kind", kConstraints, Constraint::Kind::none), inner.text("text"),
                      inner.texts("choices"), inner.text("trigger")};
    });
  if (const Json* thinking = line.find("thinking"))
    read("thinking", *thinking, [&](LineReader& inner) {
      r.thinking = {inner.integer("tokens", 0, INT64_MAX, -1), inner.text("open"), inner.text("close"),
                    inner.boolean("begun", false), inner.text("call")};
    });
  for (const Json& document : line.list("documents", "objects"))
    read("documents", document, [&](LineReader& inner) {
      r.documents.push_back({inner.integer("begin", 0, kMaxTokens, 0), inner.integer("end", 0, kMaxTokens, 0)});
    });
  for (const Json& adapter : line.list("adapters", "objects"))
    read("adapters", adapter, [&](LineReader& inner) {
      r.adapters.push_back({inner.text("name"), inner.number("scale", -1e6, 1e6, 1)});
    });
}

Result<RecordedRequest> read_request(const Json& json, bool prompts, const std::string& where) {
  LineReader line(json);
  RecordedRequest out;
  Request& r = out.request;
  out.arrival_seconds = line.number("arrival", 0, kMaxSeconds, -1);
  if (out.arrival_seconds < 0) line.fail("arrival", "is missing");
  out.id = line.text("id");
  if (prompts) r.prompt = line.tokens("prompt");
  out.prompt_tokens = prompts ? static_cast<int64_t>(r.prompt.size()) : line.integer("prompt_tokens", 1, kMaxTokens, 0);
  out.prompt_hash = line.text("prompt_hash");
  if (out.prompt_tokens == 0) line.fail(prompts ? "prompt" : "prompt_tokens", "is missing");
  if (const Json* sampling = line.find("sampling"); sampling && sampling->is_object())
    read_sampling(*sampling, r, line);
  else
    line.fail("sampling", "is missing");
  r.max_tokens = line.integer("max_tokens", -1, kMaxTokens, r.max_tokens);
  r.min_tokens = line.integer("min_tokens", 0, kMaxTokens, 0);
  r.ignore_eos = line.boolean("ignore_eos", false);
  r.stop = line.texts("stop");
  r.include_stop = line.boolean("include_stop", false);
  r.stop_tokens = line.tokens("stop_tokens");
  r.bad_words = line.token_lists("bad_words");
  r.prediction = line.tokens("prediction");
  r.skip_special = line.boolean("skip_special", true);
  r.show_markers = line.boolean("show_markers", false);
  r.cache_prompt = line.boolean("cache_prompt", true);
  r.evictor = line.text("evictor");
  r.exit = line.text("exit");
  r.document_context = line.text("document_context");
  r.n = line.integer("n", 1, kMaxAnswers, 1);
  r.best_of = line.integer("best_of", 0, kMaxAnswers, 0);
  r.beams = line.integer("beams", 1, kMaxAnswers, 1);
  r.length_penalty = line.number("length_penalty", -1e6, 1e6, 1);
  r.early_stopping = line.choice("early_stopping", kEarly, EarlyStopping::no);
  r.priority = line.integer("priority", -1000000000, 1000000000, 0);
  read_parts(line, r);
  const Json* answers = line.find("answers");
  if (!answers || !answers->is_array() || answers->empty() || answers->size() > kMaxAnswers)
    line.fail("answers", "must be a non-empty list");
  else
    for (const Json& answer : *answers) out.answers.push_back(read_answer(answer, line));
  if (!line.wrong().empty()) return Error::corrupt(fmt::format("{}: {}", where, line.wrong()));
  return out;
}

Result<RecordingHead> read_head(const Json& json, const std::string& where) {
  if (!json.contains("millrace_recording"))
    return Error::corrupt(where + ": is not a recording of millrace serve --record");
  LineReader line(json);
  const int64_t version = line.integer("millrace_recording", 1, 1000000, 0);
  if (line.wrong().empty() && version != kVersion)
    return Error::unsupported(
        fmt::format("{}: the recording has version {}; only version {} is supported", where, version, kVersion));
  RecordingHead head{line.text("model"), line.text("instruction_set"), line.text("kv_format"),
                     line.boolean("prompts", false)};
  if (!line.wrong().empty()) return Error::corrupt(fmt::format("{}: {}", where, line.wrong()));
  return head;
}

}  // namespace

std::string token_digest(const std::vector<TokenId>& tokens) {
  static_assert(sizeof(TokenId) == 4);
  return hex(XXH3_128bits(tokens.data(), tokens.size() * sizeof(TokenId)));
}

std::string recording_head_line(const RecordingHead& head) {
  return to_text({{"millrace_recording", kVersion},
                  {"model", head.model},
                  {"instruction_set", head.instruction_set},
                  {"kv_format", head.kv_format},
                  {"prompts", head.prompts}});
}

std::string recording_line(const RecordedRequest& r, bool prompts, uint64_t salt) {
  Json line = {{"arrival", std::max(0.0, r.arrival_seconds)}, {"id", r.id}};
  if (prompts) {
    line["prompt"] = r.request.prompt;
  } else {
    line["prompt_tokens"] = r.request.prompt.size();
    line["prompt_hash"] =
        hex(XXH3_128bits_withSeed(r.request.prompt.data(), r.request.prompt.size() * sizeof(TokenId), salt));
  }
  Json fields = request_json(r.request);
  for (auto& [key, value] : fields.items()) line[key] = std::move(value);
  Json answers = Json::array();
  for (const RecordedAnswer& answer : r.answers) {
    Json one = {
        {"tokens", answer.ids.size()}, {"digest", token_digest(answer.ids)}, {"finish", kFinishes[answer.finish]}};
    if (prompts) one["ids"] = answer.ids;
    answers.push_back(std::move(one));
  }
  line["answers"] = std::move(answers);
  return to_text(line);
}

std::string recording_end_line(int64_t requests) { return to_text({{"end", requests}}); }

Result<std::unique_ptr<Recorder>> Recorder::create(const std::string& path, const RecordingHead& head) {
  auto recorder = std::unique_ptr<Recorder>(new Recorder());
  recorder->file_.open(path, std::ios::trunc);
  // The file may hold prompts: only its owner reads it.
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored))
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write, ignored);
  recorder->path_ = path;
  recorder->prompts_ = head.prompts;
  recorder->salt_ = (static_cast<uint64_t>(std::random_device{}()) << 32) ^ std::random_device{}();
  recorder->began_ = std::chrono::steady_clock::now();
  if (!recorder->append(recording_head_line(head)).ok())
    return Error::user(fmt::format("record: cannot write {}", path));
  return recorder;
}

Recorder::~Recorder() { (void)append(recording_end_line(written_)); }

// After an error, the file ends with its last whole line again.
Result<void> Recorder::append(const std::string& line) {
  errno = 0;
  file_ << line << '\n' << std::flush;
  if (file_) {
    bytes_ += static_cast<int64_t>(line.size()) + 1;
    return {};
  }
  const int why = errno;
  file_.close();  // drops what is buffered
  file_.clear();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path_, ignored))
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(bytes_), ignored);
  file_.open(path_, std::ios::app);
  return storage_error(fmt::format("record: cannot write: {}", why != 0 ? std::strerror(why) : "output error"));
}

Result<void> Recorder::write(RecordedRequest request, std::chrono::steady_clock::time_point arrival) {
  request.arrival_seconds = std::chrono::duration<double>(arrival - began_).count();
  const std::string text = recording_line(request, prompts_, salt_);
  std::lock_guard lock(mutex_);
  MILLRACE_TRY_VOID(append(text));
  ++written_;
  return {};
}

Result<Recording> parse_recording(std::string_view text, const std::string& name, bool whole) {
  Recording out;
  int64_t number = 0;
  bool ended = false;
  for (size_t at = 0; at < text.size();) {
    const std::string where = fmt::format("{}: line {}", name, ++number);
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (ended) return Error::corrupt(where + ": follows the end of the recording");
    if (line.size() > kMaxRecordBytes) return Error::corrupt(where + ": is too long");
    const Json json = parse_json(line);
    if (!json.is_object()) {
      if (end == text.size() && number > 1 && !whole) break;  // the line that was being written at the end
      return Error::corrupt(where + (end == text.size() ? ": is truncated" : ": is not a JSON object"));
    }
    if (number == 1) {
      MILLRACE_TRY(out.head, read_head(json, where));
    } else if (json.contains("end")) {
      LineReader reader(json);
      ended = true;
      if (reader.integer("end", 0, INT64_MAX, -1) != static_cast<int64_t>(out.requests.size()))
        return Error::corrupt(
            fmt::format("{}: does not match the {} requests before it; some are missing", where, out.requests.size()));
    } else {
      MILLRACE_TRY(auto request, read_request(json, out.head.prompts, where));
      out.requests.push_back(std::move(request));
    }
  }
  if (number == 0) return Error::corrupt(name + ": is empty");
  if (!ended && whole)
    return Error::corrupt(
        fmt::format("{}: ends after {} requests without its last line: the server was killed or the file truncated; "
                    "--partial uses the requests that it has",
                    name, out.requests.size()));
  std::ranges::stable_sort(out.requests, {}, &RecordedRequest::arrival_seconds);
  return out;
}

Result<Recording> read_recording(const std::string& path, bool whole) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error::corrupt(fmt::format("{}: cannot be read", path));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return Error::corrupt(fmt::format("{}: cannot be read", path));
  return parse_recording(text, path, whole);
}

}  // namespace millrace
