#include "hub/modelfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace millrace {
namespace {

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string in_upper_case(std::string_view word) {
  std::string out(word);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

// A text inside its quotes: one or three on both sides. nullopt: the closing ones are missing.
std::optional<std::string_view> unquoted(std::string_view text) {
  for (const std::string_view quotes : {"\"\"\"", "\""}) {
    if (!text.starts_with(quotes)) continue;
    if (text.size() < 2 * quotes.size() || !text.ends_with(quotes)) return std::nullopt;
    return text.substr(quotes.size(), text.size() - 2 * quotes.size());
  }
  return text;
}

struct ModelfileValue {
  std::string_view text;
  size_t bytes;  // consumed, without the end of the line
};

// Ollama's rule for values: a value ends with the first line after which its quotes, if it begins with any, are closed.
std::optional<ModelfileValue> read_value(std::string_view rest) {
  for (size_t end = 0; end <= rest.size(); ++end) {
    end = std::min(rest.find_first_of("\r\n", end), rest.size());
    if (const auto value = unquoted(stripped(rest.substr(0, end)))) return ModelfileValue{*value, end};
  }
  return std::nullopt;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr int kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | static_cast<int>(code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

std::string from_utf16(std::string_view bytes, bool big) {
  const auto unit = [&](size_t i) {
    const auto a = static_cast<uint8_t>(bytes[i]), b = static_cast<uint8_t>(bytes[i + 1]);
    return static_cast<uint32_t>(big ? a << 8 | b : b << 8 | a);
  };
  constexpr uint32_t kReplacement = 0xFFFD;
  std::string out;
  size_t i = 0;
  for (; i + 1 < bytes.size(); i += 2) {
    uint32_t code = unit(i);
    if (code >= 0xD800 && code < 0xE000) {
      const uint32_t low = code < 0xDC00 && i + 3 < bytes.size() ? unit(i + 2) : 0;
      const bool paired = low >= 0xDC00 && low < 0xE000;
      code = paired ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : kReplacement;
      if (paired) i += 2;
    }
    append_utf8(out, code);
  }
  if (i < bytes.size()) append_utf8(out, kReplacement);
  return out;
}

// The text as UTF-8, by its byte-order mark.
std::string decoded(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) return std::string(text.substr(3));
  if (text.starts_with("\xFF\xFE")) return from_utf16(text.substr(2), false);
  if (text.starts_with("\xFE\xFF")) return from_utf16(text.substr(2), true);
  return std::string(text);
}

// "0.14.0", "v0.14", "1.2.3-rc1"
bool is_version(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  text = text.substr(0, text.find_first_of("-+"));
  int parts = 0;
  for (;;) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0 || (digits > 1 && text[0] == '0') || ++parts > 3) return false;
    if (digits == text.size()) return true;
    if (text[digits] != '.') return false;
    text.remove_prefix(digits + 1);
  }
}

bool is_message_role(std::string_view role) { return role == "system" || role == "user" || role == "assistant"; }

constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr std::string_view kNameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

// Instructions that name parts of Ollama's own program. They are kept and reported.
struct KeptInstruction {
  std::string_view word;
  const char* why;
};
constexpr KeptInstruction kKept[] = {
    {"REQUIRES", "it is a version of Ollama"},
    {"RENDERER", "it names a part of Ollama's program; the model's chat template writes prompts here"},
    {"PARSER", "it names a part of Ollama's program; the chat template tells how answers are parsed here"},
};

// Reads instructions, one at a time.
class ModelfileReader {
 public:
  explicit ModelfileReader(std::string_view text) : text_(text) {}

  Result<Modelfile> read() {
    while (skip_to_instruction()) {
      line_of_instruction_ = line_;
      const size_t letters = std::min(text_.find_first_not_of(kLetters), text_.size());
      word_ = in_upper_case(text_.substr(0, letters));
      advance(letters);
      MILLRACE_TRY_VOID(check_word());
      MILLRACE_TRY(const std::string name, take_name());
      const auto value = read_value(text_);
      if (!value) return wrong("the closing quotes are missing");
      const std::string text(value->text);
      advance(value->bytes);
      MILLRACE_TRY_VOID(apply(name, text));
    }
    if (out_.from.empty()) return Error::user("Modelfile: FROM is missing");
    return std::move(out_);
  }

 private:
  Error wrong(const std::string& what) const {
    return Error::user(fmt::format("Modelfile line {}: {}: {}", line_of_instruction_, word_, what));
  }

  void advance(size_t count) {
    line_ += static_cast<int>(std::ranges::count(text_.substr(0, count), '\n'));
    text_.remove_prefix(count);
  }

