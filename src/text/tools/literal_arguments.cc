#include "text/tools/literal_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_text.h"
#include "text/tools/dialects.h"

namespace millrace {
namespace {

constexpr size_t kMaxLevels = 32, kMaxBareValue = 4096, kMaxSpaceAfterText = 64;
constexpr std::string_view kDoubleQuote = "\"", kSingleQuote = "'";

void add_escaped(char c, std::string& json) {
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\')
    json += {'\\', c};
  else if (byte < 0x20)
    json += fmt::format("\\u{:04x}", byte);
  else
    json += c;
}

// Appends the JSON form of a backslash and `c`, which is neither x nor u.
void add_escape(char c, std::string& json) {
  constexpr std::string_view kSame = "\"\\/bfnrt";
  if (kSame.find(c) != std::string_view::npos) {
    json += {'\\', c};
  } else {
    if (c != '\'') json += "\\\\";
    add_escaped(c, json);
  }
}

enum class EscapeState { incomplete, complete, text };

// Returns whether the bytes are a beginning of \xHH or \uHHHH, all of it, or plain text. A high surrogate needs the low
// one behind it, and a low surrogate alone is text: JSON has no place for either.
EscapeState hex_escape_state(std::string_view held) {
  constexpr std::string_view kHex = "0123456789abcdefABCDEF", kSurrogate = "dD", kHigh = "89abAB", kLow = "cdefCDEF";
  const size_t digits = held[1] == 'x' ? 2 : 4, first = 2 + digits;
  if (held.substr(2, digits).find_first_not_of(kHex) != std::string_view::npos) return EscapeState::text;
  if (held.size() < first) return EscapeState::incomplete;
  const bool surrogate = digits == 4 && kSurrogate.find(held[2]) != std::string_view::npos;
  if (surrogate && kLow.find(held[3]) != std::string_view::npos) return EscapeState::text;
  if (!surrogate || kHigh.find(held[3]) == std::string_view::npos) return EscapeState::complete;
  const std::string_view second = held.substr(first);
  for (size_t i = 0; i < second.size(); ++i) {
    const std::string_view allowed = i == 0 ? "\\" : i == 1 ? "u" : i == 2 ? kSurrogate : i == 3 ? kLow : kHex;
    if (allowed.find(second[i]) == std::string_view::npos) return EscapeState::text;
  }
  return second.size() < first ? EscapeState::incomplete : EscapeState::complete;
}

std::string text_json(std::string_view text) {
  return nlohmann::ordered_json(text).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// A number, a constant of JSON or Python, or else a string without quotes.
std::string bare_json(std::string_view text) {
  text = without_space(text);
  if (text.empty() || text == "None") return "null";
  if (text == "True") return "true";
  if (text == "False") return "false";
  const nlohmann::ordered_json parsed = parse_json(std::string(text));
  if (parsed.is_primitive() && !parsed.is_discarded()) return std::string(text);
  return text_json(text);
}

}  // namespace

LiteralArguments::State LiteralArguments::push(char c, std::string& json) {
  if (place_ == Place::begin) {
    json += '{';
    place_ = Place::start;
  }
  return take(c, json);
}

LiteralArguments::State LiteralArguments::take(char c, std::string& json) {
  switch (place_) {
    case Place::begin: return State::wrong;
    case Place::start: return take_start(c, json);
    case Place::bare_key: return take_bare_key(c, json);
    case Place::after_key:
      if (is_json_space(c)) return State::more;
      if (c != levels_.back().key_end) return State::wrong;
      json += ": ";
      place_ = Place::value;
      return State::more;
    case Place::value: return take_value(c, json);
    case Place::opening: return take_opening(c, json);
    case Place::text: return take_text(c, json);
    case Place::text_end: return take_text_end(c, json);
    case Place::bare: return take_bare(c, json);
    case Place::after: return take_after(c, json);
  }
  return State::wrong;
}

LiteralArguments::State LiteralArguments::take_start(char c, std::string& json) {
  if (is_json_space(c)) return State::more;
  Level& level = levels_.back();
  if (c == level.close) return close_level(json);
  if (c == ',') return State::wrong;
  if (level.any) json += ", ";
  level.any = true;
  is_key_ = !level.list;
  if (level.list) {
    place_ = Place::value;
    return take_value(c, json);
  }
  held_ = c;
  if (!may_open_text(c, json)) place_ = Place::bare_key;
  return State::more;
}

// Models write both kinds of quotes in place of the form's own.
bool LiteralArguments::may_open_text(char c, std::string& json) {
  if (c == '"' || c == '\'') {
    open_text(c == '"' ? kDoubleQuote : kSingleQuote, json);
    return true;
  }
  if (form_.quote.empty() || c != form_.quote.front()) return false;
  place_ = Place::opening;
  return true;
}

LiteralArguments::State LiteralArguments::take_bare_key(char c, std::string& json) {
  if (c != levels_.back().key_end) {
    held_ += c;
    const bool ends = c == ',' || c == '\n' || c == '"' || c == '{' || c == '[' || c == levels_.back().close;
    return ends || held_.size() > kLongestToolName ? State::wrong : State::more;
  }
  const std::string_view key = without_space(held_);
  if (key.empty()) return State::wrong;
  json += text_json(key) + ": ";
  place_ = Place::value;
  return State::more;
}

LiteralArguments::State LiteralArguments::take_value(char c, std::string& json) {
  if (is_json_space(c)) return State::more;
  is_key_ = false;
  held_ = c;
  if (c == '{' || c == '[' || (c == '(' && form_.close == ')')) {
    if (levels_.size() >= kMaxLevels) return State::wrong;
    open_level(c == '{' ? '}' : c == '[' ? ']' : ')', c != '{', json);
  } else if (!may_open_text(c, json)) {
    held_.clear();
    place_ = Place::bare;
    return take_bare(c, json);
  }
  return State::more;
}

LiteralArguments::State LiteralArguments::take_opening(char c, std::string& json) {
  held_ += c;
  if (held_ == form_.quote) open_text(form_.quote, json);
  if (place_ == Place::text || form_.quote.starts_with(held_)) return State::more;
  if (is_key_) return State::wrong;
  place_ = Place::bare;
  held_.pop_back();
  return take_bare(c, json);
}

LiteralArguments::State LiteralArguments::take_text(char c, std::string& json) {
  if (quote_.size() > 1) {  // the quote's bytes end the text, and there are no escapes
    held_ += c;
    while (!held_.empty() && !quote_.starts_with(held_)) {
      add_escaped(held_.front(), json);
      held_.erase(0, 1);
    }
    if (held_ == quote_) end_text(json);
    return State::more;
  }
  if (!escape_.empty()) return take_escape(c, json);
  if (c == '\\') {
    escape_ = c;
  } else if (c == '"' && quote_ == kDoubleQuote) {
    end_text(json);
  } else if (c == quote_.front()) {
    held_ = c;
    place_ = Place::text_end;
  } else {
    add_escaped(c, json);
  }
  return State::more;
}

// Bytes of \x and \u are held until all digits have come; if one is missing, the bytes are plain text.
LiteralArguments::State LiteralArguments::take_escape(char c, std::string& json) {
  if (escape_.size() == 1 && c != 'x' && c != 'u') {
    escape_.clear();
    add_escape(c, json);
    return State::more;
  }
  escape_ += c;
  const EscapeState state = hex_escape_state(escape_);
  if (state == EscapeState::incomplete) return State::more;
  const std::string held = std::exchange(escape_, {});
  if (state == EscapeState::complete) {
    json += held[1] == 'x' ? "\\u00" + held.substr(2) : held;
    return State::more;
  }
  json += "\\\\";
  for (const char one : held.substr(1)) take_text(one, json);  // only the last byte may end the text
  return State::more;
}

// Models write apostrophes in strings as they are: a quote ends the string only if what may follow a string does.
LiteralArguments::State LiteralArguments::take_text_end(char c, std::string& json) {
  constexpr std::string_view kBehindStrings = ",)]}:";
  if (is_json_space(c) && held_.size() < kMaxSpaceAfterText) {
    held_ += c;
    return State::more;
  }
  if (kBehindStrings.find(c) != std::string_view::npos) {
    end_text(json);
    return take(c, json);
  }
  for (const char one : held_) add_escaped(one, json);
  held_.clear();
  place_ = Place::text;
  return take_text(c, json);
}

LiteralArguments::State LiteralArguments::take_bare(char c, std::string& json) {
  if (c != ',' && c != levels_.back().close) {
    held_ += c;
    if (form_.quote.empty() || !held_.ends_with(form_.quote))
      return held_.size() > kMaxBareValue ? State::wrong : State::more;
    held_.resize(held_.size() - form_.quote.size());  // a string whose first quote the model has left out
    json += text_json(held_);
    place_ = Place::after;
    return State::more;
  }
  json += bare_json(held_);
  place_ = Place::after;
  return take_after(c, json);
}

LiteralArguments::State LiteralArguments::take_after(char c, std::string& json) {
  if (is_json_space(c)) return State::more;
  if (c == levels_.back().close) return close_level(json);
  place_ = Place::start;
  return c == ',' ? State::more : State::wrong;
}

LiteralArguments::State LiteralArguments::close_level(std::string& json) {
  json += levels_.back().list ? ']' : '}';
  levels_.pop_back();
  place_ = Place::after;
  return levels_.empty() ? State::done : State::more;
}

void LiteralArguments::open_text(std::string_view quote, std::string& json) {
  json += '"';
  quote_ = quote;
  held_.clear();
  escape_.clear();
  place_ = Place::text;
}

void LiteralArguments::end_text(std::string& json) {
  json += '"';
  held_.clear();
  place_ = is_key_ ? Place::after_key : Place::after;
}

void LiteralArguments::open_level(char close, bool list, std::string& json) {
  json += list ? '[' : '{';
  levels_.push_back({close, ':', list, false});
  place_ = Place::start;
}

}  // namespace millrace
