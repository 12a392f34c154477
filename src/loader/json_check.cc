#include "loader/json_check.h"

#include <fmt/format.h>

#include <unordered_set>
#include <vector>

#include "base/ordered_json.h"
#include "loader/file_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Receives the tokens of a parse and stores only the keys of the open objects.
class Checker : public nlohmann::json_sax<Json> {
 public:
  explicit Checker(const JsonLimits& limits) : limits_(limits) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(int64_t) override { return value(); }
  bool number_unsigned(uint64_t) override { return value(); }
  bool number_float(double, const std::string&) override { return value(); }
  bool string(std::string&) override { return value(); }
  bool binary(Json::binary_t&) override { return value(); }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return (limits_.may_be_list || value()) && open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    auto& names = open_.back();
    if (names.size() >= limits_.keys) return fail(fmt::format("an object has more than {} keys", limits_.keys));
    if (!names.insert(name).second && limits_.refuse_duplicates) {
      return fail(fmt::format("key {} appears twice", quoted_name(name)));
    }
    return true;
  }

  bool parse_error(size_t position, const std::string& token, const Json::exception&) override {
    return fail(fmt::format("not valid JSON at offset {}, near {}", position, quoted_name(token)));
  }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }
  bool value() { return open_.empty() ? fail("is not a JSON object") : true; }
  bool open() {
    if (open_.size() >= limits_.depth) return fail(fmt::format("nests deeper than {}", limits_.depth));
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::vector<std::unordered_set<std::string>> open_;
  std::string problem_;
};

}  // namespace

Result<void> check_json_object(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    return Error::corrupt(fmt::format("{}: {} bytes of JSON; at most {} are allowed", file, text.size(), limits.bytes));
  }
  Checker checker(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &checker)) {
    return Error::corrupt(fmt::format("{}: {}", file, checker.problem()));
  }
  return {};
}

Result<Json> parse_json_object(std::string_view text, const std::string& file, const JsonLimits& limits) {
  MILLRACE_TRY_VOID(check_json_object(text, file, limits));
  Json parsed = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() && !(limits.may_be_list && parsed.is_array()))
    return Error::corrupt(fmt::format("{}: is not a JSON object", file));
  return parsed;
}

}  // namespace millrace
