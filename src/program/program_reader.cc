#include "program/program_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ordered_json.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxSeed = int64_t{1} << 53;  // of the numbers that JavaScript represents
constexpr size_t kMaxItems = 4096;              // of one list
constexpr const char* kRoles[] = {"system", "user", "assistant"};

// The keys of one object. Each is read once; done() refuses the others.
class Keys {
 public:
  static Result<Keys> of(const Json& json, std::string where) {
    if (!json.is_object()) return Error::user(where + ": must be an object");
    return Keys(json, std::move(where));
  }

  bool has(const std::string& key) const { return json_->contains(key); }
  const std::string& place() const { return where_; }
  std::string at(const std::string& key) const { return where_.empty() ? key : where_ + "." + key; }
  Error wrong(const std::string& key, const std::string& what) const { return Error::user(at(key) + ": " + what); }

  const Json* find(const std::string& key) {
    known_.push_back(key);
    const auto found = json_->find(key);
    return found == json_->end() ? nullptr : &*found;
  }
  Result<std::string> text(const std::string& key, std::string preset = "") {
    const Json* value = find(key);
    if (!value) return preset;
    if (!value->is_string()) return wrong(key, "must be a string");
    return value->get<std::string>();
  }
  Result<bool> boolean(const std::string& key, bool preset) {
    const Json* value = find(key);
    if (!value) return preset;
    if (!value->is_boolean()) return wrong(key, "must be true or false");
    return value->get<bool>();
  }
  Result<std::optional<double>> number(const std::string& key, double min, double max) {
    const Json* value = find(key);
    if (!value) return std::optional<double>();
    const bool fits = value->is_number() && value->get<double>() >= min && value->get<double>() <= max;
    if (!fits) return wrong(key, fmt::format("must be a number from {} to {}", min, max));
    return std::optional(value->get<double>());
  }
  Result<std::optional<int64_t>> integer(const std::string& key, int64_t min, int64_t max) {
    MILLRACE_TRY(const auto value, number(key, static_cast<double>(min), static_cast<double>(max)));
    if (!value) return std::optional<int64_t>();
    if (*value != std::floor(*value)) return wrong(key, fmt::format("must be a whole number from {} to {}", min, max));
    return std::optional(static_cast<int64_t>(*value));
  }
  // A list of strings; one string is a list of one.
  Result<std::vector<std::string>> texts(const std::string& key) {
    const Json* value = find(key);
    if (!value) return std::vector<std::string>();
    if (value->is_string()) return std::vector{value->get<std::string>()};
    MILLRACE_TRY(const Json* list, items(key, value));
    std::vector<std::string> out;
    for (const Json& one : *list) {
      if (!one.is_string()) return wrong(key, "must be a string or a list of strings");
      out.push_back(one.get<std::string>());
    }
    return out;
  }
  Result<const Json*> items(const std::string& key, const Json* value) const {
    if (!value || !value->is_array()) return wrong(key, "must be a list");
    if (value->size() > kMaxItems) return wrong(key, fmt::format("has more than {} items", kMaxItems));
    return value;
  }
  Result<void> done() const {
    for (const auto& [key, value] : json_->items())
      if (std::ranges::find(known_, key) == known_.end())
        return wrong(key.substr(0, 80), "is not a key of this object; see docs/programs.md");
    return {};
  }

 private:
  Keys(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {}

  const Json* json_;
  std::string where_;
  std::vector<std::string> known_;
};

class ProgramReader {
 public:
  explicit ProgramReader(const ProgramLimits& limits) : limits_(limits) {}

  Result<ProgramSteps> steps(const Json* list, const std::string& where, int64_t deep) {
    if (!list || !list->is_array()) return Error::user(where + ": must be a list of steps");
    if (std::ssize(*list) > limits_.steps)
      return Error::user(fmt::format("{}: has more than {} steps", where, limits_.steps));
    if (deep > kMaxDepth)
      return Error::user(fmt::format("{}: more than {} lists inside of each other", where, kMaxDepth));
    ProgramSteps out;
    for (size_t i = 0; i < list->size(); ++i) {
      MILLRACE_TRY(Keys keys, Keys::of((*list)[i], fmt::format("{}[{}]", where, i)));
      MILLRACE_TRY(ProgramStep step, one(keys, deep));
      MILLRACE_TRY_VOID(keys.done());
      out.push_back(std::move(step));
    }
    return out;
  }

 private:
  static constexpr int64_t kMaxDepth = 16;  // forks and ifs

  using Read = Result<ProgramStep> (ProgramReader::*)(Keys&, int64_t deep);

  Result<ProgramStep> one(Keys& keys, int64_t deep);
  Result<ProgramStep> text(Keys& keys, int64_t);
  Result<ProgramStep> user(Keys& keys, int64_t);
  Result<ProgramStep> system(Keys& keys, int64_t);
  Result<ProgramStep> set(Keys& keys, int64_t);
  Result<ProgramStep> gen(Keys& keys, int64_t);
  Result<ProgramStep> select(Keys& keys, int64_t);
  Result<ProgramStep> fork(Keys& keys, int64_t deep);
  Result<ProgramStep> join(Keys& keys, int64_t);
  Result<ProgramStep> vote(Keys& keys, int64_t);
  Result<ProgramStep> best(Keys& keys, int64_t);
  Result<ProgramStep> condition(Keys& keys, int64_t deep);

