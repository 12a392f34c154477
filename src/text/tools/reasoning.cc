#include "text/tools/reasoning.h"

#include <algorithm>

namespace millrace {

namespace {

using Json = nlohmann::ordered_json;
using Kind = AnswerPiece::Kind;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

Json literal(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }

}  // namespace

std::span<const ReasoningMarks> reasoning_marks() {
  static constexpr ReasoningMarks all[] = {{"<think>", "</think>"},
                                           {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command R7B and A
                                           {"[THINK]", "[/THINK]"},                     // Magistral, Ministral 3
                                           {"<seed:think>", "</seed:think>"},           // Seed-OSS
                                           {"<|inner_prefix|>", "<|inner_suffix|>"},    // Apertus
                                           {"<|channel>thought", "<channel|>"},         // Gemma 4
                                           {"<thinking>", "</thinking>"}};
  return all;
}

const ReasoningMarks* reasoning_marks_of(std::string_view chat_template) {
  for (const ReasoningMarks& marks : reasoning_marks())
    if (chat_template.find(marks.open) != std::string_view::npos ||
        chat_template.find(marks.close) != std::string_view::npos)
      return &marks;
  return nullptr;
}

ReasoningPlace reasoning_place(std::string_view prompt, const ReasoningMarks& marks) {
  while (!prompt.empty() && is_space(prompt.back())) prompt.remove_suffix(1);
  if (prompt.ends_with(marks.open)) return ReasoningPlace::inside;
  return prompt.ends_with(marks.close) ? ReasoningPlace::behind : ReasoningPlace::begin;
}

void ReasoningSplitter::take_reasoning(char c, AnswerPieces& out) {
  if (is_space(c)) {
    space_ += c;
    return;
  }
  if (some_) add_piece(out, Kind::reasoning, space_);
  space_.clear();
  some_ = true;
  add_piece(out, Kind::reasoning, std::string_view(&c, 1));
}

// Consumes the start of `held_`, which neither marker can begin with, or a complete marker.
void ReasoningSplitter::take_inside(AnswerPieces& out, std::string& rest) {
  while (!held_.empty() && !close_.starts_with(held_) && !call_.starts_with(held_)) {
    take_reasoning(held_.front(), out);
    held_.erase(0, 1);
  }
  if (held_.empty() || (held_ != close_ && held_ != call_)) return;
  ended_by_call_ = held_ == call_;
  lead_ = !ended_by_call_;
  if (ended_by_call_) rest += call_;
  held_.clear();
  space_.clear();
  place_ = ReasoningPlace::behind;
}

std::string ReasoningSplitter::push(std::string_view text, AnswerPieces& out) {
  std::string rest;
  for (char c : text) {
    if (place_ == ReasoningPlace::behind) {
      if (lead_ && is_space(c)) continue;
      lead_ = false;
      rest += c;
      continue;
    }
    held_ += c;
    if (place_ == ReasoningPlace::begin) {
      const size_t begin = held_.find_first_not_of(" \n\r\t");
      if (begin == std::string::npos) continue;
      const auto said = std::string_view(held_).substr(begin);
      if (!open_.starts_with(said)) {
        rest += held_;
        held_.clear();
        place_ = ReasoningPlace::behind;
      } else if (said.size() == open_.size()) {
        held_.clear();
        place_ = ReasoningPlace::inside;
      }
      continue;
    }
    take_inside(out, rest);
  }
  return rest;
}

std::string ReasoningSplitter::finish(AnswerPieces& out) {
  std::string rest;
  if (place_ == ReasoningPlace::begin) rest = std::move(held_);
  if (place_ == ReasoningPlace::inside)
    for (char c : held_) take_reasoning(c, out);
  held_.clear();
  space_.clear();
  place_ = ReasoningPlace::behind;
  return rest;
}

void LateCloseFilter::filter(AnswerPieces& pieces) {
  AnswerPieces out;
  for (AnswerPiece& piece : pieces) {
    if (piece.kind == Kind::call) finish(out);
    if (piece.kind != Kind::text || (done_ && !lead_)) {
      add_piece(out, piece.kind, piece.text);
      continue;
    }
    for (char c : piece.text) {
      if (lead_ && is_space(c)) continue;
      lead_ = false;
      if (done_) {
        add_piece(out, Kind::text, std::string_view(&c, 1));
        continue;
      }
      held_ += c;
      const size_t begin = std::min(held_.find_first_not_of(" \n\r\t"), held_.size());
      const auto said = std::string_view(held_).substr(begin);
      if (close_.starts_with(said) && said.size() < close_.size()) continue;
      done_ = true;
      lead_ = said == close_;
      if (!lead_) add_piece(out, Kind::text, held_);
      held_.clear();
    }
  }
  pieces = std::move(out);
}

void LateCloseFilter::finish(AnswerPieces& pieces) {
  add_piece(pieces, Kind::text, held_);
  held_.clear();
}

namespace {

// The structure of calls that follow a part of the answer's first call.
Json further_calls(const EarlyCalls& calls, const Json& required) {
  if (!calls.wish.parallel || required.value("stop_after_first", false)) return literal("");
  if (!calls.wish.required) return calls.dialect->structure(calls.tools, calls.wish);
  return {{"type", "optional"},
          {"content",
           {{"type", "sequence"}, {"elements", {literal(required.value("separator", std::string())), required}}}}};
}

// Parts that occur several times are compiled once.
void share_contents(Json& structure) {
  if (!structure.is_object()) return;
  if (structure.contains("tags"))
    for (Json& tag : structure["tags"]) tag["content"]["shared"] = true;
  if (structure.contains("elements"))
    for (Json& element : structure["elements"]) share_contents(element);
}

// Tags that begin with the call's start and hold all that follows in the answer.
void add_early_calls(const EarlyCalls& calls, Json& tags) {
  Json required = calls.dialect->structure(calls.tools, {true, calls.wish.parallel});
  share_contents(required);
  Json further = further_calls(calls, required);
  share_contents(further);
  const std::string start = calls.dialect->start;
  for (const Json& tag : required["tags"]) {
    const auto& begin = tag["begin"].get_ref<const std::string&>();
    if (!begin.starts_with(start)) {  // calls have a start only where text precedes them
      tags.push_back({{"type", "tag"}, {"begin", start}, {"content", required}, {"end", ""}});
      return;
    }
    Json rest = {{"type", "tag"}, {"begin", ""}, {"content", tag["content"]}, {"end", tag["end"]}};
    tags.push_back({{"type", "tag"},
                    {"begin", begin},
                    {"content", {{"type", "sequence"}, {"elements", {std::move(rest), further}}}},
                    {"end", ""}});
  }
}

}  // namespace

Json behind_reasoning(Json structure, const ReasoningMarks& marks, ReasoningPlace place, const EarlyCalls& calls) {
  if (place == ReasoningPlace::behind) return structure;
  const Json space = {{"type", "regex"}, {"pattern", "[ \\n]{0,4}"}};
  const auto sequence = [](Json::initializer_list_t parts) {
    return Json{{"type", "sequence"}, {"elements", Json::array(parts)}};
  };
  const bool early = calls.dialect && *calls.dialect->start && !calls.tools.empty();
  if (!early) {
    const Json until = {{"type", "text_until"}, {"end", marks.close}};
    if (place == ReasoningPlace::inside) return sequence({until, space, std::move(structure)});
    Json thinking = sequence({literal(marks.open), until, space});
    return sequence({Json{{"type", "optional"}, {"content", std::move(thinking)}}, std::move(structure)});
  }
  share_contents(structure);
  structure["shared"] = true;
  Json tags = Json::array(
      {Json{{"type", "tag"}, {"begin", marks.close}, {"content", sequence({space, structure})}, {"end", ""}}});
  add_early_calls(calls, tags);
  Json thinking = {{"type", "triggered_tags"},
                   {"triggers", {marks.close, calls.dialect->start}},
                   {"tags", std::move(tags)},
                   {"at_least_one", true},
                   {"stop_after_first", true}};
  if (place == ReasoningPlace::inside) return thinking;
  return {{"type", "or"}, {"elements", {sequence({literal(marks.open), std::move(thinking)}), std::move(structure)}}};
}

bool is_marker(std::string_view text) {
  for (const ReasoningMarks& marks : reasoning_marks())
    if (text == marks.open || text == marks.close) return true;
  for (const ToolDialect* dialect : tool_dialects().members())
    for (const char* marker : dialect->markers)
      if (text == marker) return true;
  return false;
}

}  // namespace millrace
