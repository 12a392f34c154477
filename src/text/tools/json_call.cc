#include "base/json_text.h"
#include "text/tools/dialects.h"

namespace millrace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

void add_piece(AnswerPieces& pieces, Kind kind, std::string_view text) {
  const bool joins = kind != Kind::call && kind != Kind::call_end;
  if (joins && text.empty()) return;
  if (joins && !pieces.empty() && pieces.back().kind == kind)
    pieces.back().text += text;
  else
    pieces.push_back({kind, std::string(text)});
}

void JsonCall::take_argument(char c, AnswerPieces& out) {
  if (named_)
    add_piece(out, Kind::arguments, std::string_view(&c, 1));
  else
    arguments_ += c;
}

// Called after a complete value.
bool JsonCall::value_ended(AnswerPieces& out) {
  place_ = Place::comma;
  if (streams_) {
    streams_ = false;
    has_arguments_ = true;
    return true;
  }
  const Json value = parse_json(value_);
  if (key_ == "name") {
    if (!value.is_string() || value.get_ref<const std::string&>().empty() || named_) return false;
    named_ = true;
    out.push_back({Kind::call, value.get<std::string>()});
    add_piece(out, Kind::arguments, arguments_);
  } else if ((key_ == "arguments" || key_ == "parameters") && value.is_string() && !has_arguments_) {
    const Json inner = parse_json(value.get_ref<const std::string&>());
    if (!inner.is_object()) return false;
    has_arguments_ = true;
    for (char c : value.get_ref<const std::string&>()) take_argument(c, out);
  }
  return !value.is_discarded();
}

// Numbers, true, false and null end at the next delimiter.
bool JsonCall::take_plain(char c, AnswerPieces& out) {
  if (c != ',' && c != '}' && !is_json_space(c)) {
    value_ += c;
    return value_.size() < 64;
  }
  if (!value_ended(out)) return false;
  text_.pop_back();  // push() handles it again
  return push(c, out);
}

bool JsonCall::push(char c, AnswerPieces& out) {
  text_ += c;
  const bool space = is_json_space(c);
  switch (place_) {
    case Place::begin:
      if (space) return true;
      place_ = Place::key_or_end;
      return c == '{';
    case Place::comma:
      if (space) return true;
      if (c == ',') {
        place_ = Place::key;
        return true;
      }
      [[fallthrough]];
    case Place::key_or_end:
    case Place::key:
      if (space) return true;
      if (c == '}' && place_ != Place::key) {
        if (!named_) return false;
        if (!has_arguments_) add_piece(out, Kind::arguments, "{}");
        out.push_back({Kind::call_end, ""});
        place_ = Place::end;
        return true;
      }
      if (place_ == Place::comma || c != '"') return false;
      value_ = "\"";
      escaped_ = false;
      place_ = Place::in_key;
      return true;
    case Place::in_key:
    case Place::in_text:
      value_ += c;
      if (escaped_ || c == '\\') {
        escaped_ = !escaped_;
        return true;
      }
      if (c != '"') return true;
      if (place_ == Place::in_text) return value_ended(out);
      {
        const Json key = parse_json(value_);
        if (!key.is_string()) return false;
        key_ = key.get<std::string>();
      }
      place_ = Place::colon;
      return true;
    case Place::colon:
      if (space) return true;
      place_ = Place::value;
      return c == ':';
    case Place::value:
      if (space) return true;
      value_ = c;
      escaped_ = false;
      if (c == '"') {
        place_ = Place::in_text;
      } else if (c == '{' || c == '[') {
        place_ = Place::in_nested;
        nesting_ = {};
        nesting_.push(c);
        streams_ = c == '{' && !has_arguments_ && (key_ == "arguments" || key_ == "parameters");
        if (streams_) take_argument(c, out);
      } else {
        place_ = Place::in_plain;
      }
      return true;
    case Place::in_nested:
      if (streams_)
        take_argument(c, out);
      else
        value_ += c;
      return nesting_.push(c) ? value_ended(out) : true;
    case Place::in_plain: return take_plain(c, out);
    case Place::end: return false;
  }
  return false;
}

bool FreeText::push(char c, AnswerPieces& out) {
  held_ += c;
  while (!held_.empty() && !trigger_.starts_with(held_)) let_go(1, out);
  if (held_.size() < trigger_.size()) return false;
  held_.clear();
  space_.clear();
  return true;
}

void FreeText::let_go(size_t bytes, AnswerPieces& out) {
  for (size_t i = 0; i < bytes; ++i) {
    if (is_json_space(held_[i])) {
      space_ += held_[i];
      continue;
    }
    if (!called_) add_piece(out, Kind::text, space_);
    called_ = false;
    space_.clear();
    add_piece(out, Kind::text, std::string_view(held_).substr(i, 1));
  }
  held_.erase(0, bytes);
}

void FreeText::finish(AnswerPieces& out) {
  let_go(held_.size(), out);
  if (!called_) add_piece(out, Kind::text, space_);
  space_.clear();
}

bool ClosingTag::push(char c) {
  if (held_.empty() && is_json_space(c)) return true;
  held_ += c;
  if (!tag_.starts_with(held_)) return false;
  if (held_.size() < tag_.size()) return true;
  held_.clear();
  return false;
}

Json call_tags(std::span<const Tool> tools, std::string_view before, std::string_view between,
               std::string_view behind) {
  Json tags = Json::array();
  for (const Tool& tool : tools) {
    tags.push_back({{"type", "tag"},
                    {"begin", std::string(before) + tool.name + std::string(between)},
                    {"content", {{"type", "json_schema"}, {"json_schema", tool.parameters}}},
                    {"end", behind}});
  }
  return tags;
}

Json tagged_calls(Json tags, std::string_view trigger, std::string_view separator, const ToolChoice& wish) {
  if (wish.required)
    return {{"type", "tags_with_separator"},
            {"tags", std::move(tags)},
            {"separator", separator},
            {"at_least_one", true},
            {"stop_after_first", !wish.parallel}};
  return {{"type", "triggered_tags"},
          {"triggers", Json::array({std::string(trigger)})},
          {"tags", std::move(tags)},
          {"stop_after_first", !wish.parallel}};
}

}  // namespace millrace
