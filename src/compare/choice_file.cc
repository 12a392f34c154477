#include "compare/choice_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"
#include "compare/suite_text.h"

namespace millrace {
namespace {

using ChoiceJson = nlohmann::ordered_json;

constexpr size_t kEndings = 4;

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

Result<ChoiceFile> read_hellaswag(const std::string& path, std::string_view text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.size(), text.find('\n', begin));
    lines.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  ChoiceFile out{"hellaswag", " ", {}};
  for (size_t i = 0; i < lines.size(); i += kEndings + 2) {
    if (i + kEndings + 2 > lines.size())
      return Error::corrupt(fmt::format("{}:{}: the last question is cut off", path, i + 1));
    const std::string& right = lines[i + 1];
    if (right.size() != 1 || right[0] < '0' || right[0] > '3')
      return Error::corrupt(fmt::format("{}:{}: '{}' is not the number of an ending, 0 to 3", path, i + 2, right));
    ChoiceQuestion question{lines[i], {}, static_cast<size_t>(right[0] - '0'), ""};
    for (size_t ending = 0; ending < kEndings; ++ending) question.answers.push_back(lines[i + 2 + ending]);
    out.questions.push_back(std::move(question));
  }
  return out;
}

Result<ChoiceFile> read_mmlu(const std::string& path, const ChoiceJson& samples) {
  ChoiceFile out{"mmlu", "", {}};
  for (const ChoiceJson& sample : samples) {
    const std::string where = fmt::format("{}: sample {}", path, out.questions.size() + 1);
    if (!sample.is_object()) return Error::corrupt(where + ": is not an object");
    ChoiceQuestion question;
    MILLRACE_TRY(question.context, text_field(sample, "prompt", where));
    if (sample.contains("topic")) {
      MILLRACE_TRY(question.group, text_field(sample, "topic", where));
    }
    const auto options = sample.find("options"), label = sample.find("input_label");
    if (options == sample.end() || !options->is_array() || options->size() < 2)
      return Error::corrupt(where + ": has no \"options\"");
    for (const ChoiceJson& option : *options) {
      if (!option.is_string()) return Error::corrupt(where + ": an option is no text");
      question.answers.push_back(option.get<std::string>());
    }
    if (label == sample.end() || !label->is_number_unsigned() || label->get<uint64_t>() >= options->size())
      return Error::corrupt(where + ": \"input_label\" is not the number of an option");
    question.right = label->get<size_t>();
    out.questions.push_back(std::move(question));
  }
  return out;
}

Result<ChoiceFile> read_lambada(const std::string& path) {
  MILLRACE_TRY(const auto lines, read_json_lines(path));
  ChoiceFile out{"lambada", "", {}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string where = fmt::format("{}: passage {}", path, i + 1);
    MILLRACE_TRY(const std::string text, text_field(lines[i], "text", where));
    const size_t space = text.rfind(' ');
    if (space == std::string::npos || space == 0) return Error::corrupt(where + ": has only one word");
    out.questions.push_back({text.substr(0, space), {text.substr(space)}, 0, ""});
  }
  return out;
}

}  // namespace

Result<ChoiceFile> read_choice_file(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_suite_text(path));
  const size_t first = text.find_first_not_of(" \t\n");
  Result<ChoiceFile> out = Error::user(fmt::format("{}: is empty", path));
  if (first != std::string::npos && text[first] == '{') {
    const ChoiceJson whole = parse_json(text);
    if (whole.is_object() && whole.contains("samples") && whole["samples"].is_array())
      out = read_mmlu(path, whole["samples"]);
    else
      out = read_lambada(path);
  } else if (first != std::string::npos) {
    out = read_hellaswag(path, text);
  }
  if (out.ok() && out->questions.empty()) return Error::user(fmt::format("{}: has no questions", path));
  return out;
}

std::vector<double> score_choice(const ChoiceQuestion& question, std::span<const ContinuationScore> scores) {
  size_t best = 0, best_norm = 0;
  const auto norm = [&](size_t i) {
    return scores[i].log_likelihood / static_cast<double>(std::max<int64_t>(1, characters(question.answers[i])));
  };
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i].log_likelihood > scores[best].log_likelihood) best = i;
    if (norm(i) > norm(best_norm)) best_norm = i;
  }
  return {best_norm == question.right ? 1.0 : 0.0, best == question.right ? 1.0 : 0.0};
}

}  // namespace millrace
