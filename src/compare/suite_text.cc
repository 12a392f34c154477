#include "compare/suite_text.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "base/json_text.h"
#include "lab/words.h"
#include "workload/line_source.h"

namespace millrace {
namespace {

constexpr size_t kMaxSuiteBytes = size_t{256} << 20;
constexpr uint64_t kFillerSeed = 0x66696c6c6572;

}  // namespace

Result<std::string> read_suite_text(const std::string& path) {
  MILLRACE_TRY(const auto source, LineSource::open(path));
  std::string text;
  std::string_view line;
  for (;;) {
    MILLRACE_TRY(const bool more, source->next(line));
    if (!more) return text;
    text += line;
    text += '\n';
    if (text.size() > kMaxSuiteBytes) return Error::resource(fmt::format("{}: has more than 256 MB", path));
  }
}

Result<std::vector<nlohmann::ordered_json>> read_json_lines(const std::string& path) {
  MILLRACE_TRY(const auto source, LineSource::open(path));
  std::vector<nlohmann::ordered_json> out;
  std::string_view line;
  for (;;) {
    MILLRACE_TRY(const bool more, source->next(line));
    if (!more) return out;
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    out.push_back(parse_json(line));
    if (!out.back().is_object())
      return Error::corrupt(fmt::format("{}:{}: is not a JSON object", path, source->number()));
  }
}

Result<std::string> text_field(const nlohmann::ordered_json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string())
    return Error::corrupt(fmt::format("{}: has no text \"{}\"", where, name));
  return found->get<std::string>();
}

std::string identity_of(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += fmt::format("{} ", part.size()) + part;
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

std::string filler_text(int64_t length) {
  LabRandom random(kFillerSeed, 0, 0);
  std::string text;
  lab::add_filler(random, length, text);
  return text;
}

}  // namespace millrace