  const ProgramLimits limits_;
};

Result<ProgramStep> ProgramReader::one(Keys& keys, int64_t deep) {
  // A join has a key "text", too, so the kinds that have others' keys come first.
  static constexpr std::pair<const char*, Read> kReaders[] = {
      {"gen", &ProgramReader::gen},      {"select", &ProgramReader::select}, {"join", &ProgramReader::join},
      {"vote", &ProgramReader::vote},    {"best", &ProgramReader::best},     {"fork", &ProgramReader::fork},
      {"if", &ProgramReader::condition}, {"set", &ProgramReader::set},       {"text", &ProgramReader::text},
      {"user", &ProgramReader::user},    {"system", &ProgramReader::system}};
  for (const auto& [key, read] : kReaders)
    if (keys.has(key)) return (this->*read)(keys, deep);
  return Error::user(keys.place() +
                     ": has none of the keys text, user, system, set, gen, select, fork, join, vote, best, if");
}

Result<ProgramStep> ProgramReader::text(Keys& keys, int64_t) {
  MILLRACE_TRY(std::string text, keys.text("text"));
  return ProgramStep{TextStep{std::move(text)}};
}

Result<ProgramStep> ProgramReader::user(Keys& keys, int64_t) {
  MILLRACE_TRY(std::string text, keys.text("user"));
  return ProgramStep{MessageStep{{"user", std::move(text)}}};
}

Result<ProgramStep> ProgramReader::system(Keys& keys, int64_t) {
  MILLRACE_TRY(std::string text, keys.text("system"));
  return ProgramStep{MessageStep{{"system", std::move(text)}}};
}

Result<ProgramStep> ProgramReader::set(Keys& keys, int64_t) {
  SetStep step;
  MILLRACE_TRY(step.name, keys.text("set"));
  MILLRACE_TRY(step.text, keys.text("value"));
  return ProgramStep{std::move(step)};
}

// The constraint that one of four keys names.
Result<Constraint> read_constraint(Keys& keys) {
  Constraint out;
  std::vector<std::string> given;
  for (const char* key : {"regex", "json_schema", "json", "choices"})
    if (keys.has(key)) given.emplace_back(key);
  if (given.size() > 1) return keys.wrong(given[1], "cannot be combined with " + given[0]);
  if (given.empty()) return out;
  if (given[0] == "regex") {
    out.kind = Constraint::Kind::regex;
    MILLRACE_TRY(out.text, keys.text("regex"));
  } else if (given[0] == "json_schema") {
    const Json* schema = keys.find("json_schema");
    if (!schema->is_object() && !schema->is_boolean()) return keys.wrong("json_schema", "must be a JSON Schema");
    out.kind = Constraint::Kind::json_schema;
    out.text = schema->dump(-1, ' ', false, Json::error_handler_t::replace);
  } else if (given[0] == "json") {
    MILLRACE_TRY(const bool wanted, keys.boolean("json", false));
    if (wanted) out.kind = Constraint::Kind::json_object;
  } else {
    out.kind = Constraint::Kind::choice;
    MILLRACE_TRY(out.choices, keys.texts("choices"));
    if (out.choices.empty()) return keys.wrong("choices", "needs at least one");
  }
  return out;
}

Result<ProgramStep> ProgramReader::gen(Keys& keys, int64_t) {
  GenStep step;
  GenSettings& settings = step.settings;
  MILLRACE_TRY(step.name, keys.text("gen"));
  MILLRACE_TRY(const auto max_tokens, keys.integer("max_tokens", 1, limits_.tokens));
  settings.max_tokens = max_tokens.value_or(settings.max_tokens);
  MILLRACE_TRY(settings.stop, keys.texts("stop"));
  MILLRACE_TRY(settings.temperature, keys.number("temperature", 0, 100));
  MILLRACE_TRY(settings.top_p, keys.number("top_p", 0, 1));
  MILLRACE_TRY(settings.min_p, keys.number("min_p", 0, 1));
  MILLRACE_TRY(settings.top_k, keys.integer("top_k", 0, 1 << 20));
  MILLRACE_TRY(const auto seed, keys.integer("seed", 0, kMaxSeed));
  if (seed) settings.seed = static_cast<uint64_t>(*seed);
  MILLRACE_TRY(settings.constraint, read_constraint(keys));
  MILLRACE_TRY(settings.model, keys.text("model"));
  MILLRACE_TRY(step.score, keys.boolean("score", false));
  MILLRACE_TRY(step.append, keys.boolean("append", true));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::select(Keys& keys, int64_t) {
  SelectStep step;
  MILLRACE_TRY(step.name, keys.text("select"));
  MILLRACE_TRY(step.choices, keys.texts("choices"));
  MILLRACE_TRY(step.model, keys.text("model"));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::fork(Keys& keys, int64_t deep) {
  ForkStep step;
  MILLRACE_TRY(step.name, keys.text("fork"));
  const int ways =
      static_cast<int>(keys.has("branches")) + static_cast<int>(keys.has("count")) + static_cast<int>(keys.has("each"));
  if (ways != 1) return keys.wrong("fork", "needs exactly one of branches, count and each");
  if (keys.has("branches")) {
    MILLRACE_TRY(const Json* list, keys.items("branches", keys.find("branches")));
    for (size_t i = 0; i < list->size(); ++i) {
      MILLRACE_TRY(ProgramSteps branch, steps(&(*list)[i], fmt::format("{}[{}]", keys.at("branches"), i), deep + 1));
      step.branches.push_back(std::move(branch));
    }
    return ProgramStep{std::move(step)};
  }
  MILLRACE_TRY(const auto count, keys.integer("count", 1, limits_.branches));
  step.count = count.value_or(0);
  if (keys.has("each")) {
    MILLRACE_TRY(step.each, keys.text("each"));
    MILLRACE_TRY(step.as, keys.text("as", "line"));
    MILLRACE_TRY(step.numbered, keys.boolean("numbered", false));
    MILLRACE_TRY(const auto most, keys.integer("most", 1, limits_.branches));
    step.most = most.value_or(step.most);
    if (step.each.empty()) return keys.wrong("each", "must be the name of a variable");
  }
  MILLRACE_TRY(ProgramSteps branch, steps(keys.find("steps"), keys.at("steps"), deep + 1));
  step.branches.push_back(std::move(branch));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::join(Keys& keys, int64_t) {
  JoinStep step;
  MILLRACE_TRY(step.fork, keys.text("join"));
  MILLRACE_TRY(step.text, keys.text("text"));
  MILLRACE_TRY(step.separator, keys.text("separator", "\n"));
  MILLRACE_TRY(step.append, keys.boolean("append", true));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::vote(Keys& keys, int64_t) {
  VoteStep step;
  MILLRACE_TRY(step.name, keys.text("vote"));
  MILLRACE_TRY(step.fork, keys.text("fork"));
  MILLRACE_TRY(step.of, keys.text("of"));
  MILLRACE_TRY(step.after, keys.text("after"));
  MILLRACE_TRY(step.whole, keys.boolean("whole", false));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::best(Keys& keys, int64_t) {
  BestStep step;
  MILLRACE_TRY(step.name, keys.text("best"));
  MILLRACE_TRY(step.fork, keys.text("fork"));
  MILLRACE_TRY(step.of, keys.text("of"));
  return ProgramStep{std::move(step)};
}

Result<ProgramStep> ProgramReader::condition(Keys& keys, int64_t deep) {
  IfStep step;
  MILLRACE_TRY(step.of, keys.text("if"));
  MILLRACE_TRY(const auto below, keys.number("below", 0, 1e9));
  if (keys.has("is") == below.has_value()) return keys.wrong("if", "needs exactly one of below and is");
  step.below = below.value_or(0);
  if (keys.has("is")) {
    MILLRACE_TRY(step.is, keys.text("is"));
  }
  MILLRACE_TRY(step.steps, steps(keys.find("steps"), keys.at("steps"), deep + 1));
  return ProgramStep{std::move(step)};
}

Result<std::vector<ProgramMessage>> read_messages(Keys& keys) {
  std::vector<ProgramMessage> out;
  const Json* value = keys.find("messages");
  if (!value) return out;
  MILLRACE_TRY(const Json* list, keys.items("messages", value));
  for (size_t i = 0; i < list->size(); ++i) {
    MILLRACE_TRY(Keys message, Keys::of((*list)[i], fmt::format("messages[{}]", i)));
    ProgramMessage one;
    MILLRACE_TRY(one.role, message.text("role"));
    MILLRACE_TRY(one.content, message.text("content"));
    MILLRACE_TRY_VOID(message.done());
    if (std::ranges::find(kRoles, one.role) == std::end(kRoles))
      return message.wrong("role", "must be system, user or assistant");
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

Result<Program> read_program(const Json& json, const ProgramLimits& limits) {
  MILLRACE_TRY(Keys keys, Keys::of(json, ""));
  Program program;
  if (const Json* variables = keys.find("variables")) {
    MILLRACE_TRY(Keys names, Keys::of(*variables, "variables"));
    if (variables->size() > kMaxItems) return keys.wrong("variables", fmt::format("has more than {} keys", kMaxItems));
    for (const auto& [name, value] : variables->items()) {
      MILLRACE_TRY(program.variables[name], names.text(name));
    }
  }
  MILLRACE_TRY(program.messages, read_messages(keys));
  MILLRACE_TRY(program.output, keys.text("output"));
  MILLRACE_TRY(const auto seed, keys.integer("seed", 0, kMaxSeed));
  program.seed = static_cast<uint64_t>(seed.value_or(0));
  MILLRACE_TRY(program.steps, ProgramReader(limits).steps(keys.find("steps"), "steps", 0));
  MILLRACE_TRY_VOID(keys.done());
  return program;
}

}  // namespace millrace
