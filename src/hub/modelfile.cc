#include "hub/modelfile.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

std::string_view stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string in_upper_case(std::string_view word) {
  std::string out(word);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

// Reads instructions, one at a time.
class ModelfileReader {
 public:
  explicit ModelfileReader(std::string_view text) : text_(text) {}

  Result<Modelfile> read() {
    while (skip_to_instruction()) {
      const int line = line_;
      const std::string word = in_upper_case(take_word());
      MILLRACE_TRY(const std::string value, take_value(line, word));
      MILLRACE_TRY_VOID(apply(line, word, value));
    }
    if (out_.from.empty()) return Error::user("Modelfile: FROM is missing");
    return std::move(out_);
  }

 private:
  void advance(size_t count) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(0, count), '\n'));
    text_.remove_prefix(count);
  }

  bool skip_to_instruction() {
    for (;;) {
      advance(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
      if (text_.empty()) return false;
      if (text_.front() != '#') return true;
      advance(std::min(text_.find('\n'), text_.size()));
    }
  }

  std::string_view take_word() {
    const std::string_view word = text_.substr(0, std::min(text_.find_first_of(" \t\r\n"), text_.size()));
    advance(word.size());
    return word;
  }

  // The rest of the line; text in """ may have several lines.
  Result<std::string> take_value(int line, const std::string& word) {
    const size_t newline = std::min(text_.find('\n'), text_.size());
    const size_t open = text_.find("\"\"\"");
    if (open < newline) {
      const std::string before(stripped(text_.substr(0, open)));  // of MESSAGE: the role
      advance(open + 3);
      const size_t close = text_.find("\"\"\"");
      if (close == std::string_view::npos)
        return Error::user(fmt::format("Modelfile line {}: {}: the closing \"\"\" is missing", line, word));
      std::string value(text_.substr(0, close));
      advance(close + 3);
      return before.empty() ? value : before + " " + value;
    }
    std::string_view value = stripped(text_.substr(0, newline));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    std::string out(value);
    advance(newline);
    return out;
  }

  Result<void> apply(int line, const std::string& word, const std::string& value) {
    const auto wrong = [&](const std::string& what) {
      return Error::user(fmt::format("Modelfile line {}: {}: {}", line, word, what));
    };
    const auto split = [&] {
      const size_t space = std::min(value.find_first_of(" \t"), value.size());
      std::string_view second = stripped(std::string_view(value).substr(space));
      if (second.size() >= 2 && second.front() == '"' && second.back() == '"')
        second = second.substr(1, second.size() - 2);
      return std::pair(value.substr(0, space), std::string(second));
    };
    if (value.empty()) return wrong("needs a value");
    if (word == "FROM") {
      if (!out_.from.empty()) return wrong("is given twice");
      out_.from = value;
    } else if (word == "SYSTEM") {
      out_.system = value;
    } else if (word == "TEMPLATE") {
      if (is_go_template(value)) {
        out_.notes.push_back(
            fmt::format("TEMPLATE (line {}): left out: it is a Go template, and chat templates here are Jinja; the "
                        "base's own is used",
                        line));
      } else {
        out_.chat_template = value;
      }
    } else if (word == "ADAPTER") {
      out_.adapters.push_back(value);
    } else if (word == "LICENSE") {
      out_.license += (out_.license.empty() ? "" : "\n") + value;
    } else if (word == "PARAMETER" || word == "MESSAGE") {
      auto pair = split();
      if (pair.second.empty()) return wrong(word == "MESSAGE" ? "needs a role and a text" : "needs a name and a value");
      (word == "MESSAGE" ? out_.messages : out_.parameters).push_back(std::move(pair));
    } else if (word == "REQUIRES") {
      out_.notes.push_back(fmt::format("REQUIRES (line {}): ignored: it is a version of Ollama", line));
    } else {
      return wrong("unknown instruction; there are FROM, PARAMETER, TEMPLATE, SYSTEM, ADAPTER, LICENSE and MESSAGE");
    }
    return {};
  }

  std::string_view text_;
  int line_ = 1;
  Modelfile out_;
};

std::string in_quotes(const std::string& text) {
  return text.find('\n') == std::string::npos && !text.starts_with(' ') && !text.ends_with(' ') &&
                 !text.starts_with('"')
             ? text
             : "\"\"\"" + text + "\"\"\"";
}

}  // namespace

Result<Modelfile> parse_modelfile(std::string_view text) {
  constexpr size_t kMostBytes = size_t{4} << 20;
  if (text.size() > kMostBytes) return Error::user("Modelfile: is larger than 4 MiB");
  return ModelfileReader(text).read();
}

bool is_go_template(std::string_view text) {
  for (size_t at = text.find("{{"); at != std::string_view::npos; at = text.find("{{", at + 2)) {
    std::string_view inside = text.substr(at + 2);
    if (inside.starts_with('-')) inside.remove_prefix(1);
    inside = stripped(inside.substr(0, inside.find("}}")));
    for (const std::string_view word : {".", "$", "if ", "range ", "else", "end", "eq ", "and ", "or ", "template "})
      if (inside.starts_with(word)) return true;
  }
  return false;
}

std::string modelfile_text(const Modelfile& model) {
  std::string out = "FROM " + model.from + "\n";
  for (const std::string& path : model.adapters) out += "ADAPTER " + path + "\n";
  for (const auto& [name, value] : model.parameters) out += fmt::format("PARAMETER {} {}\n", name, value);
  if (!model.system.empty()) out += "SYSTEM " + in_quotes(model.system) + "\n";
  if (!model.chat_template.empty()) out += "TEMPLATE \"\"\"" + model.chat_template + "\"\"\"\n";
  for (const auto& [role, text] : model.messages) out += fmt::format("MESSAGE {} {}\n", role, in_quotes(text));
  if (!model.license.empty()) out += "LICENSE \"\"\"" + model.license + "\"\"\"\n";
  return out;
}

}  // namespace millrace