  bool skip_to_instruction() {
    for (;;) {
      advance(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
      if (text_.empty()) return false;
      if (text_.front() != '#') return true;
      advance(std::min(text_.find_first_of("\r\n"), text_.size()));
    }
  }

  bool at_blank() const { return !text_.empty() && (text_.front() == ' ' || text_.front() == '\t'); }

  bool has_name() const { return word_ == "PARAMETER" || word_ == "MESSAGE"; }

  Result<void> check_word() const {
    constexpr std::string_view kKnown[] = {"FROM",    "SYSTEM",    "TEMPLATE", "ADAPTER",
                                           "LICENSE", "PARAMETER", "MESSAGE",  "DRAFT"};
    if (std::ranges::find(kKnown, word_) == std::end(kKnown) &&
        std::ranges::find(kKept, word_, &KeptInstruction::word) == std::end(kKept))
      return wrong(
          "unknown instruction; there are FROM, PARAMETER, TEMPLATE, SYSTEM, ADAPTER, DRAFT, LICENSE and MESSAGE");
    if (!at_blank() && !has_name()) return wrong("needs a value");
    return {};
  }

  // Returns a parameter's name or a message's role, and "" for other instructions.
  Result<std::string> take_name() {
    if (!has_name()) return std::string();
    advance(std::min(text_.find_first_not_of(" \t"), text_.size()));
    const size_t letters = std::min(text_.find_first_not_of(kNameLetters), text_.size());
    std::string name(text_.substr(0, letters));
    advance(letters);
    const bool message = word_ == "MESSAGE";
    if (message && !name.empty() && !is_message_role(name))
      return wrong(fmt::format("the role must be system, user or assistant, is '{}'", name.substr(0, 40)));
    if (name.empty() || !at_blank()) return wrong(message ? "needs a role and a text" : "needs a name and a value");
    return name;
  }

  Result<void> apply(const std::string& name, const std::string& value) {
    const auto note = [&](const char* what, const char* why) {
      out_.notes.push_back(fmt::format("{} (line {}): {}: {}", word_, line_of_instruction_, what, why));
    };
    const bool names_model = word_ == "FROM" || word_ == "DRAFT" || word_ == "ADAPTER";
    if (names_model && value.empty()) return wrong("needs a value");
    if (word_ == "FROM") {
      if (out_.from.empty()) {
        out_.from = value;
      } else {
        out_.more_from.push_back(value);
      }
    } else if (word_ == "DRAFT") {
      out_.draft = value;
    } else if (word_ == "SYSTEM") {
      out_.system = value;
    } else if (word_ == "TEMPLATE") {
      if (is_go_template(value)) {
        note("left out", "it is a Go template, and chat templates here are Jinja; the base's own is used");
      } else {
        out_.chat_template = value;
      }
    } else if (word_ == "ADAPTER") {
      out_.adapters.push_back(value);
    } else if (word_ == "LICENSE") {
      out_.license += (out_.license.empty() ? "" : "\n") + value;
    } else if (word_ == "MESSAGE") {
      out_.messages.emplace_back(name, value);
    } else if (word_ == "PARAMETER") {
      if (name == "stop" && value.empty()) {
        note("left out", "an empty stop string ends nothing");
      } else {
        out_.parameters.emplace_back(name, value);
      }
    } else {
      if (word_ == "REQUIRES" && !is_version(value))
        return wrong(fmt::format("must be a version such as 0.14.0, is '{}'", value.substr(0, 40)));
      std::erase_if(out_.kept, [&](const auto& one) { return one.first == word_; });
      out_.kept.emplace_back(word_, value);
      note("has no effect", std::ranges::find(kKept, word_, &KeptInstruction::word)->why);
    }
    return {};
  }

  std::string_view text_;
  std::string word_;
  int line_ = 1, line_of_instruction_ = 1;
  Modelfile out_;
};

// One instruction. `value` is quoted in the first way that reads back as `value`. There is no way to write a text of
// several lines of which one ends in three quotes; a comment then says so.
std::string instruction(const std::string& head, const std::string& value) {
  for (const std::string_view quotes : {"", "\"", "\"\"\""}) {
    if (quotes.empty() && value.empty()) continue;
    const std::string line = std::string(quotes) + value + std::string(quotes) + "\n";
    const auto read = read_value(line);
    if (read && read->text == value && read->bytes + 1 == line.size()) return head + " " + line;
  }
  return "# " + head + " is left out: a line of its text ends in quotes that a Modelfile cannot hold\n";
}

}  // namespace

Result<Modelfile> parse_modelfile(std::string_view text) {
  constexpr size_t kMaxModelfileBytes = size_t{4} << 20;
  if (text.size() > kMaxModelfileBytes) return Error::user("Modelfile: is larger than 4 MiB");
  const std::string utf8 = decoded(text);
  return ModelfileReader(utf8).read();
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
  std::string out = instruction("FROM", model.from);
  for (const std::string& path : model.more_from) out += instruction("FROM", path);
  if (!model.draft.empty()) out += instruction("DRAFT", model.draft);
  for (const std::string& path : model.adapters) out += instruction("ADAPTER", path);
  for (const auto& [name, value] : model.parameters) out += instruction("PARAMETER " + name, value);
  if (!model.system.empty()) out += instruction("SYSTEM", model.system);
  if (!model.chat_template.empty()) out += instruction("TEMPLATE", model.chat_template);
  for (const auto& [role, text] : model.messages)
    out += is_message_role(role) ? instruction("MESSAGE " + role, text)
                                 : "# MESSAGE is left out: its role is not system, user or assistant\n";
  for (const auto& [word, value] : model.kept)
    if (std::ranges::find(kKept, word, &KeptInstruction::word) != std::end(kKept)) out += instruction(word, value);
  if (!model.license.empty()) out += instruction("LICENSE", model.license);
  return out;
}

}  // namespace millrace
