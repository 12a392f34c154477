#include "compare/exact_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/json_text.h"
#include "compare/suite_text.h"

namespace millrace {
namespace {

using ExactJson = nlohmann::ordered_json;

constexpr size_t kGsmExamples = 5, kBbhExamples = 3;  // as lm-evaluation-harness shows of them
constexpr int64_t kGsmAnswerTokens = 256, kBbhAnswerTokens = 64;
constexpr std::string_view kFinal = "####";

std::string_view without_spaces(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// "1,234." and "$1234" are 1234; "" if the text does not begin with a number.
std::string number_at(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || (c == '$' && out.empty())) continue;
    if ((c < '0' || c > '9') && c != '.' && !(c == '-' && out.empty())) break;
    out += c;
  }
  while (out.ends_with('.')) out.pop_back();
  return out == "-" ? "" : out;
}

std::string final_number(std::string_view text) {
  if (const size_t mark = text.find(kFinal); mark != std::string_view::npos)
    return number_at(without_spaces(text.substr(mark + kFinal.size())));
  size_t begin = text.find_last_of("0123456789");
  if (begin == std::string_view::npos) return "";
  while (begin > 0 && std::string_view("0123456789.,").find(text[begin - 1]) != std::string_view::npos) --begin;
  if (begin > 0 && text[begin - 1] == '-') --begin;
  return number_at(text.substr(begin));
}

// Puts the first `examples` questions before each of the others.
void show_examples(std::vector<ExactQuestion>& all, const std::vector<std::string>& worked, size_t examples) {
  examples = std::min(examples, all.size() > 0 ? all.size() - 1 : 0);
  std::string shown;
  for (size_t i = 0; i < examples; ++i) shown += all[i].prompt + " " + worked[i] + "\n\n";
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(examples));
  for (ExactQuestion& question : all) question.prompt = shown + question.prompt;
}

Result<ExactFile> read_gsm8k(const std::string& path) {
  MILLRACE_TRY(const auto lines, read_json_lines(path));
  ExactFile out{"gsm8k", true, {"Question:", "\n\n"}, kGsmAnswerTokens, {}};
  std::vector<std::string> worked;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = fmt::format("{}: problem {}", path, i + 1);
    MILLRACE_TRY(const std::string question, text_field(lines[i], "question", where));
    MILLRACE_TRY(const std::string answer, text_field(lines[i], "answer", where));
    if (answer.find(kFinal) == std::string::npos)
      return Error::corrupt(fmt::format("{}: its answer has no {}", where, kFinal));
    worked.push_back(answer);
    out.questions.push_back({"Question: " + question + "\nAnswer:", final_number(answer)});
  }
  show_examples(out.questions, worked, kGsmExamples);
  return out;
}

Result<ExactFile> read_bbh(const std::string& path, const ExactJson& examples) {
  std::string task = std::filesystem::path(path).filename().string();
  task = task.substr(0, task.find('.'));
  ExactFile out{"bbh:" + task, false, {"\n"}, kBbhAnswerTokens, {}};
  std::vector<std::string> worked;
  for (const ExactJson& example : examples) {
    const std::string where = fmt::format("{}: example {}", path, worked.size() + 1);
    if (!example.is_object()) return Error::corrupt(where + ": is not an object");
    MILLRACE_TRY(const std::string question, text_field(example, "input", where));
    MILLRACE_TRY(const std::string target, text_field(example, "target", where));
    worked.push_back(target);
    out.questions.push_back({"Q: " + question + "\nA:", target});
  }
  show_examples(out.questions, worked, kBbhExamples);
  return out;
}

}  // namespace

Result<ExactFile> read_exact_file(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_suite_text(path));
  const ExactJson whole = parse_json(text);
  Result<ExactFile> out = Error::user("");
  if (whole.is_object() && whole.contains("examples") && whole["examples"].is_array())
    out = read_bbh(path, whole["examples"]);
  else
    out = read_gsm8k(path);
  if (out.ok() && out->questions.empty()) return Error::user(fmt::format("{}: has no questions", path));
  return out;
}

bool exact_match(const ExactFile& file, const std::string& answer, std::string_view generated) {
  if (file.number) return !answer.empty() && final_number(generated) == answer;
  const std::string_view text = without_spaces(generated);
  return without_spaces(text.substr(0, text.find('\n'))) == answer;
}

}  // namespace millrace
